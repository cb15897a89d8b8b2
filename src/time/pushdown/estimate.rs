//! How many rows the planner expects where a condition is kept beside the bounds that it implies,
//! and where ids have jumped.
//!
//! The bounds already say how many. The kept condition is an argument of
//! `snowflake_plan.checked()`, and this file tells the planner that it holds. Else it would count
//! twice.
//!
//! After a conversion, the last bucket of the column's histogram reaches from the last serial
//! numbers to the newest id. PostgreSQL takes its rows for evenly spread, so it expects hardly any
//! of them in the last days. For a bound in such a bucket, [`statistics`] asks an index instead:
//! the path of a search through it says how many of its rows are above the bound.

use std::ffi::{c_char, c_int};
use std::mem::offset_of;
use std::{ptr, slice};

use pgrx::datum::Internal;
use pgrx::pg_sys::{
    self, AttrNumber, Datum, Node, NodeTag, Oid, SysCacheIdentifier, get_relation_stats_hook,
    get_relation_stats_hook_type as Hook,
};
use pgrx::prelude::*;

use super::filters;
use super::nodes::{cells, without_relabeling};
use super::order::is_ordered_by;
use crate::postgres::local::Local;

unsafe extern "C-unwind" {
    // optimizer/optimizer.h
    fn estimate_expression_value(root: *mut pg_sys::PlannerInfo, node: *mut Node) -> *mut Node;
    // utils/syscache.h, utils/lsyscache.h
    fn SearchSysCache3(cache: c_int, key1: Datum, key2: Datum, key3: Datum) -> pg_sys::HeapTuple;
    fn ReleaseSysCache(tuple: pg_sys::HeapTuple);
    fn get_attstatsslot(
        slot: *mut pg_sys::AttStatsSlot,
        tuple: pg_sys::HeapTuple,
        kind: c_int,
        operator: Oid,
        flags: c_int,
    ) -> bool;
    fn free_attstatsslot(slot: *mut pg_sys::AttStatsSlot);
    // utils/array.h, access/htup_details.h
    fn construct_array(
        elements: *mut Datum,
        count: c_int,
        of: Oid,
        size: c_int,
        by_value: bool,
        align: c_char,
    ) -> *mut pg_sys::ArrayType;
    fn heap_modify_tuple(
        tuple: pg_sys::HeapTuple,
        descriptor: pg_sys::TupleDesc,
        values: *mut Datum,
        nulls: *mut bool,
        replaced: *mut bool,
    ) -> pg_sys::HeapTuple;
    fn heap_freetuple(tuple: pg_sys::HeapTuple);
    // access/relation.h, access/nbtree.h
    fn relation_open(relation: Oid, lock: pg_sys::LOCKMODE) -> pg_sys::Relation;
    fn relation_close(relation: pg_sys::Relation, lock: pg_sys::LOCKMODE);
    fn _bt_mkscankey(index: pg_sys::Relation, tuple: pg_sys::IndexTuple) -> pg_sys::BTScanInsert;
    fn _bt_search(
        index: pg_sys::Relation,
        #[cfg(not(feature = "pg15"))] table: pg_sys::Relation,
        key: pg_sys::BTScanInsert,
        leaf: *mut pg_sys::Buffer,
        access: c_int,
        #[cfg(any(feature = "pg15", feature = "pg16"))] snapshot: pg_sys::Snapshot,
        #[cfg(feature = "pg19")] has_stack: bool,
    ) -> pg_sys::BTStack;
    fn _bt_compare(
        index: pg_sys::Relation,
        key: pg_sys::BTScanInsert,
        page: pg_sys::Page,
        offset: pg_sys::OffsetNumber,
    ) -> i32;
    fn _bt_relbuf(index: pg_sys::Relation, buffer: pg_sys::Buffer);
}

/// The hook that was installed before ours.
static PREVIOUS: Local<Hook> = Local::new(None);

/// Installs the hook, when preloaded.
///
/// # Safety
/// Called by the postmaster, while it loads libraries.
pub(super) unsafe fn init() {
    // SAFETY: the postmaster has one thread; this is how PostgreSQL chains hooks.
    unsafe {
        PREVIOUS.set(get_relation_stats_hook);
        get_relation_stats_hook = Some(statistics);
    }
}

