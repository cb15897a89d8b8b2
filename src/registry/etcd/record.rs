//! Records in etcd: one line of `name=value` each, so that an operator can read and edit them with
//! etcdctl and a shell alone. Values have no spaces ([`encoded`]).

use std::collections::BTreeMap;
use std::str::FromStr;

use snowflake_core::registry::{Fleet, Incarnation, NumberRecord};
use snowflake_core::segment::{self, END, LONGEST_BLOCK};

use super::address::encoded;
use crate::config::MemberName;

/// A record's values by their names.
pub(crate) struct Fields<'a>(BTreeMap<&'a str, &'a str>);

/// What is wrong with a record.
pub(crate) type Wrong = String;

impl<'a> Fields<'a> {
    pub fn parse(text: &'a str) -> Result<Self, Wrong> {
        let pairs = text.split_ascii_whitespace().map(|pair| pair.split_once('=').ok_or_else(|| pair.to_owned()));
        Ok(Self(pairs.collect::<Result<_, _>>()?))
    }

    /// Returns a value; `None` if the record does not have it.
    fn maybe<T>(&self, name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, Wrong> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        parse(value).map(Some).ok_or_else(|| format!("{name}={value}"))
    }

    fn number<T: FromStr>(&self, name: &str) -> Result<T, Wrong> {
        self.maybe(name, |value| value.parse().ok())?.ok_or_else(|| format!("no {name}"))
    }

    fn number_or<T: FromStr>(&self, name: &str, default: T) -> Result<T, Wrong> {
        Ok(self.maybe(name, |value| value.parse().ok())?.unwrap_or(default))
    }

    fn uuid(&self, name: &str) -> Result<u128, Wrong> {
        let parse = |value: &str| u128::from_str_radix(&value.replace('-', ""), 16).ok();
        self.maybe(name, parse)?.ok_or_else(|| format!("no {name}"))
    }
}

fn pair<A: FromStr, B: FromStr>(text: &str, between: &str) -> Option<(A, B)> {
    let (first, second) = text.split_once(between)?;
    Some((first.parse().ok()?, second.parse().ok()?))
}

/// The version of this form.
const FORMAT: i64 = crate::VERSION;

/// Understands the fleet's record. Only `uuid` must be there: an operator makes a fleet by that
/// alone. What is missing is not known yet. A record without a `store` was written under `now`.
pub(crate) fn fleet(text: &str, now: Incarnation) -> Result<Result<Fleet, i64>, Wrong> {
    let fields = Fields::parse(text)?;
    let format = fields.number_or("format", FORMAT)?;
    if format != FORMAT {
        return Ok(Err(format));
    }
    let incarnation = match fields.maybe("store", |value| value.parse().ok())? {
        Some(store) => {
            let counts = [fields.number_or("term", 0)?, fields.number_or("unseen", 0)?];
            Incarnation { store, timeline: 0, counts }
        }
        None => now,
    };
    Ok(Ok(Fleet {
        uuid: fields.uuid("uuid")?,
        layout: fields.maybe("layout", |value| pair(value, "/"))?,
        range: fields.maybe("range", |value| pair(value, "-"))?,
        // A failover of etcd loses nothing, and shows no other timeline. etcd does not tell since
        // when it is up, as a grace would need.
        loses_nothing: false,
        grace_ms: 0,
        closed: fields.number_or("closed", false)?,
        longest_ms: fields.number_or("longest_ms", 0)?,
        skew_ms: fields.number_or("skew_ms", 0)?,
        lease_ms: fields.number_or("lease_ms", 0)?,
        clock_skew_ms: fields.number_or("clock_skew_ms", 0)?,
        incarnation,
        generation: fields.number_or("generation", 1)?,
        horizon_ms: fields.number_or("horizon_ms", i64::MIN)?,
        freeze_ms: fields.number_or("freeze_ms", i64::MIN)?,
        version: fields.number_or("version", 0)?,
    }))
}

