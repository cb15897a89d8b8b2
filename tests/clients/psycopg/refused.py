"""Checks the error that a program gets while ids are refused because the clock was set back: SQLSTATE 58000."""

import os

import psycopg

with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
    try:
        connection.execute("INSERT INTO orders (item) VALUES ('tea')")
    except psycopg.errors.SystemError as error:
        # Programs decide by this class whether to retry.
        assert isinstance(error, psycopg.OperationalError) and error.sqlstate == "58000"
        assert error.diag.message_primary.startswith("clock is "), error
    else:
        raise AssertionError("the clock was not set back")
