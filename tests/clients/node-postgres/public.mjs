import pg from 'pg';

const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();

const insert = "INSERT INTO orders (item) VALUES ($1) RETURNING snowflake_conceal(id, 'ord') AS id, item";
const { rows: [tea] } = await client.query(insert, ['tea']); // { id: 'ord_...', item: 'tea' }

const find = "SELECT item FROM orders WHERE id = snowflake_reveal($1, 'ord')";
const { rows } = await client.query(find, [tea.id]);
const { rows: none } = await client.query(find, ['ord_no_such_id']); // answer 404
console.log(rows.length, none.length);

await client.end();
