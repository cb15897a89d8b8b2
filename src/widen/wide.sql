-- The columns that hold the values and are bigint.
SELECT rel, attnum FROM holds JOIN pg_attribute ON attrelid = rel AND attname = att WHERE atttypid = 'int8'::regtype
