//! Nodes of PostgreSQL's query trees: the functions that make and read them, declared plainly, and
//! small helpers over them.
//!
//! No function here is guarded (`pushdown.rs` says why), so their callers hold no value with a
//! destructor.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::{ptr, slice};

use pgrx::pg_sys::{self, AttrNumber, Expr, Index, List, Node, NodeTag, Oid};

unsafe extern "C-unwind" {
    // miscadmin.h
    pub(super) fn check_stack_depth();
    pub(super) fn GetUserId() -> Oid;
    // nodes
    pub(super) fn bms_equal(a: *const pg_sys::Bitmapset, b: *const pg_sys::Bitmapset) -> bool;
    pub(super) fn bms_is_member(x: c_int, a: *const pg_sys::Bitmapset) -> bool;
    pub(super) fn copyObjectImpl(from: *const c_void) -> *mut c_void;
    pub(super) fn equal(a: *const c_void, b: *const c_void) -> bool;
    pub(super) fn exprType(expr: *const Node) -> Oid;
    pub(super) fn lappend(list: *mut List, datum: *mut c_void) -> *mut List;
    pub(super) fn makeBoolConst(value: bool, isnull: bool) -> *mut Node;
    pub(super) fn makeBoolExpr(kind: pg_sys::BoolExprType::Type, args: *mut List, location: c_int) -> *mut Expr;
    pub(super) fn makeConst(
        consttype: Oid,
        consttypmod: i32,
        constcollid: Oid,
        constlen: c_int,
        constvalue: pg_sys::Datum,
        constisnull: bool,
        constbyval: bool,
    ) -> *mut pg_sys::Const;
    fn makeFuncExpr(
        funcid: Oid,
        rettype: Oid,
        args: *mut List,
        funccollid: Oid,
        inputcollid: Oid,
        fformat: pg_sys::CoercionForm::Type,
    ) -> *mut pg_sys::FuncExpr;
    pub(super) fn makeVar(
        varno: c_int,
        varattno: AttrNumber,
        vartype: Oid,
        vartypmod: i32,
        varcollid: Oid,
        varlevelsup: Index,
    ) -> *mut pg_sys::Var;
    pub(super) fn make_opclause(
        opno: Oid,
        opresulttype: Oid,
        opretset: bool,
        leftop: *mut Expr,
        rightop: *mut Expr,
        opcollid: Oid,
        inputcollid: Oid,
    ) -> *mut Expr;
    pub(super) fn set_opfuncid(opexpr: *mut pg_sys::OpExpr);
    pub(super) fn set_sa_opfuncid(opexpr: *mut pg_sys::ScalarArrayOpExpr);
    #[cfg_attr(not(feature = "pg15"), link_name = "expression_tree_walker_impl")]
    pub(super) fn expression_tree_walker(node: *mut Node, walker: Walker, context: *mut c_void) -> bool;
    #[cfg_attr(not(feature = "pg15"), link_name = "expression_tree_mutator_impl")]
    pub(super) fn expression_tree_mutator(node: *mut Node, mutator: Mutator, context: *mut c_void) -> *mut Node;
    pub(super) fn list_append_unique_oid(list: *mut List, datum: Oid) -> *mut List;
    // optimizer/planmain.h
    pub(super) fn record_plan_function_dependency(root: *mut pg_sys::PlannerInfo, funcid: Oid);
    // optimizer/clauses.h
    pub(super) fn contain_subplans(clause: *mut Node) -> bool;
    // optimizer/optimizer.h
    pub(super) fn contain_volatile_functions(clause: *mut Node) -> bool;
    pub(super) fn eval_const_expressions(root: *mut pg_sys::PlannerInfo, node: *mut Node) -> *mut Node;
    pub(super) fn pull_varnos(root: *mut pg_sys::PlannerInfo, node: *mut Node) -> *mut pg_sys::Bitmapset;
    pub(super) fn predicate_implied_by(predicate_list: *mut List, clause_list: *mut List, weak: bool) -> bool;
    // optimizer/paths.h
    pub(super) fn is_dummy_rel(rel: *mut pg_sys::RelOptInfo) -> bool;
    // optimizer/pathnode.h
    pub(super) fn add_path(parent_rel: *mut pg_sys::RelOptInfo, new_path: *mut pg_sys::Path);
    pub(super) fn create_index_path(
        root: *mut pg_sys::PlannerInfo,
        index: *mut pg_sys::IndexOptInfo,
        indexclauses: *mut List,
        indexorderbys: *mut List,
        indexorderbycols: *mut List,
        pathkeys: *mut List,
        indexscandir: pg_sys::ScanDirection::Type,
        indexonly: bool,
        required_outer: pg_sys::Relids,
        loop_count: f64,
        partial_path: bool,
    ) -> *mut pg_sys::IndexPath;
    // utils/array.h, fmgr.h
    pub(super) fn deconstruct_array(
        array: *mut pg_sys::ArrayType,
        elmtype: Oid,
        elmlen: c_int,
        elmbyval: bool,
        elmalign: c_char,
        elemsp: *mut *mut pg_sys::Datum,
        nullsp: *mut *mut bool,
        nelemsp: *mut c_int,
    );
    // utils/builtins.h
    fn cstring_to_text(s: *const c_char) -> *mut pg_sys::text;
    pub(super) fn pg_detoast_datum(datum: *mut pg_sys::varlena) -> *mut pg_sys::varlena;
    // utils/lsyscache.h
    pub(super) fn get_opcode(opno: Oid) -> pg_sys::RegProcedure;
    // utils/palloc.h
    pub(super) fn palloc(size: usize) -> *mut c_void;
    pub(super) fn pfree(pointer: *mut c_void);
    fn palloc0(size: usize) -> *mut c_void;
    // utils/acl.h
    #[cfg(feature = "pg15")]
    pub(super) fn pg_proc_aclcheck(proc_oid: Oid, roleid: Oid, mode: pg_sys::AclMode) -> pg_sys::AclResult::Type;
    #[cfg(not(feature = "pg15"))]
    pub(super) fn object_aclcheck(
        classid: Oid,
        objectid: Oid,
        roleid: Oid,
        mode: pg_sys::AclMode,
    ) -> pg_sys::AclResult::Type;
}

