import os

import psycopg

with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
    # A row's id is an int.
    [tea] = connection.execute("INSERT INTO orders (item) VALUES (%s) RETURNING id", ["tea"]).fetchone()

    # Of many rows each has a result of its own, in the order of the rows.
    cursor = connection.cursor()
    cursor.executemany("INSERT INTO orders (item) VALUES (%s) RETURNING id", [["coffee"], ["cocoa"]], returning=True)
    coffee, cocoa = (result.fetchone()[0] for result in cursor.results())

    # COPY draws ids for the column that it leaves out.
    with cursor.copy("COPY orders (item) FROM STDIN") as copy:
        for item in ["milk", "sugar"]:
            copy.write_row([item])
