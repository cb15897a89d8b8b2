-- Whether one of the columns draws ids by default.
SELECT EXISTS (SELECT FROM family, ours WHERE proname = 'snowflake_next' AND expression = head || ')')
