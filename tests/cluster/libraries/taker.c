/*
 * Takes places for callbacks when it is loaded, as many of each kind as its settings say. So a test
 * sees how many are left for others. PostgreSQL ends a process that asks for one too many.
 *
 * A session loads it through session_preload_libraries. A walsender does not, but it loads a slot's
 * output plugin. As such a plugin, this library is pgoutput.
 */
#include "postgres.h"

#include "fmgr.h"
#include "replication/output_plugin.h"
#include "storage/ipc.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/syscache.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);
extern PGDLLEXPORT void _PG_output_plugin_init(OutputPluginCallbacks *callbacks);

static int relcache = 0;
static int syscache = 0;
static int process_end = 0;

static void
relation_changed(Datum arg, Oid relation)
{
}

static void
catalog_changed(Datum arg, int cache, uint32 hash)
{
}

static void
process_ends(int code, Datum arg)
{
}

void
_PG_init(void)
{
	DefineCustomIntVariable("taker.relcache", "Places for changes of relations.", NULL, &relcache, 0, 0, 100, PGC_SUSET, 0,
							NULL, NULL, NULL);
	DefineCustomIntVariable("taker.syscache", "Places for changes of catalogs.", NULL, &syscache, 0, 0, 100, PGC_SUSET, 0,
							NULL, NULL, NULL);
	DefineCustomIntVariable("taker.process_end", "Places for the end of the process.", NULL, &process_end, 0, 0, 100,
							PGC_SUSET, 0, NULL, NULL, NULL);
	for (int n = 0; n < relcache; n++)
		CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
	for (int n = 0; n < syscache; n++)
		CacheRegisterSyscacheCallback(RELOID, catalog_changed, (Datum) 0);
	for (int n = 0; n < process_end; n++)
		on_shmem_exit(process_ends, (Datum) 0);
}

void
_PG_output_plugin_init(OutputPluginCallbacks *callbacks)
{
	LogicalOutputPluginInit init = (LogicalOutputPluginInit)
		load_external_function("pgoutput", "_PG_output_plugin_init", true, NULL);

	init(callbacks);
}