/// Called when the planner asks for what ANALYZE has found about a column. Returns whether it has
/// put an answer into `data`, which it does only where the planner estimates a bound of ours that
/// is in a bucket in which ids have jumped.
///
/// The answer needs no check of the user's rights: the operators of bigint are leakproof. So
/// PostgreSQL itself estimates by the column's values for every user, and searches the index for
/// the least and the greatest.
unsafe extern "C-unwind" fn statistics(
    root: *mut pg_sys::PlannerInfo,
    entry: *mut pg_sys::RangeTblEntry,
    attribute: AttrNumber,
    data: *mut pg_sys::VariableStatData,
) -> bool {
    // SAFETY: PostgreSQL calls it, with arguments that are valid while the query is planned.
    unsafe {
        if let Some(previous) = PREVIOUS.get()
            && previous(root, entry, attribute, data)
        {
            return true;
        }
        // `brincostestimate()` has not set any of the fields, so a pointer is only compared.
        let Some((bound, index)) = bound_of(root, entry, attribute, (*data).var) else { return false };
        let column = Datum::from(i64::from(attribute));
        let tuple =
            SearchSysCache3(SysCacheIdentifier::STATRELATTINH as c_int, (*entry).relid.into(), column, false.into());
        if tuple.is_null() {
            return false;
        }
        let mut is_answered = false;
        if let Some((start, end, others)) = last_bucket(tuple) {
            // Ids have jumped in a bucket that is wider than all the others together.
            let is_wide = |end: i64| end as f64 - start as f64 > others;
            if (is_wide(end) || end < SERIAL)
                && let Some(id) = known(root, bound)
                && id > start
                && is_wide(end.max(id))
            {
                (*data).statsTuple = with_share(tuple, id, share_above(index, start, id));
                (*data).freefunc = Some(heap_freetuple);
                is_answered = true;
            }
        }
        ReleaseSysCache(tuple);
        is_answered
    }
}

/// Returns what an id is compared with, and an index on the ids, if the planner estimates a bound
/// of ours on a table. `var` is then the very node of the bound. An OR has none that is looked for.
unsafe fn bound_of(
    root: *mut pg_sys::PlannerInfo,
    entry: *mut pg_sys::RangeTblEntry,
    attribute: AttrNumber,
    var: *mut Node,
) -> Option<(*mut Node, *mut pg_sys::IndexOptInfo)> {
    // SAFETY: the planner fills these arrays and lists before it estimates. A node's type is what
    // its tag says; these operators have two arguments.
    unsafe {
        if !filters::has_marked() || var.is_null() || (*entry).inh {
            return None;
        }
        let relid = (1..(*root).simple_rel_array_size as usize).find(|n| *(*root).simple_rte_array.add(*n) == entry)?;
        let rel = (*(*root).simple_rel_array.add(relid)).as_ref()?;
        let arguments = cells(rel.baserestrictinfo).iter().find_map(|cell| {
            let restriction = &*cell.ptr_value.cast::<pg_sys::RestrictInfo>();
            let condition = restriction.clause.cast::<Node>();
            // Where the planner has the share, it asks only for the part of NULLs, for each path.
            let is_estimated = restriction.norm_selec >= 0.0;
            if is_estimated
                || (*condition).type_ != NodeTag::T_OpExpr
                || filters::mark_of(condition) >= filters::NO_MARK
            {
                return None;
            }
            let arguments = cells((*condition.cast::<pg_sys::OpExpr>()).args);
            (without_relabeling(arguments[0].ptr_value.cast()) == var).then_some(arguments)
        })?;
        let mut indexes = cells(rel.indexlist).iter().map(|cell| cell.ptr_value.cast());
        // An index of a partitioned table has no order.
        let index = indexes.find(|index: &*mut pg_sys::IndexOptInfo| {
            is_ordered_by(*index, attribute)
                && (**index).indpred.is_null()
                && !(**index).hypothetical
                && (**index).reverse_sort.as_ref() == Some(&false)
        })?;
        Some((arguments[1].ptr_value.cast(), index))
    }
}

/// Serial numbers are mostly below this, and ids are above it some minutes after their epoch.
const SERIAL: i64 = 1 << 40;

/// Returns where the last bucket of a histogram starts and ends, and how wide all the others are
/// together.
unsafe fn last_bucket(statistics: pg_sys::HeapTuple) -> Option<(i64, i64, f64)> {
    // SAFETY: the values of a histogram of bigint.
    unsafe {
        let mut slot = pg_sys::AttStatsSlot::default();
        let slot = &raw mut slot;
        let (kind, flags) = (pg_sys::STATISTIC_KIND_HISTOGRAM as c_int, pg_sys::ATTSTATSSLOT_VALUES as c_int);
        if !get_attstatsslot(slot, statistics, kind, pg_sys::InvalidOid, flags) {
            return None;
        }
        let count = (*slot).nvalues as usize;
        let value = |at| (*(*slot).values.add(at)).value() as i64;
        let bucket = (count > 2).then(|| {
            let start = value(count - 2);
            (start, value(count - 1), start as f64 - value(0) as f64)
        });
        free_attstatsslot(slot);
        bucket
    }
}

