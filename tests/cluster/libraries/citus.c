/*
 * Does what Citus does to other libraries when it is loaded: it refuses to be loaded after a library
 * that has set the hook for utility statements, and it replaces the planner's hook without calling it.
 */
#include "postgres.h"

#include "fmgr.h"
#include "optimizer/plancat.h"
#include "tcop/utility.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

static void
nothing(PlannerInfo *root, Oid relation, bool inhparent, RelOptInfo *rel)
{
}

void
_PG_init(void)
{
	if (ProcessUtility_hook != NULL)
		ereport(ERROR, (errmsg("Citus has to be loaded first")));
	get_relation_info_hook = nothing;
}
