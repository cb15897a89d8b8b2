import pg from 'pg';

const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();

// Delivers the next orders, and returns how many there were. An id is a string.
async function deliver() {
  await client.query('BEGIN');
  try {
    const reader = await client.query("SELECT last FROM readers WHERE name = 'mail' FOR UPDATE");
    const next = 'SELECT id, item FROM orders WHERE id > $1 AND id <= snowflake_settled() ORDER BY id LIMIT 100';
    const { rows } = await client.query(next, [reader.rows[0].last]);
    for (const { id, item } of rows) console.log(id, item);
    if (rows.length > 0) {
      await client.query("UPDATE readers SET last = $1 WHERE name = 'mail'", [rows.at(-1).id]);
    }
    await client.query('COMMIT');
    return rows.length;
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  }
}

while ((await deliver()) > 0);
await client.end();