/// Writes the fleet's record.
pub(crate) fn fleet_text(fleet: &Fleet) -> String {
    let Fleet { uuid, closed, longest_ms, skew_ms, lease_ms, clock_skew_ms, .. } = fleet;
    let Fleet { generation, horizon_ms, freeze_ms, version, .. } = fleet;
    let Incarnation { store, counts: [term, unseen], .. } = fleet.incarnation;
    let layout = fleet.layout.map(|(layout, backup)| format!(" layout={layout}/{backup}")).unwrap_or_default();
    let range = fleet.range.map(|(first, last)| format!(" range={first}-{last}")).unwrap_or_default();
    format!(
        "format={FORMAT} uuid={uuid:032x}{layout}{range} closed={closed} longest_ms={longest_ms} skew_ms={skew_ms} \
         lease_ms={lease_ms} clock_skew_ms={clock_skew_ms} store={store} term={term} unseen={unseen} generation={generation} horizon_ms={horizon_ms} \
         freeze_ms={freeze_ms} version={version}"
    )
}

/// Understands a number's record.
pub(crate) fn number(text: &str) -> Result<NumberRecord, Wrong> {
    let fields = Fields::parse(text)?;
    Ok(NumberRecord {
        holder: fields.uuid("holder")?,
        nonce: fields.number("nonce")?,
        count: fields.number("count")?,
        server: fields.number("server")?,
        from_ms: fields.number("from_ms")?,
        until_ms: fields.number("until_ms")?,
        generation: fields.number("generation")?,
        renewed_ms: fields.number("renewed_ms")?,
        offset_ms: fields.number("offset_ms")?,
    })
}

/// Writes a number's record, with what operators know its holder by.
pub(crate) fn number_text(record: &NumberRecord, member: &MemberName) -> String {
    let NumberRecord { holder, nonce, count, server, from_ms, until_ms, generation, renewed_ms, offset_ms } = record;
    let (host, port, version) = (encoded(&member.host), member.port, encoded(&member.version));
    let cluster_name = encoded(&member.cluster_name);
    format!(
        "host={host} port={port} cluster_name={cluster_name} version={version} from_ms={from_ms} \
         until_ms={until_ms} generation={generation} renewed_ms={renewed_ms} offset_ms={offset_ms} \
         server={server} count={count} holder={holder:032x} nonce={nonce}"
    )
}

/// What a tag's record is when an operator has left it out, as in `registry.sql`.
const STEPS: (u32, u32) = (1000, 1_000_000);

/// Understands a tag's record. `jump` counts greatest steps, or is `none`.
pub(crate) fn tag(text: &str) -> Result<segment::TagRecord, Wrong> {
    let fields = Fields::parse(text)?;
    let step = |name: &str, default: u32| -> Result<u32, Wrong> {
        let step = fields.number_or(name, default)?;
        if (1..=LONGEST_BLOCK).contains(&step) { Ok(step) } else { Err(format!("{name}={step}")) }
    };
    let steps = (step("least_step", STEPS.0)?, step("greatest_step", STEPS.1)?);
    let jump = match fields.0.get("jump") {
        None | Some(&"none") => None,
        Some(_) => Some(fields.number::<i64>("jump")?),
    };
    if let Some(wrong) = jump.filter(|jump| *jump < 1) {
        return Err(format!("jump={wrong}"));
    }
    Ok(segment::TagRecord {
        id: fields.number("id")?,
        next: fields.number("next_value")?,
        steps,
        jump: jump.map(|jump| jump.saturating_mul(i64::from(steps.1))),
        nonce: fields.number("nonce")?,
        generation: fields.number("generation")?,
        returnable: fields.number_or("returnable_from", END)?,
    })
}