/// Returns what an id is compared with, if it is known now.
unsafe fn known(root: *mut pg_sys::PlannerInfo, bound: *mut Node) -> Option<i64> {
    // SAFETY: an expression of type bigint. A node's type is what its tag says.
    unsafe {
        let bound = estimate_expression_value(root, bound).cast::<pg_sys::Const>();
        let is_known = (*bound).xpr.type_ == NodeTag::T_Const && !(*bound).constisnull;
        is_known.then(|| (*bound).constvalue.value() as i64)
    }
}

/// Returns which part of an index's rows is at or above an id. `start` is one below, the same for
/// all ids of an index, so that the more rows are expected the lower the id is.
unsafe fn share_above(index: *const pg_sys::IndexOptInfo, start: i64, id: i64) -> f64 {
    // SAFETY: an index of a table that is being planned, so it is locked.
    unsafe {
        let relation = relation_open((*index).indexoid, pg_sys::NoLock as c_int);
        let [start, at, end] = [start, id, i64::MAX].map(|id| place(relation, id));
        relation_close(relation, pg_sys::NoLock as c_int);
        let rows = between(leaves_between(at.parent, end.parent), at.row, at.rows, end.row, start.rows);
        (rows / (*index).tuples.max(1.0)).clamp(0.0, 1.0)
    }
}

/// Returns how many entries of a level are between two of them: `from`, in a page that has `of`,
/// and `to`. Their pages are `pages` apart, and those between them have `usual` entries each.
fn between(pages: f64, from: f64, of: f64, to: f64, usual: f64) -> f64 {
    if pages == 0.0 { to - from } else { (pages - from / of) * usual + to }
}

/// Returns about how many leaves are between those that two searches have found.
unsafe fn leaves_between(from: pg_sys::BTStack, to: pg_sys::BTStack) -> f64 {
    // SAFETY: what the searches have returned, at most some levels.
    unsafe {
        let (Some(from), Some(to)) = (from.as_ref(), to.as_ref()) else { return 0.0 };
        let pages = leaves_between(from.bts_parent, to.bts_parent);
        let (from, to) = (f64::from(from.bts_offset), f64::from(to.bts_offset));
        between(pages, from, from.max(PAGES_PER_PAGE), to, PAGES_PER_PAGE)
    }
}

/// The pages below one that is not a leaf: PostgreSQL fills 70 % of it with ids that ascend
/// (BTREE_NONLEAF_FILLFACTOR in access/nbtree.h), of 20 bytes each.
const PAGES_PER_PAGE: f64 = 0.7 * (pg_sys::BLCKSZ / 20) as f64;

/// Where an id is in an index.
struct Place {
    /// The path to its leaf.
    parent: pg_sys::BTStack,
    /// The rows before it in its leaf, and those that the leaf has.
    row: f64,
    rows: f64,
}

