"""Checks the rows that the recipe stored, and how psycopg returns ids and the extension's errors."""

import json
import os

import psycopg
from psycopg.types.json import Jsonb

from recipe import cocoa, coffee, tea

with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
    rows = connection.execute("SELECT item, id FROM orders ORDER BY id").fetchall()
    assert [item for item, _ in rows] == ["tea", "coffee", "cocoa", "milk", "sugar"], rows
    assert rows[:3] == [("tea", tea), ("coffee", coffee), ("cocoa", cocoa)]
    assert type(tea) is int and tea > 2**53

    # In binary, too, and as a parameter of either format.
    for binary in [False, True]:
        cursor = connection.cursor(binary=binary)
        assert cursor.execute("SELECT id FROM orders WHERE id = %s", [cocoa]).fetchone() == (cocoa,)
        assert cursor.execute("SELECT id FROM orders WHERE id = %b", [cocoa]).fetchone() == (cocoa,)
        assert cursor.execute("SELECT item FROM orders WHERE id = ANY(%s)", [[tea, coffee]]).rowcount == 2

    # An id's parts are columns. Its time is exact, and in the session's time zone.
    parts = connection.execute("SELECT p.* FROM snowflake_parse(%s) p", [tea]).fetchone()
    assert parts[2] == 5 and parts[0].tzinfo is not None, parts
    since = "SELECT count(*) FROM orders WHERE snowflake_timestamp(id) >= %s"
    assert connection.execute(since, [parts[0]]).fetchone() == (5,)

    # Python reads an id from JSON as an int. A program that reads numbers as doubles, like JavaScript, loses its last bits.
    odd = (cocoa | 1) + 1000
    insert = "INSERT INTO orders VALUES (%s, 'honey') RETURNING to_jsonb(orders)"
    [document] = connection.execute(insert, [odd]).fetchone()
    assert document == {"id": odd, "item": "honey"}
    assert json.loads(json.dumps(document), parse_int=float)["id"] != odd
    # A string passes through both, and back into a bigint.
    by_text = "SELECT to_jsonb(o) || jsonb_build_object('id', o.id::text) FROM orders o WHERE id = (%s->>'id')::bigint"
    assert connection.execute(by_text, [Jsonb({"id": str(odd)})]).fetchone() == ({"id": str(odd), "item": "honey"},)

    def refused(error, statement, *parameters):
        """Returns whether a statement is refused with this error, a class of psycopg.errors."""
        try:
            connection.execute(statement, parameters)
        except error:
            return True
        return False

    # A column that refers to an id must be a bigint. PostgreSQL accepts an integer column, but no id in it.
    connection.execute("CREATE TABLE lines (order_id integer REFERENCES orders)")
    assert refused(psycopg.errors.NumericValueOutOfRange, "INSERT INTO lines VALUES (%s)", tea)
    # NULL is not the default.
    assert refused(psycopg.errors.NotNullViolation, "INSERT INTO orders VALUES (%s, 'milk')", None)
    # SQLSTATE 55000, because this session has drawn no id.
    assert refused(psycopg.errors.ObjectNotInPrerequisiteState, "SELECT snowflake_last()")
    assert issubclass(psycopg.errors.ObjectNotInPrerequisiteState, psycopg.OperationalError)

# One transaction asks as often as it likes, while others commit.
with psycopg.connect(os.environ["DATABASE_URL"]) as reader, psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as writer:
    for _ in range(1000):
        writer.execute("SELECT pg_current_xact_id()")
        reader.execute("SELECT count(*) FROM orders WHERE id <= snowflake_settled()")
