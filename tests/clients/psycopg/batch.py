import os

import psycopg

orders = {"tea": ["green", "black"], "coffee": ["dark"]}

with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
    count = sum(1 + len(kinds) for kinds in orders.values())
    ids = iter([id for (id,) in connection.execute("SELECT snowflake_batch(%s)", [count])])

    order_rows, line_rows = [], []
    for item, kinds in orders.items():
        order_id = next(ids)
        order_rows.append((order_id, item))
        line_rows += [(next(ids), order_id, kind) for kind in kinds]

    for statement, rows in [
        ("COPY orders (id, item) FROM STDIN", order_rows),
        ("COPY lines (id, order_id, kind) FROM STDIN", line_rows),
    ]:
        with connection.cursor().copy(statement) as copy:
            for row in rows:
                copy.write_row(row)