/// Searches for an id in an index.
unsafe fn place(index: pg_sys::Relation, id: i64) -> Place {
    // SAFETY: a B-tree on bigint, which is locked. A search leaves the leaf's page pinned and
    // locked, if there is one.
    unsafe {
        let key = _bt_mkscankey(index, ptr::null_mut());
        (*key).keysz = 1;
        let first = &raw mut (*key).scankeys[0];
        (*first).sk_flags &= !(pg_sys::SK_ISNULL as c_int);
        (*first).sk_argument = id.into();
        let mut leaf = pg_sys::InvalidBuffer as pg_sys::Buffer;
        let parent = _bt_search(
            index,
            #[cfg(not(feature = "pg15"))]
            ptr::null_mut(),
            key,
            &raw mut leaf,
            pg_sys::BUFFER_LOCK_SHARE as c_int,
            #[cfg(any(feature = "pg15", feature = "pg16"))]
            ptr::null_mut(),
            #[cfg(feature = "pg19")]
            true,
        );
        if leaf == pg_sys::InvalidBuffer as pg_sys::Buffer {
            return Place { parent, row: 0.0, rows: 1.0 };
        }
        let page = pg_sys::BufferGetPage(leaf);
        let linp = offset_of!(pg_sys::PageHeaderData, pd_linp);
        let items = usize::from((*page.cast::<pg_sys::PageHeaderData>()).pd_lower).saturating_sub(linp);
        let items = slice::from_raw_parts(page.byte_add(linp).cast(), items / size_of::<pg_sys::ItemIdData>());
        // All leaves but the last begin with a key that is not a row's.
        let (mut low, mut high) = (2, items.len() as pg_sys::OffsetNumber + 1);
        while low < high {
            let middle = u16::midpoint(low, high);
            if _bt_compare(index, key, page, middle) > 0 {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        // An item has a row, or all rows with the same key (BTreeTupleGetNPosting()).
        let rows = |items: &[pg_sys::ItemIdData]| {
            let rows = items.iter().map(|item| {
                let item = &*page.byte_add(item.lp_off() as usize).cast::<pg_sys::IndexTupleData>();
                let (info, place) = (u32::from(item.t_info), u32::from(item.t_tid.ip_posid));
                let is_list = info & pg_sys::INDEX_ALT_TID_MASK != 0 && place & pg_sys::BT_IS_POSTING != 0;
                if is_list { place & pg_sys::BT_OFFSET_MASK } else { 1 }
            });
            f64::from(rows.sum::<u32>())
        };
        let place =
            Place { parent, row: rows(&items[..items.len().min(usize::from(low) - 1)]), rows: rows(items).max(1.0) };
        _bt_relbuf(index, leaf);
        place
    }
}

/// Makes statistics by which PostgreSQL estimates the share of rows that are `>=` or `<=` an id
/// (`scalarineqsel()`): instead of a histogram, a most common value after it, and one before it.
unsafe fn with_share(statistics: pg_sys::HeapTuple, id: i64, share: f64) -> pg_sys::HeapTuple {
    const COLUMNS: usize = pg_sys::Natts_pg_statistic as usize;
    // SAFETY: a row of pg_statistic, whose fixed part is this struct. The arrays have the sizes
    // that are given.
    unsafe {
        let header = (*statistics).t_data;
        let form = &*header.byte_add((*header).t_hoff.into()).cast::<pg_sys::FormData_pg_statistic>();
        let not_null = 1.0 - f64::from(form.stanullfrac);
        let share = share.min(not_null);
        let number = |share: f64| Datum::from((share as f32).to_bits());
        let mut numbers = [number(not_null - share), number(share)];
        let mut ids = [id.saturating_sub(1).into(), id.saturating_add(1).into()];
        let numbers = construct_array(numbers.as_mut_ptr(), 2, pg_sys::FLOAT4OID, 4, true, b'i' as _);
        let ids = construct_array(ids.as_mut_ptr(), 2, pg_sys::INT8OID, 8, true, b'd' as _);
        let mut values = [Datum::from(0); COLUMNS];
        let (mut nulls, mut replaced) = ([false; COLUMNS], [false; COLUMNS]);
        let mut replace = |first: u32, slot: usize, value: Datum| {
            values[first as usize - 1 + slot] = value;
            replaced[first as usize - 1 + slot] = true;
        };
        let kinds = [form.stakind1, form.stakind2, form.stakind3, form.stakind4, form.stakind5];
        for (slot, kind) in kinds.into_iter().enumerate() {
            match kind as u32 {
                pg_sys::STATISTIC_KIND_MCV => replace(pg_sys::Anum_pg_statistic_stakind1, slot, 0.into()),
                pg_sys::STATISTIC_KIND_HISTOGRAM => {
                    replace(pg_sys::Anum_pg_statistic_stakind1, slot, pg_sys::STATISTIC_KIND_MCV.into());
                    replace(pg_sys::Anum_pg_statistic_stanumbers1, slot, numbers.into());
                    replace(pg_sys::Anum_pg_statistic_stavalues1, slot, ids.into());
                }
                _ => (),
            }
        }
        let catalog = relation_open(pg_sys::StatisticRelationId, pg_sys::AccessShareLock as c_int);
        let (values, nulls, replaced) = (values.as_mut_ptr(), nulls.as_mut_ptr(), replaced.as_mut_ptr());
        let made = heap_modify_tuple(statistics, (*catalog).rd_att, values, nulls, replaced);
        relation_close(catalog, pg_sys::AccessShareLock as c_int);
        made
    }
}

/// Returns its argument: a condition that is kept beside the bounds that it implies. The planner
/// expects it to be true, because the bounds already say how many rows there are.
#[pg_extern(name = "checked", schema = "snowflake_plan", immutable, strict, parallel_safe)]
fn snowflake_checked(condition: bool) -> bool {
    condition
}

/// Answers what the planner asks about `snowflake_plan.checked()`: it is true. Called by the
/// planner only.
#[pg_extern(
    schema = "snowflake_plan",
    sql = r#"
CREATE FUNCTION snowflake_plan.checked_support(request internal) RETURNS internal
IMMUTABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
"#
)]
fn snowflake_checked_support(request: Internal) -> Internal {
    let request = request.unwrap().expect("the function is strict");
    let node = request.cast_mut_ptr::<Node>();
    // SAFETY: only the planner can make an argument of type internal, and passes a node to a
    // support function. A node's type is what its tag says.
    let is_answered = unsafe {
        let is_selectivity = (*node).type_ == NodeTag::T_SupportRequestSelectivity;
        if is_selectivity {
            (*node.cast::<pg_sys::SupportRequestSelectivity>()).selectivity = 1.0;
        }
        is_selectivity
    };
    // A null pointer is "no answer". It is not an SQL NULL.
    Internal::from(Some(if is_answered { request } else { pg_sys::Datum::from(0) }))
}
