/*
 * Runs a statement while a transaction is being prepared, in a callback. A library that is named
 * before another one in shared_preload_libraries is called after it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

static char *statement = NULL;

static void
transaction_ends(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_PRE_PREPARE || statement[0] == '\0')
		return;
	SPI_connect();
	PushActiveSnapshot(GetTransactionSnapshot());
	if (SPI_execute(statement, false, 0) < 0)
		elog(ERROR, "the statement fails");
	PopActiveSnapshot();
	SPI_finish();
}

void
_PG_init(void)
{
	DefineCustomStringVariable("preparer.statement", "What runs while a transaction is being prepared.", NULL, &statement,
							   "", PGC_SUSET, 0, NULL, NULL, NULL);
	RegisterXactCallback(transaction_ends, NULL);
}
