"""What a program gets while ids are refused, since the clock was set back: SQLSTATE 58000."""

import os

import psycopg

with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
    try:
        connection.execute("INSERT INTO orders (item) VALUES ('tea')")
    except psycopg.errors.SystemError as error:
        # What programs try again, or not, by.
        assert isinstance(error, psycopg.OperationalError) and error.sqlstate == "58000"
        assert error.diag.message_primary.startswith("clock is "), error
    else:
        raise AssertionError("the clock was not set back")
