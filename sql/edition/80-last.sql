-- Again, because others may have made objects while the file ran.

DO
-- include 02-owners.sql
;
