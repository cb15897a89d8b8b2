"""Checks the rows that the recipe stored, ids as parameters, ids before the insert, and an error of the extension."""

import asyncio
import os

import asyncpg

from recipe import ids


async def main():
    connection = await asyncpg.connect(os.environ["DATABASE_URL"])
    rows = await connection.fetch("SELECT item, id FROM orders ORDER BY id")
    assert [row["item"] for row in rows] == ["tea", "coffee", "cocoa", "milk", "sugar"], rows
    assert {row["item"]: row["id"] for row in rows[:3]} == ids
    assert all(type(id) is int and id > 2**53 for id in ids.values())
    assert await connection.fetchval("SELECT item FROM orders WHERE id = $1", ids["cocoa"]) == "cocoa"
    assert await connection.fetchval("SELECT count(*) FROM orders WHERE id = ANY($1)", list(ids.values())) == 3

    # Ids before the insert.
    n = 3
    drawn = [row["id"] for row in await connection.fetch("SELECT snowflake_batch($1) AS id", n)]
    assert len(drawn) == n and drawn == sorted(drawn) and drawn[0] > max(ids.values())
    await connection.copy_records_to_table("orders", columns=["id", "item"], records=[[id, "honey"] for id in drawn])
    assert await connection.fetchval("SELECT array_agg(id ORDER BY id) FROM orders WHERE item = 'honey'") == drawn

    # SQLSTATE 55000, because the new session has drawn no id.
    other = await asyncpg.connect(os.environ["DATABASE_URL"])
    try:
        await other.fetchval("SELECT snowflake_last()")
        raise AssertionError("it should be refused")
    except asyncpg.ObjectNotInPrerequisiteStateError:
        pass
    await other.close()
    await connection.close()


asyncio.run(main())
