//! What `snowflake_partitions()` cannot do in PL/pgSQL (`sql/snowflake_id--VERSION.sql`): the locks
//! under which a partition is made or dropped. No `unsafe`.

use pgrx::Spi;
use pgrx::datum::DatumWithOid;
use pgrx::pg_sys::Oid;
use pgrx::spi::SpiHeapTupleData;

use crate::error::Busy;
use crate::locks;
use crate::postgres::backend::{self, Lock};

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
SELECT DISTINCT rel, true
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

/// `$1` a table: the relations that PostgreSQL locks when a partition is attached, and whether also
/// against readers. These are the default partition with its partitions, and with theirs, the
/// tables at the other end of a foreign key. None if the caller does not own the table.
const RELATIONS_OF_NEW: &str = "
WITH RECURSIVE tree (relid, is_against_readers) AS (
    SELECT * FROM (
        SELECT partdefid, true FROM pg_partitioned_table WHERE partrelid = $1 AND partdefid <> 0
      UNION ALL
        SELECT CASE conrelid WHEN $1 THEN confrelid ELSE conrelid END, false
        FROM pg_constraint WHERE contype = 'f' AND $1 IN (conrelid, confrelid) AND conrelid <> confrelid
    ) AS root
  UNION
    SELECT inhrelid, is_against_readers FROM tree JOIN pg_inherits ON inhparent = relid
)
SELECT relid, bool_or(is_against_readers) FROM tree
WHERE (SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = $1)
GROUP BY relid
ORDER BY relid";

/// Locks all that the drop of a partition locks, at one moment, until the transaction ends. If the
/// caller does not own the partition and its table, it locks nothing, and leaves the error to
/// DETACH PARTITION.
///
/// # Errors
/// [`Busy`] when `lock_timeout` has passed.
pub fn lock_for_drop(table: Oid, partition: Oid) -> Result<(), Busy> {
    lock(RELATIONS, &[table.into(), partition.into()])
}

/// The same for a new partition, except for the table itself, which its sessions go on using.
///
/// # Errors
/// The same.
pub fn lock_for_new(table: Oid) -> Result<(), Busy> {
    lock(RELATIONS_OF_NEW, &[table.into()])
}

fn lock(relations: &str, arguments: &[DatumWithOid]) -> Result<(), Busy> {
    let find = || {
        backend::with_trusted_settings(|| {
            Spi::connect_mut(|client| {
                let rows = client.update(relations, None, arguments).expect("PostgreSQL raises errors itself");
                let lock = |row: SpiHeapTupleData| Lock {
                    relation: row.get(1).ok().flatten().expect("the query yields no NULL"),
                    is_against_readers: row.get(2).ok().flatten().expect("the query yields no NULL"),
                };
                Ok(rows.map(lock).collect::<Vec<_>>())
            })
        })
    };
    locks::lock_relations(find()?, find)
}
