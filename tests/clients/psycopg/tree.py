import os

import psycopg

from pool import IdPool

pool = IdPool(os.environ["DATABASE_URL"])

# A question with 2,499 answers, each with its id before any row is stored.
question = pool.take()
rows = [(question, None, "tea or coffee?")]
rows += [(pool.take(), question, "tea") for _ in range(2499)]

with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
    with connection.cursor().copy("COPY comments (id, parent, body) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)
