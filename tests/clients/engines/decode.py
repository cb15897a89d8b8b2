"""Decodes ids by the expressions of docs/decode.md: decode.py ENGINE.

Reads expressions.tsv (layout, what is wanted, expression) and ids.tsv (layout, id). Prints a line
for each result: layout, what is wanted, id or nothing, value.
"""

import csv
import sys
from collections import defaultdict
from datetime import datetime, timedelta, timezone

engine = sys.argv[1]


def rows(name):
    with open(name, newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


ids_of = defaultdict(list)
for layout, id in rows("ids.tsv"):
    ids_of[layout].append(int(id))


def shown(value):
    """The value as snowflake_parse() shows it, and a time in milliseconds."""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03}Z"
    return str(value)


class Python:
    def __init__(self, ids):
        self.ids = ids

    def each(self, expression):
        names = {"datetime": datetime, "timedelta": timedelta, "timezone": timezone}
        return [eval(expression, names | {"id": id}) for id in self.ids]

    def one(self, expression):
        return eval(expression, {"datetime": datetime})


class DuckDB:
    def __init__(self, ids):
        import duckdb

        self.connection = duckdb.connect()
        self.connection.execute("CREATE TABLE ids AS SELECT unnest(?::BIGINT[]) AS id", [ids])

    def each(self, expression):
        # DuckDB keeps the order of insertion.
        return [value for (value,) in self.connection.execute(f"SELECT {expression} FROM ids").fetchall()]

    def one(self, expression):
        return self.connection.execute(f"SELECT {expression}").fetchone()[0]


class ClickHouse:
    session = None

    def __init__(self, ids):
        from chdb import session

        # One process has one session.
        ClickHouse.session = ClickHouse.session or session.Session("chdb")
        self.query("DROP TABLE IF EXISTS ids")
        self.query("CREATE TABLE ids (n UInt32, id Int64) ENGINE = MergeTree ORDER BY n")
        self.query("INSERT INTO ids VALUES " + ", ".join(f"({n}, {id})" for n, id in enumerate(ids)))

    def query(self, sql):
        return str(self.session.query(sql, "TSV")).splitlines()

    def each(self, expression):
        values = self.query(f"SELECT {expression} FROM ids ORDER BY n")
        return [value.replace(" ", "T") + "Z" if " " in value else value for value in values]

    def one(self, expression):
        return self.query(f"SELECT {expression}")[0]


class Pandas:
    def __init__(self, ids):
        import pandas as pd

        self.names = {"pd": pd, "df": pd.DataFrame({"id": ids})}

    def each(self, expression):
        return eval(expression, self.names).tolist()

    def one(self, expression):
        return eval(expression, self.names)


class Polars:
    def __init__(self, ids):
        import polars as pl

        self.names = {"pl": pl, "datetime": datetime}
        self.frame = pl.DataFrame({"id": ids})

    def each(self, expression):
        return self.frame.select(eval(expression, self.names)).to_series().to_list()

    def one(self, expression):
        return eval(expression, self.names)


ENGINES = {"Python": Python, "DuckDB": DuckDB, "ClickHouse": ClickHouse, "pandas": Pandas, "polars": Polars}

expressions = defaultdict(list)
for layout, wanted, expression in rows("expressions.tsv"):
    expressions[layout].append((wanted, expression))
for layout, wanted_of_it in expressions.items():
    running = ENGINES[engine](ids_of[layout])
    for wanted, expression in wanted_of_it:
        if wanted.startswith("first id"):
            print(layout, wanted, "", shown(running.one(expression)), sep="\t")
        else:
            for id, value in zip(ids_of[layout], running.each(expression), strict=True):
                print(layout, wanted, id, shown(value), sep="\t")
