//! A fleet for tests.

use snowflake_core::fleet::operate::new_fleet;
use snowflake_core::fleet::registry::{Fleet, Incarnation, NumberKey, NumberRecord, Reading, TagRecord};
use snowflake_core::fleet::segment::END;
use snowflake_core::fleet::tag::Tag;
use snowflake_core::id::layout::Layout;
use snowflake_registry::{Kind, MemberName};

use crate::view::View;

/// 2026-11-24 12:00:00Z.
pub const NOW_MS: i64 = 1_795_521_600_000;

pub const INCARNATION: Incarnation = Incarnation { store: 7_312_000_000_000_000_000, timeline: 3, counts: [0; 2] };

pub const TAG: TagRecord = TagRecord {
    id: 1,
    next: 4001,
    steps: (1000, 1_000_000),
    jumps: false,
    nonce: 5,
    generation: 3,
    written_ms: NOW_MS - 60_000,
    returnable: END,
};

pub fn fleet() -> Fleet {
    Fleet {
        layout: Some((Layout::parse("snowflake").unwrap().fingerprint(), false)),
        range: Some((0, 1023)),
        longest_ms: 600_000,
        skew_ms: 60_000,
        generation: 3,
        ..new_fleet(0x1b4e_28ba_2fa1_41d2_883f_0016_d3cc_a427, INCARNATION, 9)
    }
}

/// A lease that was renewed three seconds ago.
pub fn number(from_ms: i64, until_ms: i64) -> NumberRecord {
    NumberRecord {
        holder: 1,
        nonce: 2,
        count: 3,
        server: 4,
        from_ms,
        until_ms,
        generation: 3,
        renewed_ms: NOW_MS - 3000,
        offset_ms: 12,
    }
}

/// Two servers that run, a number that is free, and two tags.
pub fn reading() -> Reading {
    let held = number(NOW_MS - 86_400_000, NOW_MS + 597_000);
    Reading {
        fleet: fleet(),
        numbers: [
            (4, held),
            (5, NumberRecord { server: 5, holder: 2, offset_ms: -7, ..held }),
            (6, NumberRecord { server: 6, until_ms: NOW_MS - 1000, ..held }),
        ]
        .map(|(worker, record)| (NumberKey::new(None, worker), record))
        .into(),
        tags: [("invoices", TAG), ("parcels", TagRecord { id: 2, next: 1, jumps: true, ..TAG })]
            .map(|(name, record)| (Tag::new(name).unwrap(), record))
            .into(),
        incarnation: INCARNATION,
        now_ms: NOW_MS,
    }
}

/// The same with names.
pub fn view() -> View {
    let name = |host: &str| MemberName {
        host: host.to_owned(),
        port: 5432,
        cluster_name: "shop".to_owned(),
        version: "0.3.0".to_owned(),
    };
    let key = |worker| NumberKey::new(None, worker);
    View {
        fleet: "default".to_owned(),
        kind: Kind::Postgres,
        address: "host=r.example dbname=ids user=dba".to_owned(),
        reading: reading(),
        names: [(4, "a.example"), (5, "b.example"), (6, "c.example")]
            .map(|(worker, host)| (key(worker), name(host)))
            .into(),
        descriptions: [(Tag::new("invoices").unwrap(), "invoice numbers".to_owned())].into(),
    }
}