pub(super) type Walker = unsafe extern "C-unwind" fn(*mut Node, *mut c_void) -> bool;
pub(super) type Mutator = unsafe extern "C-unwind" fn(*mut Node, *mut c_void) -> *mut Node;

/// An operator of bigint: its oid in catalog/pg_operator.dat, and that of its function.
#[derive(Clone, Copy)]
pub(super) struct Operator(u32, u32);

pub(super) const INT8_LESS: Operator = Operator(412, pg_sys::F_INT8LT);
pub(super) const INT8_GREATER: Operator = Operator(413, pg_sys::F_INT8GT);
pub(super) const INT8_LESS_OR_EQUAL: Operator = Operator(414, pg_sys::F_INT8LE);
pub(super) const INT8_GREATER_OR_EQUAL: Operator = Operator(415, pg_sys::F_INT8GE);

pub(super) unsafe fn compare(id: *mut Node, Operator(operator, function): Operator, bound: *mut Node) -> *mut Node {
    let none = pg_sys::InvalidOid;
    // SAFETY: two expressions of type bigint, and an operator of bigint.
    unsafe {
        let clause = make_opclause(operator.into(), pg_sys::BOOLOID, false, id.cast(), bound.cast(), none, none);
        (*clause.cast::<pg_sys::OpExpr>()).opfuncid = function.into();
        clause.cast()
    }
}

