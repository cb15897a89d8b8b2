import os

import psycopg


def deliver(connection):
    """Delivers the next orders, and returns how many there were."""
    with connection.transaction():
        reader = connection.execute("SELECT last FROM readers WHERE name = 'mail' FOR UPDATE")
        rows = connection.execute(
            "SELECT id, item FROM orders WHERE id > %s AND id <= snowflake_settled() ORDER BY id LIMIT 100",
            reader.fetchone(),
        ).fetchall()
        for id, item in rows:
            print(id, item)
        if rows:
            connection.execute("UPDATE readers SET last = %s WHERE name = 'mail'", [rows[-1][0]])
        return len(rows)


with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
    while deliver(connection) > 0:
        pass
