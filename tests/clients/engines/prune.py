"""Checks that engines skip rows by the first id of a time: prune.py DuckDB|ClickHouse|polars.

The file condition.sql or the argument has what docs/decode.md shows.
"""

import json
import re
import sys

FIRST = 249322851532800000  # of 2026-11-20
# A million ids, a second apart, of which 100,000 are of 2026-11-20 or later.
SECOND = 1000 << 22
IDS = range(FIRST - 900_000 * SECOND, FIRST + 100_000 * SECOND, SECOND)


def duckdb(statement):
    import duckdb

    connection = duckdb.connect()
    ids = f"SELECT {IDS[0]} + n * {SECOND} AS id FROM range({len(IDS)}) t (n)"
    connection.execute(f"COPY ({ids}) TO 'orders.parquet' (ROW_GROUP_SIZE 10000)")
    assert connection.execute(statement).fetchone() == (100_000,)
    [(_, plan)] = connection.execute(f"EXPLAIN {statement}").fetchall()
    words = re.sub(r"[\s│]+", "", plan)
    assert f"id>={FIRST}" in words, f"the scan has the number as its filter\n{plan}"


def clickhouse(statement):
    from chdb import session

    chdb = session.Session("chdb")
    query = lambda sql, form="TSV": str(chdb.query(sql, form))
    query("CREATE TABLE orders (id Int64) ENGINE = MergeTree ORDER BY id")
    query(f"INSERT INTO orders SELECT {IDS[0]} + number * {SECOND} FROM numbers({len(IDS)})")
    query("OPTIMIZE TABLE orders FINAL")
    times = query(statement.rstrip(";")).splitlines()
    assert (len(times), times[0], times[1]) == (100_000, "2026-11-20 00:00:00.000", "2026-11-20 00:00:01.000")
    read = re.findall(r"Granules: (\d+)/(\d+)", query("EXPLAIN indexes = 1 " + statement.rstrip(";")))
    read, all = map(int, read[-1])
    assert all > 100 and read < all / 5, (read, all)
    # A partition for each month, and for nearly each id by what the page warns of.
    with open("partitions.sql") as file:
        query(file.read().rstrip().rstrip(";"))
    query(f"INSERT INTO orders_by_month SELECT {FIRST} + number * {SECOND} * 86400, 'tea' FROM numbers(60)")
    count = "SELECT uniqExact(partition) FROM system.parts WHERE active AND table = "
    assert query(count + "'orders_by_month'") == "3\n"
    query("CREATE TABLE orders_by_number (id Int64) ENGINE = MergeTree ORDER BY id PARTITION BY intDiv(id, 4294967)")
    query(f"INSERT INTO orders_by_number SELECT {FIRST} + number * {1 << 22} FROM numbers(60)")
    assert int(query(count + "'orders_by_number'")) >= 58
    # Without the epoch, times are 55 years too early.
    assert query(f"SELECT snowflakeIDToDateTime64(toUInt64({FIRST}), 0, 'UTC')").startswith("1971-")


def polars(_):
    import polars as pl

    pl.DataFrame({"id": list(IDS)}).write_parquet("orders.parquet", row_group_size=10_000)
    later = pl.scan_parquet("orders.parquet").filter(pl.col("id") >= FIRST)
    assert later.collect().height == 100_000
    plan = later.explain()
    assert "SELECTION" in plan and "FILTER" not in plan, plan


[engine] = sys.argv[1:]
with open("statement.sql") as file:
    {"DuckDB": duckdb, "ClickHouse": clickhouse, "polars": polars}[engine](file.read())
