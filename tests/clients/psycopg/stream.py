import os
import time

import psycopg
from psycopg.errors import ObjectNotInPrerequisiteState


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


def deliver_or_try_again(connection, tries=5):
    for _ in range(tries - 1):
        try:
            return deliver(connection)
        except ObjectNotInPrerequisiteState:  # 55000: the snapshot is too old.
            time.sleep(0.1)
    return deliver(connection)


with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
    while deliver_or_try_again(connection) > 0:
        pass
