"""Checks what a program relies on that takes ids from a pool in several threads."""

import os
from concurrent.futures import ThreadPoolExecutor

import psycopg

from pool import IdPool

database = os.environ["DATABASE_URL"]
pool = IdPool(database, size=100)

with ThreadPoolExecutor(8) as threads:
    parts = list(threads.map(lambda _: [pool.take() for _ in range(500)], range(8)))
assert len({id for part in parts for id in part}) == 4000
assert all(part == sorted(part) for part in parts), "the ids of each thread ascend"

# Batches that have become too old, both of them, are not used: as if a minute had passed.
while pool._next is None:
    pool.take()
drawn_at, ids = pool._next.result()
old = [*pool._ids, *ids]
pool._drawn_at -= 60
pool._next = ThreadPoolExecutor(1).submit(lambda: (drawn_at - 60, ids))
assert pool.take() > max(old)

# A failed draw is an error of the call that waits for it, and the next call tries again.
broken = IdPool("host=127.0.0.1 port=1 connect_timeout=5")
for _ in range(2):
    try:
        broken.take()
        raise AssertionError("there is no server")
    except psycopg.OperationalError:
        pass
broken._database = database
assert broken.take() > max(old)

# Ids of a pool are settled before their rows are stored.
with psycopg.connect(database, autocommit=True) as connection:
    [settled] = connection.execute("SELECT snowflake_settled()").fetchone()
    assert pool.take() <= settled
