//! What `snowflake_partitions()` cannot do in PL/pgSQL (`sql/snowflake_id--VERSION.sql`): the locks
//! under which a partition is dropped. No `unsafe`.

use pgrx::Spi;
use pgrx::pg_sys::Oid;

use crate::error::Busy;
use crate::locks;
use crate::postgres::backend;

/// `$1` a table, `$2` a partition of it: the relations that PostgreSQL locks against all other
/// sessions when the partition is detached and dropped. These are both, the default partition,
/// the partition's own partitions, and the tables at the other end of a foreign key of one of
/// them. (`pg_partition_tree` would lock the partitions, and two callers would wait for each
/// other.) None if the caller does not own both, so that no role can lock what is not its own.
const RELATIONS: &str = "
WITH RECURSIVE tree (relid) AS (
    SELECT $2
  UNION
    SELECT inhrelid FROM tree JOIN pg_inherits ON inhparent = relid
)
SELECT DISTINCT rel
FROM (
    SELECT $1
  UNION ALL
    SELECT relid FROM tree
  UNION ALL
    SELECT partdefid FROM pg_partitioned_table WHERE partrelid = $1 AND partdefid <> 0
  UNION ALL
    SELECT conrelid FROM pg_constraint JOIN tree ON confrelid = relid WHERE contype = 'f'
  UNION ALL
    SELECT confrelid FROM pg_constraint JOIN tree ON conrelid = relid WHERE contype = 'f'
) AS locked (rel)
WHERE EXISTS (SELECT FROM pg_inherits WHERE inhparent = $1 AND inhrelid = $2)
      AND (SELECT bool_and(pg_has_role(relowner, 'USAGE')) FROM pg_class WHERE oid IN ($1, $2))
ORDER BY rel";

/// Locks all that the drop of a partition locks, at one moment, until the transaction ends. If the
/// caller does not own the partition and its table, it locks nothing, and leaves the error to
/// DETACH PARTITION.
///
/// # Errors
/// [`Busy`] when `lock_timeout` has passed.
pub fn lock_for_drop(table: Oid, partition: Oid) -> Result<(), Busy> {
    let find = || {
        backend::with_trusted_settings(|| {
            Spi::connect_mut(|client| {
                let rows = client.update(RELATIONS, None, &[table.into(), partition.into()]);
                let rows = rows.expect("PostgreSQL raises errors itself");
                Ok(rows.filter_map(|row| row.get(1).expect("the query has one column of oids")).collect::<Vec<Oid>>())
            })
        })
    };
    locks::lock_relations(find()?, find)
}
