/*
 * Closes a file of its process that another library has opened, as a fault in an extension does.
 *
 *   CREATE FUNCTION close_file(integer) RETURNS integer LANGUAGE c STRICT AS 'FILE', 'close_file'
 */
#include "postgres.h"

#include <unistd.h>

#include "fmgr.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(close_file);

Datum
close_file(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(close(PG_GETARG_INT32(0)));
}
