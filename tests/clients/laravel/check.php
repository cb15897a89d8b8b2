<?php
// Checks that each object has the id of its row as a string, also in JSON, and ids before the insert.

require 'recipe.php';

use Illuminate\Database\Capsule\Manager as DB;

function check(bool $holds, string $what): void
{
    if (!$holds) {
        throw new Exception($what);
    }
}

$found = Order::with('lines')->find($tea->id);
check($found->item === 'tea' && $found->id === $tea->id && is_string($tea->id), 'an id finds its row');
check($found->lines->count() === 2, 'children are found by their parent');
foreach ($found->lines as $line) {
    check($line->order_id === $tea->id && $line->id > $tea->id, 'a reference is a string');
}
$json = json_decode($found->toJson());
check($json->id === $tea->id && $json->lines[0]->order_id === $tea->id, 'ids are strings in JSON');

$columns = array_map(fn ($column) => implode(' ', (array) $column), DB::connection()->select(
    "SELECT table_name, column_name, column_default FROM information_schema.columns
     WHERE table_name IN ('orders', 'lines') AND data_type = 'bigint' ORDER BY 1 DESC, 2"
));
check($columns === ['orders id snowflake_next()', 'lines id snowflake_next()', 'lines order_id '], implode(', ', $columns));

// Ids before the insert.
$n = 3;
$ids = array_column(DB::select('SELECT snowflake_batch(?) AS id', [$n]), 'id');
check(count($ids) === $n && is_int($ids[0]) && $ids[0] > (int) $coffee->id, 'a batch is drawn');
Order::insert(array_map(fn ($id) => ['id' => $id, 'item' => 'milk'], $ids));
check(Order::where('item', 'milk')->orderBy('id')->pluck('id')->all() === array_map('strval', $ids), 'ids may be given');
