-- In the database of POSTGRES_DB, when the data directory is made.
CREATE EXTENSION snowflake_id;