/// Makes a call of a function with those arguments that are not null, and their collation. The
/// result has none.
pub(super) unsafe fn make_call(function: Oid, result: Oid, arguments: &[*mut Node], collation: Oid) -> *mut Node {
    let explicit = pg_sys::CoercionForm::COERCE_EXPLICIT_CALL;
    // SAFETY: expressions of the types that the function takes.
    unsafe {
        let arguments = arguments.iter().filter(|argument| !argument.is_null());
        let list = arguments.fold(ptr::null_mut(), |list, argument| lappend(list, argument.cast()));
        makeFuncExpr(function, result, list, pg_sys::InvalidOid, collation, explicit).cast()
    }
}

pub(super) unsafe fn number(value: i64) -> *mut Node {
    // SAFETY: a bigint has eight bytes and is passed by value.
    unsafe { makeConst(pg_sys::INT8OID, -1, pg_sys::InvalidOid, 8, value.into(), false, true).cast() }
}

pub(super) unsafe fn null_number() -> *mut Node {
    // SAFETY: as above.
    unsafe { makeConst(pg_sys::INT8OID, -1, pg_sys::InvalidOid, 8, 0.into(), true, true).cast() }
}

pub(super) unsafe fn text(value: &CStr) -> *mut Node {
    let collation = pg_sys::DEFAULT_COLLATION_OID;
    // SAFETY: a text, of variable length, in the planner's memory.
    unsafe {
        let datum = pg_sys::Datum::from(cstring_to_text(value.as_ptr()));
        makeConst(pg_sys::TEXTOID, -1, collation, -1, datum, false, false).cast()
    }
}

/// Makes a node of a tag, whose other fields are zero.
#[allow(non_snake_case, reason = "PostgreSQL's name")]
pub(super) unsafe fn makeNode<T>(tag: NodeTag) -> *mut T {
    // SAFETY: the caller names the tag of the type, which begins with it.
    unsafe {
        let node = palloc0(size_of::<T>()).cast::<T>();
        (*node.cast::<Node>()).type_ = tag;
        node
    }
}

#[inline(never)]
pub(super) unsafe fn list_of(cells: &[pg_sys::ListCell]) -> *mut List {
    // SAFETY: cells of a list of nodes.
    unsafe { cells.iter().fold(ptr::null_mut(), |list, cell| lappend(list, cell.ptr_value)) }
}

/// Returns the expression inside a placeholder, which marks what came out of a subquery; else the
/// same expression.
pub(super) unsafe fn without_placeholder(expression: *mut Node) -> *mut Node {
    // SAFETY: a node's type is what its tag says.
    unsafe {
        let placeholder = expression.cast::<pg_sys::PlaceHolderVar>();
        if (*expression).type_ == NodeTag::T_PlaceHolderVar { (*placeholder).phexpr.cast() } else { expression }
    }
}

/// Removes the relabeling of a domain over bigint; else returns the same expression.
pub(super) unsafe fn without_relabeling(mut expression: *mut Node) -> *mut Node {
    // SAFETY: a node's type is what its tag says.
    unsafe {
        while (*expression).type_ == NodeTag::T_RelabelType {
            expression = (*expression.cast::<pg_sys::RelabelType>()).arg.cast();
        }
    }
    expression
}

/// Returns whether an expression is a column (perhaps of a domain) of a range table entry.
pub(super) unsafe fn is_column(expression: *mut Node, relid: Index) -> bool {
    // SAFETY: a node's type is what its tag says.
    unsafe {
        let expression = without_relabeling(expression);
        let var = expression.cast::<pg_sys::Var>();
        (*expression).type_ == NodeTag::T_Var && (*var).varno == relid as c_int && (*var).varlevelsup == 0
    }
}

/// Returns a list's cells; none if it is null.
pub(super) unsafe fn cells<'a>(list: *const List) -> &'a [pg_sys::ListCell] {
    // SAFETY: a list of the query's tree has `length` cells, which are not written to meanwhile.
    unsafe {
        match list.as_ref() {
            None => &[],
            Some(list) => slice::from_raw_parts(list.elements, list.length as usize),
        }
    }
}
