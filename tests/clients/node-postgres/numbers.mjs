import pg from 'pg';

pg.types.setTypeParser(pg.types.builtins.INT8, Number);
