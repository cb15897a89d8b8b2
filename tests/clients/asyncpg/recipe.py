import asyncio
import os

import asyncpg


async def main():
    connection = await asyncpg.connect(os.environ["DATABASE_URL"])
    insert = "INSERT INTO orders (item) VALUES ($1) RETURNING id"

    # A row's id is an int.
    tea = await connection.fetchval(insert, "tea")

    # Many rows in one batch. Their ids come in the order of the rows.
    coffee, cocoa = [row["id"] for row in await connection.fetchmany(insert, [["coffee"], ["cocoa"]])]

    # COPY draws ids for the column that it leaves out.
    await connection.copy_records_to_table("orders", columns=["item"], records=[["milk"], ["sugar"]])

    await connection.close()
    return {"tea": tea, "coffee": coffee, "cocoa": cocoa}


ids = asyncio.run(main())
