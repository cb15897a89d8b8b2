<?php

require 'Illuminate/Database/autoload.php'; // of Debian's package; a Laravel project loads it already

use Illuminate\Database\Capsule\Manager as DB;
use Illuminate\Database\Eloquent\Model;
use Illuminate\Database\Schema\Blueprint;

$db = new DB();
$db->addConnection(['driver' => 'pgsql', 'url' => getenv('DATABASE_URL')]);
$db->setAsGlobal();
$db->bootEloquent();

// A migration's up().
DB::schema()->create('orders', function (Blueprint $table) {
    $table->bigInteger('id')->default(DB::raw('snowflake_next()'))->primary();
    $table->text('item');
});
DB::schema()->create('lines', function (Blueprint $table) {
    $table->bigInteger('id')->default(DB::raw('snowflake_next()'))->primary();
    $table->foreignId('order_id')->constrained();
});

class Order extends Model
{
    public $timestamps = false;
    protected $keyType = 'string';
    protected $fillable = ['item'];

    public function lines()
    {
        return $this->hasMany(Line::class);
    }
}

class Line extends Model
{
    public $timestamps = false;
    protected $keyType = 'string';
    protected $casts = ['order_id' => 'string'];
}

$tea = Order::create(['item' => 'tea']);
$tea->lines()->createMany([[], []]);
$coffee = Order::create(['item' => 'coffee']);
echo json_encode(array_map(fn ($order) => $order->only('id', 'item'), [$tea, $coffee])), "\n";
