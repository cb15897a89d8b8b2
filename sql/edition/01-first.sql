-- Before anything is made, replaced or called.

DO
-- include 02-owners.sql
;