/// Writes what has changed in a tag's record, at a time in milliseconds since 1970. All else stays.
pub(crate) fn tag_text(text: &str, new: &segment::TagRecord, now_ms: i64) -> String {
    let is_kept = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default();
        !["next_value", "nonce", "generation", "written_ms", "returnable_from"].contains(&name)
    };
    let mut pairs: Vec<_> = text.split_ascii_whitespace().filter(is_kept).map(str::to_owned).collect();
    let segment::TagRecord { next, nonce, generation, returnable, .. } = new;
    pairs.push(format!(
        "next_value={next} nonce={nonce} generation={generation} returnable_from={returnable} written_ms={now_ms}"
    ));
    pairs.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Incarnation = Incarnation { store: 7, timeline: 0, counts: [2, 5] };

    #[test]
    fn a_fleet_is_made_by_its_uuid_alone() {
        let made = fleet("uuid=1b4e28ba-2fa1-41d2-883f-0016d3cca427", NOW).unwrap().unwrap();
        assert_eq!(made.uuid, 0x1b4e_28ba_2fa1_41d2_883f_0016_d3cc_a427);
        assert_eq!((made.layout, made.range, made.incarnation, made.generation), (None, None, NOW, 1));
        assert_eq!(fleet("format=2 uuid=1", NOW).unwrap(), Err(2));
        for wrong in ["", "layout=1/true", "uuid=x", "uuid", "uuid=1 range=5", "uuid=1 closed=yes", "uuid=1 store=x"] {
            assert!(fleet(wrong, NOW).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_tag_is_read_and_only_what_has_changed_is_written() {
        let text = "least_step=5 greatest_step=50 jump=3 description=a%20b id=1 next_value=-7 nonce=2 generation=4";
        let read = tag(text).unwrap();
        let wanted = segment::TagRecord {
            id: 1,
            next: -7,
            steps: (5, 50),
            jump: Some(150),
            nonce: 2,
            generation: 4,
            returnable: END,
        };
        assert_eq!(read, wanted);
        let new = segment::TagRecord { next: 43, nonce: u64::MAX, generation: 5, returnable: -7, ..read };
        let written = tag_text(text, &new, 9);
        assert_eq!(tag(&written), Ok(new));
        assert!(written.contains("description=a%20b") && written.ends_with(" written_ms=9"), "{written}");
        assert_eq!(tag_text(&written, &new, 9), written);
        let bare = "id=1 next_value=1 nonce=2 generation=1";
        assert_eq!(tag(bare).map(|tag| (tag.steps, tag.jump)), Ok(((1000, 1_000_000), None)));
        assert_eq!(tag(&format!("{bare} jump=none")).map(|tag| tag.jump), Ok(None));
        assert_eq!(tag(&format!("{bare} jump=7")).map(|tag| tag.jump), Ok(Some(7_000_000)));
        for wrong in ["least_step=0", "greatest_step=10000001", "jump=0", "jump=x", "next_value=9e9"] {
            let name = wrong.split('=').next().unwrap();
            assert!(tag(&format!("{bare} {wrong}")).unwrap_err().starts_with(name), "{wrong}");
        }
        for lacks in ["id=1", "next_value=1", "nonce=2", "generation=1"] {
            assert!(tag(&bare.replace(lacks, "")).is_err(), "{lacks}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let full = Fleet {
            uuid: u128::MAX,
            layout: Some((-5, true)),
            range: Some((0, 1023)),
            loses_nothing: false,
            closed: true,
            longest_ms: 1,
            skew_ms: 2,
            lease_ms: 3,
            clock_skew_ms: 4,
            grace_ms: 0,
            incarnation: Incarnation { store: u64::MAX, ..NOW },
            generation: 3,
            horizon_ms: i64::MIN,
            freeze_ms: i64::MAX,
            version: 9,
        };
        let other = Incarnation { store: 1, ..NOW };
        assert_eq!(fleet(&fleet_text(&full), other), Ok(Ok(full)));
        let bare = Fleet { layout: None, range: None, closed: false, ..full };
        assert_eq!(fleet(&fleet_text(&bare), other), Ok(Ok(bare)));
        let record = NumberRecord {
            holder: 1,
            nonce: u64::MAX,
            count: 2,
            server: 3,
            from_ms: -4,
            until_ms: 5,
            generation: 6,
            renewed_ms: 7,
            offset_ms: -8,
        };
        let member =
            MemberName { host: "a b=c\n".to_owned(), port: 1, cluster_name: "ü".to_owned(), version: String::new() };
        assert_eq!(number(&number_text(&record, &member)), Ok(record));
    }
}
