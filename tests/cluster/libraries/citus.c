/*
 * Does what Citus does to other libraries when it is loaded: it refuses to be loaded after a library
 * that has set the hook for utility statements or for planning, and it replaces the hook for tables
 * without calling it.
 */
#include "postgres.h"

#include "fmgr.h"
#include "optimizer/pathnode.h"
#include "optimizer/plancat.h"
#include "optimizer/planner.h"
#include "tcop/utility.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

#if PG_VERSION_NUM >= 190000
#define planner_hook_for_tables build_simple_rel_hook
static void
nothing(PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *entry)
{
}
#else
#define planner_hook_for_tables get_relation_info_hook
static void
nothing(PlannerInfo *root, Oid relation, bool inhparent, RelOptInfo *rel)
{
}
#endif

void
_PG_init(void)
{
	if (planner_hook != NULL || ProcessUtility_hook != NULL)
		ereport(ERROR, (errmsg("Citus has to be loaded first")));
	planner_hook_for_tables = nothing;
}
