//! The SQL edition reads and makes the same ids as the extension, and refuses the same calls in the
//! same words: published ids, every refusal, and random layouts, ids, instants and texts.
//!
//! One server has both, each in a schema of its own. A call is written with `@` for the schema, and
//! runs in both. PostgreSQL 13 and 14 have the edition alone, which gives the same.

use cluster::{Draw, Edition, Refusal, Server, refused, runs_extension, skip};
use postgres::Client;
use snowflake_core::clock::Utc;
use snowflake_core::id::layout::{BUILT_IN, Layout};

use crate::random::Random;

/// The schemas of the extension and of the edition.
const BOTH: [&str; 2] = ["extension", "edition"];

/// Starts a server with both, and connects to it.
fn start() -> (Server, Client) {
    let server = if runs_extension() { Server::drawing() } else { Server::builder().without_preload() };
    let server = server.config("timezone", "UTC").start();
    let mut session = server.connect();
    if runs_extension() {
        session.batch_execute("CREATE SCHEMA extension; CREATE EXTENSION snowflake_id SCHEMA extension").unwrap();
    }
    session.install_edition("edition", "worker_id => 5");
    session.batch_execute("RESET search_path").unwrap();
    (server, session)
}

/// Writes a call for each schema.
fn calls(call: &str) -> impl Iterator<Item = String> {
    let there = if runs_extension() { &BOTH[..] } else { &BOTH[1..] };
    there.iter().map(move |schema| call.replace('@', &format!("{schema}.")))
}

/// Returns what the edition says, and the extension as well, if it is there.
#[track_caller]
fn of_all<T: PartialEq + std::fmt::Debug>(call: &str, said: impl Iterator<Item = T>) -> T {
    let mut said: Vec<T> = said.collect();
    let edition = said.pop().expect("the edition is there");
    assert!(said.iter().all(|extension| *extension == edition), "{call}: {edition:?}, and the extension {said:?}");
    edition
}

/// Returns what a call returns in both, as text.
#[track_caller]
fn returned(session: &mut Client, call: &str) -> String {
    of_all(call, calls(call).map(|call| session.value(&format!("SELECT {call}"))))
}

/// Returns how a call is refused by both.
#[track_caller]
fn refusal(session: &mut Client, call: &str) -> Refusal {
    of_all(call, calls(call).map(|call| refused(session.batch_execute(&format!("SELECT {call}")))))
}

/// Writes an SQL literal.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[test]
fn published_ids_are_read_and_composed_as_by_the_extension() {
    let (_server, mut session) = start();
    let mut rows = 0;
    for row in include_str!("../../../../src/core/tests/vectors.tsv").lines().filter(|row| !row.starts_with('#')) {
        let cells: Vec<&str> = row.split('\t').collect();
        let [id, layout, created_at, datacenter, worker, sequence, source] = cells[..] else { panic!("{row}") };
        let layout = literal(layout);
        let part =
            |session: &mut Client, part: &str| returned(session, &format!("(@snowflake_parse({id}, {layout})).{part}"));
        for (name, said) in [("datacenter_id", datacenter), ("worker_id", worker), ("sequence", sequence)] {
            let read = part(&mut session, name);
            assert!(said == "-" || read == said, "{row}: {read}");
        }
        let format = returned(&mut session, &format!("@snowflake_format({id}, {layout})"));
        let digits = if source.contains("to the second") { 19 } else { created_at.trim_end_matches('Z').len() };
        assert_eq!(format[..digits], created_at[..digits], "{row}");
        let time = returned(&mut session, &format!("@snowflake_timestamp({id}, {layout})"));
        let [worker, datacenter, sequence] =
            ["worker_id", "datacenter_id", "sequence"].map(|name| part(&mut session, name).replace("NULL", "0"));
        let call = format!("@snowflake_compose('{time}', {worker}, {sequence}, {datacenter}, {layout})");
        assert_eq!(returned(&mut session, &call), id, "{row}");
        rows += 1;
    }
    assert!(rows >= 10, "{rows} rows");
}

#[test]
fn published_texts_are_read_and_written_as_by_the_extension() {
    let (_server, mut session) = start();
    let mut rows = 0;
    for row in include_str!("../../../../src/core/tests/encodings.tsv").lines().filter(|row| !row.starts_with('#')) {
        let cells: Vec<&str> = row.split('\t').collect();
        let [number, encoding, text, _source] = cells[..] else { panic!("{row}") };
        let padded = format!("{text:0>width$}", width = if encoding == "base32" { 13 } else { 11 });
        assert_eq!(returned(&mut session, &format!("@snowflake_decode('{padded}', '{encoding}')")), number, "{row}");
        let written = if encoding == "base32" { padded.to_uppercase() } else { padded };
        assert_eq!(returned(&mut session, &format!("@snowflake_encode({number}, '{encoding}')")), written, "{row}");
        rows += 1;
    }
    assert!(rows >= 10, "{rows} rows");
}

/// Calls, and what they return.
const RETURNED: [(&str, &str); 35] = [
    ("@snowflake_format(1541815603606036480, 'twitter')", "2022-06-28T16:07:40.105Z #0 @(11,26)"),
    ("@snowflake_format(249489561523081219)", "2026-11-20T11:02:26.759Z #3 @(5)"),
    ("@snowflake_format(101767036616676231, 'mastodon')", "2019-03-17T16:55:45.249Z #37767"),
    ("@snowflake_format(0, 'time:41 sequence:22 unit:1ms epoch:0001-01-01T00:00:00Z')", "0001-01-01T00:00:00.000Z #0"),
    ("@snowflake_timestamp(249489561523081219)", "2026-11-20 11:02:26.759+00"),
    ("@snowflake_timestamp(9223372036854775807, 'mastodon')", "6429-10-17 02:45:55.327+00"),
    (
        "@snowflake_timestamp(9223372036854775807, 'time:52 sequence:11 unit:1ms epoch:9999-12-31T23:59:59.999Z')",
        "152713-05-23 16:29:30.494+00",
    ),
    ("(@snowflake_parse(249489561523081219)).tick", "59482946759"),
    ("@snowflake_compose('2026-11-20 09:28:48.22Z', 5, 17)", "249465995662479377"),
    ("@snowflake_compose('2026-11-20 09:28:48.220999Z', 5, 17)", "249465995662479377"),
    ("@snowflake_compose('2026-11-20 09:28:48.22Z', 5, 17, 0)", "249465995662479377"),
    ("@snowflake_compose('2022-06-28 16:07:40.105Z', 26, 0, 11, 'twitter')", "1541815603606036480"),
    ("@snowflake_min('2025-01-01Z')", "0"),
    ("@snowflake_min('2025-01-01 00:00:00.000001Z', 'snowflake')", "4194304"),
    ("@snowflake_min('2155-02-07 06:28:15Z', 'js53')", "9007199252643840"),
    ("@snowflake_from('2025-01-01Z', 'snowflake')", "0"),
    ("@snowflake_after('2025-01-01Z', 'snowflake')", "4194304"),
    ("@snowflake_before('2025-01-01Z', 'snowflake')", "-1"),
    ("@snowflake_until('2025-01-01Z', 'snowflake')", "4194303"),
    ("@snowflake_from('infinity', 'snowflake')", "NULL"),
    ("@snowflake_until('infinity', 'snowflake')", "9223372036854775807"),
    ("@snowflake_after('-infinity', 'snowflake')", "0"),
    ("@snowflake_before('2026-01-01', 'twiter')", "NULL"),
    ("@snowflake_encode(249498276909305860, 'base32')", "06XK5BHKM0M04"),
    ("@snowflake_encode(9223372036854775807, 'base62')", "AzL8n0Y58m7"),
    ("@snowflake_decode('7zzzzzzzzzzzz', 'base32')", "9223372036854775807"),
    ("@snowflake_decode('AzL8n0Y58m7', 'base62')", "9223372036854775807"),
    ("@snowflake_decode('06xk-5bhk-momo4', 'base32')", "249498276909305860"),
    ("@snowflake_decode('-0-00000-0000-I-Lo-', 'base32')", "1056"),
    ("@snowflake_decode(repeat('-', 100000) || '0000000000001', 'base32')", "1"),
    (
        "(SELECT string_agg(f::text, ' ') FROM @snowflake_layout_fields() f)",
        "(time,41,22,0,2199023255551) (worker,10,12,0,1023) (sequence,12,0,0,4095)",
    ),
    ("(SELECT string_agg(l::text, '; ') FROM @snowflake_layouts l WHERE name <> 'snowflake') ~ 'current'", "true"),
    ("(SELECT count(*) FROM @snowflake_layouts())", "14"),
    ("(SELECT p.* IS NULL FROM @snowflake_parse(NULL) p)", "true"),
    (
        "num_nulls(@snowflake_timestamp(NULL), @snowflake_timestamp(1, NULL), @snowflake_format(NULL), @snowflake_compose(NULL, 1, 1), @snowflake_min(NULL, 'snowflake'), @snowflake_encode(NULL, 'base32'), @snowflake_decode('1', NULL))",
        "7",
    ),
];

#[test]
fn the_same_calls_return_the_same() {
    let (_server, mut session) = start();
    for (call, expected) in RETURNED {
        assert_eq!(returned(&mut session, call), expected, "{call}");
    }
    // The whole view.
    returned(&mut session, "(SELECT string_agg(l::text, E'\\n') FROM @snowflake_layouts l)");
    for (name, line) in BUILT_IN {
        let [by_name, by_line] = [name, line].map(|layout| {
            returned(
                &mut session,
                &format!("(SELECT string_agg(f::text, ' ') FROM @snowflake_layout_fields('{layout}') f)"),
            )
        });
        assert_eq!(by_name, by_line);
    }
}

/// Calls that are refused, with SQLSTATE and message.
const REFUSED: [(&str, &str, &str); 62] = [
    ("@snowflake_last()", "55000", "no id has been drawn in this session yet"),
    ("@snowflake_parse(-1)", "22023", "id -1 is outside the layout's range 0..9223372036854775807"),
    ("@snowflake_timestamp(-1)", "22023", "id -1 is outside the layout's range 0..9223372036854775807"),
    ("@snowflake_format(-1)", "22023", "id -1 is outside the layout's range 0..9223372036854775807"),
    (
        "@snowflake_parse(9007199254740992, 'js53')",
        "22023",
        "id 9007199254740992 is outside the layout's range 0..9007199254740991",
    ),
    (
        "@snowflake_timestamp(9007199254740992, 'js53')",
        "22023",
        "id 9007199254740992 is outside the layout's range 0..9007199254740991",
    ),
    ("@snowflake_parse(1, '')", "22023", "layout is empty"),
    ("@snowflake_parse(1, 'twiter')", "22023", "unknown layout \"twiter\""),
    ("@snowflake_timestamp(1, 'Twitter')", "22023", "unknown layout \"Twitter\""),
    ("@snowflake_format(1, 'twitter js53')", "22023", "layout word \"twitter\" is not of the form name:value"),
    ("@snowflake_layout_fields('time:41')", "22023", "layout has no \"sequence\""),
    ("@snowflake_parse(1, 'time:41 worker:10 sequence:12')", "22023", "layout has no \"unit\""),
    ("@snowflake_parse(1, 'time:41 worker:10 sequence:12 unit:1ms')", "22023", "layout has no \"epoch\""),
    ("@snowflake_parse(1, 'unit:1ms')", "22023", "layout has no \"time\""),
    ("@snowflake_parse(1, ':')", "22023", "unknown layout field \":\""),
    ("@snowflake_parse(1, 'time: sequence:1')", "22023", "width in layout word \"time:\" is outside the range 1..62"),
    (
        "@snowflake_parse(1, 'time:0 sequence:12')",
        "22023",
        "width in layout word \"time:0\" is outside the range 1..62",
    ),
    (
        "@snowflake_parse(1, 'time:+4 sequence:12')",
        "22023",
        "width in layout word \"time:+4\" is outside the range 1..62",
    ),
    (
        "@snowflake_parse(1, 'time:41 sequence:32')",
        "22023",
        "width in layout word \"sequence:32\" is outside the range 1..31",
    ),
    (
        "@snowflake_parse(1, 'time:41 sequence:' || repeat('9', 100))",
        "22023",
        "width in layout word \"sequence:9999999999999999999999999999999...\" is outside the range 1..31",
    ),
    ("@snowflake_parse(1, 'time:41 machine:10')", "22023", "unknown layout field \"machine:10\""),
    ("@snowflake_parse(1, 'time:41 worker:5 worker:6')", "22023", "layout word \"worker:6\" repeats a field"),
    ("@snowflake_parse(1, 'time:41 unit:1s unit:1s')", "22023", "layout word \"unit:1s\" repeats a field"),
    (
        "@snowflake_parse(1, 'worker:10 time:41')",
        "22023",
        "layout word \"worker:10\" comes before \"time\", which must be the first field",
    ),
    (
        "@snowflake_parse(1, 'time:41 sequence:12 unit:2ms')",
        "22023",
        "unit in layout word \"unit:2ms\" is not one of 1ms, 10ms, 100ms, 1s",
    ),
    (
        "@snowflake_parse(1, 'time:41 unit:1ms sequence:12')",
        "22023",
        "layout word \"sequence:12\" is out of order: fields come first, then unit, then epoch",
    ),
    (
        "@snowflake_parse(1, 'time:41 epoch:2025-01-01T00:00:00Z unit:1s')",
        "22023",
        "layout word \"unit:1s\" is out of order: fields come first, then unit, then epoch",
    ),
    (
        "@snowflake_parse(1, 'time:41 sequence:12 unit:1ms epoch:2025-01-01')",
        "22023",
        "epoch in layout word \"epoch:2025-01-01\" is not an instant in the years 0001 to 9999",
    ),
    (
        "@snowflake_parse(1, 'time:41 sequence:12 unit:1ms epoch:2025-02-29T00:00:00Z')",
        "22023",
        "epoch in layout word \"epoch:2025-02-29T00:00:00Z\" is not an instant in the years 0001 to 9999",
    ),
    (
        "@snowflake_parse(1, 'time:41 sequence:12 unit:1ms epoch:2025-01-01T00:00:00')",
        "22023",
        "epoch in layout word \"epoch:2025-01-01T00:00:00\" has no time zone",
    ),
    (
        "@snowflake_parse(1, 'time:41 worker:11 sequence:12 unit:1ms epoch:2025-01-01T00:00:00Z')",
        "22023",
        "layout fields add up to 64 bits, which exceeds the limit of 63",
    ),
    (
        "@snowflake_parse(1, 'time:60 sequence:2 unit:1s epoch:2025-01-01T00:00:00Z')",
        "22023",
        "layout word \"time:60\" reaches beyond the last instant of timestamptz",
    ),
    ("@snowflake_parse(1, repeat('x', 300))", "22023", "layout has 300 bytes, which exceeds the limit of 256"),
    ("@snowflake_parse(1, U&'\\0442\\0438\\043A')", "22023", "unknown layout \"тик\""),
    ("@snowflake_compose(now(), 1024, 0)", "22023", "worker 1024 is outside the layout's range 0..1023"),
    ("@snowflake_compose(now(), -1, 0)", "22023", "worker -1 is outside the layout's range 0..1023"),
    ("@snowflake_compose(now(), 1, 4096)", "22023", "sequence 4096 is outside the layout's range 0..4095"),
    ("@snowflake_compose(now(), 1, 1, 1)", "22023", "datacenter 1 is given, but the layout has no datacenter field"),
    ("@snowflake_compose(now(), 1, 1, 32, 'twitter')", "22023", "datacenter 32 is outside the layout's range 0..31"),
    (
        "@snowflake_compose(now(), 1, 1, 0, 'mastodon')",
        "22023",
        "worker 1 is given, but the layout has no worker field",
    ),
    (
        "@snowflake_compose('2024-12-31 23:59:59.999Z', 1, 1)",
        "22008",
        "time 2024-12-31T23:59:59.999Z is outside the layout's range",
    ),
    (
        "@snowflake_compose('2094-09-07 15:47:35.552Z', 1, 1)",
        "22008",
        "time 2094-09-07T15:47:35.552Z is outside the layout's range",
    ),
    ("@snowflake_compose('infinity', 1, 1)", "22008", "an infinite time is outside the layout's range"),
    (
        "@snowflake_compose('4713-01-01 BC', 1, 1)",
        "22008",
        "time -4712-01-01T00:00:00.000Z is outside the layout's range",
    ),
    (
        "@snowflake_compose('294276-12-31 23:59:59.999999Z', 1, 1)",
        "22008",
        "time 294276-12-31T23:59:59.999Z is outside the layout's range",
    ),
    ("@snowflake_batch(-1)", "22023", "count -1 is outside the range 0..2147483647"),
    (
        "@snowflake_min('2024-12-31 23:59:59.999999Z')",
        "22008",
        "time 2024-12-31T23:59:59.999Z is outside the layout's range",
    ),
    ("@snowflake_min('-infinity')", "22008", "an infinite time is outside the layout's range"),
    (
        "@snowflake_min('2155-02-07 06:28:15.000001Z', 'js53')",
        "22008",
        "time 2155-02-07T06:28:15.001Z is outside the layout's range",
    ),
    (
        "@snowflake_min('294276-12-31 23:59:59.999999Z')",
        "22008",
        "time 294277-01-01T00:00:00.000Z is outside the layout's range",
    ),
    ("@snowflake_min('2026-01-01Z', 'twiter')", "22023", "unknown layout \"twiter\""),
    ("@snowflake_advance(-1)", "22023", "id -1 is outside the layout's range 0..9223372036854775807"),
    ("@snowflake_encode(-1, 'base32')", "22023", "id -1 is outside the range 0..9223372036854775807"),
    ("@snowflake_encode(1, 'BASE32')", "22023", "unknown encoding \"BASE32\""),
    ("@snowflake_decode('0', 'base64')", "22023", "unknown encoding \"base64\""),
    ("@snowflake_decode('06XK5BHKU0M04', 'base32')", "22023", "character \"U\" at position 9 is not a base32 symbol"),
    (
        "@snowflake_decode(E'0IQhh4u4pXQ\\n', 'base62')",
        "22023",
        "character U+000A at position 12 is not a base62 symbol",
    ),
    (
        "@snowflake_decode('', 'base32')",
        "22023",
        "base32 text \"\" ends after position 0, with 0 symbols instead of 13",
    ),
    (
        "@snowflake_decode('0-0', 'base32')",
        "22023",
        "base32 text \"0-0\" ends after position 3, with 2 symbols instead of 13",
    ),
    (
        "@snowflake_decode('0IQhh4u4pXQ0', 'base62')",
        "22023",
        "base62 text \"0IQhh4u4pXQ0\" continues at position 12, with 12 symbols instead of 11",
    ),
    (
        "@snowflake_decode('-z-zzzzzzzzzzzz', 'base32')",
        "22023",
        "base32 text \"-z-zzzzzzzzzzzz\" exceeds the largest id at position 2",
    ),
    (
        "@snowflake_decode('AzL8n0Y58m8', 'base62')",
        "22023",
        "base62 text \"AzL8n0Y58m8\" exceeds the largest id at position 11",
    ),
];

#[test]
fn the_same_calls_are_refused_in_the_same_words() {
    let (_server, mut session) = start();
    for (call, sqlstate, message) in REFUSED {
        let refusal = refusal(&mut session, call);
        assert_eq!((refusal.sqlstate.as_str(), refusal.message.as_str()), (sqlstate, message), "{call}");
    }
    session.batch_execute("SET default_transaction_read_only = on").unwrap();
    for call in ["@snowflake_batch(0)", "@snowflake_advance(0)"] {
        assert_eq!(refusal(&mut session, call).sqlstate, "25006");
    }
    // There the sequence itself refuses.
    assert_eq!(refused(session.batch_execute("SELECT edition.snowflake_next()")).sqlstate, "25006");
}

/// What a call of the extension and of the edition returns, or how it is refused.
const ANSWER: &str = r"
CREATE FUNCTION public.answer(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    answer text; state text; message text; detail text; hint text;
BEGIN
    EXECUTE 'SELECT (' || call || ')::text' INTO answer;
    RETURN answer;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
        hint = PG_EXCEPTION_HINT;
    RETURN concat_ws(E'\n', state, message, detail, hint);
END $$";

/// A layout: a built-in name, a line of any order, unit and width, or something close to a line.
fn random_layout(random: &Random) -> String {
    if random.one_in(4) {
        return random.pick(&BUILT_IN).0.to_owned();
    }
    let mut fields = vec![format!("sequence:{}", random.of(1..=24))];
    for field in ["worker", "datacenter"] {
        if random.one_in(2) {
            fields.insert(random.below(fields.len() + 1), format!("{field}:{}", random.of(1..=20)));
        }
    }
    let unit = random.pick(&["1ms", "10ms", "100ms", "1s"]);
    let epoch = Utc(random.of(-62_135_596_800_000..=253_402_300_799_999)).to_string();
    let epoch = random
        .pick(&[
            epoch.as_str(),
            "1970-01-01T00:00:00Z",
            "2010-11-04T01:42:54.657Z",
            "0000-12-31T23:59:00-00:01",
            "2000-02-29T12:00:00.5+05:45",
            "9999-12-31T23:59:59.999-00:00",
        ])
        .to_owned();
    let mut text = format!("time:{} {} unit:{unit} epoch:{epoch}", random.of(10..=53), fields.join(" "));
    if random.one_in(8) {
        // Something is wrong, perhaps.
        let at = text.char_indices().map(|(at, _)| at).nth(random.below(text.len())).expect("it has characters");
        match random.below(3) {
            0 => drop(text.remove(at)),
            1 => text.insert(at, random.pick(&[' ', ':', '\t', '0', 'x', '\'', 'é', '-'])),
            _ => text.truncate(at),
        }
    }
    text
}

/// A number near an end of the layout's ids, or anywhere.
fn random_id(layout: &Layout, random: &Random) -> i64 {
    let ends = [0, layout.max_id(), layout.max_id() / 2, i64::MAX, random.of(0..=i64::MAX - 1)];
    match random.below(8) {
        0 => random.pick(&[-1, i64::MIN, random.of(i64::MIN / 2..=-1)]),
        1..=3 => random.of(0..=layout.max_id().min(i64::MAX - 1)),
        _ => random.pick(&ends).saturating_add(random.of(-2..=2)),
    }
}

/// An instant, to the microsecond: near an end of the layout's time, at a tick's border, anywhere.
fn random_instant(layout: &Layout, random: &Random) -> String {
    if random.one_in(20) {
        return random
            .pick(&["'infinity'", "'-infinity'", "'4713-01-01 BC'", "'294276-12-31 23:59:59.999999Z'"])
            .to_owned();
    }
    let tick = random.of(0..=layout.last_tick() as i64);
    let ms = random.pick(&[layout.epoch_ms(), layout.last_instant_ms(), layout.start_of_ms(tick as u64)]);
    let us = i128::from(ms + random.of(-1..=1) * layout.unit().ms()) * 1000 + i128::from(random.of(-1..=1));
    let (ms, us) = (us.div_euclid(1000) as i64, us.rem_euclid(1000));
    // timestamptz begins and ends there.
    let text = Utc(ms.clamp(-62_135_596_800_000, 9_224_318_015_999_999)).to_string();
    format!("'{}{us:03}Z'", text.trim_end_matches('Z'))
}

fn random_text(random: &Random, session_id: i64) -> (String, &'static str) {
    let encoding = random.pick(&["base32", "base62"]);
    let known = snowflake_core::id::encoding::Encoding::parse(encoding).expect("it is one");
    let mut text = known.encode(session_id.max(0)).expect("it is an id");
    for _ in 0..random.below(3) {
        let at = random.below(text.len());
        if text.is_char_boundary(at) {
            text.insert(at, random.pick(&['-', '0', 'z', 'Z', 'i', 'L', 'o', 'U', 'é', '\'', '\u{1}', '~']));
        }
    }
    if random.one_in(3) {
        text.pop();
    }
    if random.one_in(4) {
        text = text.to_lowercase();
    }
    (text, encoding)
}

/// A call of a function for each layout.
fn random_call(random: &Random) -> String {
    let text = random_layout(random);
    let layout = Layout::parse(&text).unwrap_or_else(|_| Layout::parse("snowflake").expect("it is built in"));
    let (id, ts, text) = (random_id(&layout, random), random_instant(&layout, random), literal(&text));
    let number = |random: &Random, most: u64| {
        let most = most as i64;
        random.pick(&[0, 1, -1, most, most + 1, random.of(0..=most)]).clamp(i32::MIN.into(), i32::MAX.into())
    };
    let max = |field| layout.max_of(field).unwrap_or(0);
    use snowflake_core::id::layout::Field;
    let [worker, datacenter, sequence] =
        [Field::Worker, Field::Datacenter, Field::Sequence].map(|field| number(random, max(field)));
    match random.below(14) {
        0 | 1 => format!("@snowflake_timestamp({id}, {text})"),
        2 => format!("@snowflake_parse({id}, {text})"),
        3 => format!("@snowflake_format({id}, {text})"),
        4 | 5 => format!("@snowflake_compose({ts}, {worker}, {sequence}, {datacenter}, {text})"),
        6 => format!("@snowflake_min({ts}, {text})"),
        7 => format!("@snowflake_{}({ts}, {text})", random.pick(&["from", "after", "before", "until"])),
        8 => format!("@snowflake_encode({id}, '{}')", random.pick(&["base32", "base62", "Base62", ""])),
        9 => {
            let (text, encoding) = random_text(random, id);
            format!("@snowflake_decode({}, '{encoding}')", literal(&text))
        }
        10 => format!("(SELECT string_agg(f::text, ' ') FROM @snowflake_layout_fields({text}) f)"),
        11 => format!("@snowflake_timestamp({id})"),
        12 => format!("@snowflake_compose({ts}, {worker}, {sequence})"),
        _ => format!("@snowflake_min({ts})"),
    }
}

#[test]
fn random_calls_have_the_same_answers() {
    const CALLS: usize = 20_000;
    if !runs_extension() {
        return skip("the extension needs PostgreSQL 15");
    }
    let (_server, mut session) = start();
    session.batch_execute(ANSWER).unwrap();
    let seed =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("it is later than 1970").as_nanos();
    println!("seed {seed}");
    let random = Random::new(seed as u64);
    let mut refused = 0;
    for _ in 0..20 {
        let zone = random.pick(&["UTC", "America/St_Johns", "Asia/Kathmandu", "UTC+5", "Pacific/Apia"]);
        session.batch_execute(&format!("SET TimeZone = '{zone}'")).unwrap();
        let calls: Vec<_> = (0..CALLS / 20).map(|_| random_call(&random)).collect();
        let answers = session
            .query(
                "SELECT public.answer(replace(call, '@', 'extension.')), public.answer(replace(call, '@', 'edition.'))
                 FROM unnest($1::text[]) WITH ORDINALITY AS c (call, number) ORDER BY number",
                &[&calls],
            )
            .unwrap();
        for (call, row) in calls.iter().zip(&answers) {
            let [extension, edition]: [Option<String>; 2] = [row.get(0), row.get(1)];
            assert_eq!(edition, extension, "seed {seed}, zone {zone}: {call}");
            refused += usize::from(extension.is_some_and(|answer| answer.starts_with("22")));
        }
    }
    // Both kinds of answers were compared.
    assert!((CALLS / 20..CALLS * 19 / 20).contains(&refused), "{refused} of {CALLS} were refused");
}

/// In a generated column, an expression index, a partition's bound and a plan.
#[test]
fn conditions_and_columns_can_use_what_the_edition_computes() {
    let (_server, mut session) = start();
    session
        .batch_execute(
            "SET search_path = edition, public;
             CREATE TABLE public.t (id bigint PRIMARY KEY DEFAULT snowflake_next(),
                 created_at timestamptz GENERATED ALWAYS AS (snowflake_timestamp(id, 'snowflake')) STORED,
                 code text COLLATE \"C\" GENERATED ALWAYS AS (snowflake_encode(id, 'base62')) STORED);
             CREATE INDEX ON public.t (snowflake_timestamp(id, 'snowflake'));
             INSERT INTO t (id) SELECT snowflake_next() FROM generate_series(1, 1000);
             CREATE TABLE public.parts (id bigint) PARTITION BY RANGE (id);
             CREATE TABLE public.part PARTITION OF parts
                 FOR VALUES FROM (snowflake_min('2025-01-01Z', 'snowflake')) TO (snowflake_min('2026-01-01Z', 'snowflake'))",
        )
        .unwrap();
    if runs_extension() {
        let same = "SELECT count(*) FROM public.t WHERE created_at = extension.snowflake_timestamp(id)
            AND code = extension.snowflake_encode(id, 'base62')";
        assert_eq!(session.value(same), "1000");
    }
    let plan = |session: &mut Client, condition: &str| {
        let sql = format!("EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM public.t WHERE {condition}");
        let lines = session.query(&sql, &[]).unwrap();
        lines.iter().map(|line| line.get::<_, String>(0)).collect::<Vec<_>>().join("\n")
    };
    session.batch_execute("SET enable_seqscan = off; SET TimeZone = 'UTC'").unwrap();
    // The bound is a constant in the plan.
    let bound = plan(&mut session, "id >= snowflake_min('2026-11-20Z')");
    assert!(bound.contains("(t.id >= '249322851532800000'::bigint)"), "{bound}");
    // The time is arithmetic, without a call of a function of the edition but to refuse.
    session.batch_execute("SET enable_seqscan = on").unwrap();
    let time = plan(&mut session, "snowflake_timestamp(id) + interval '0' > '2026-11-20Z'");
    assert!(time.contains("(t.id >> 22)") && !time.contains("_snowflake_layout_of"), "{time}");
    let time = plan(&mut session, "snowflake_timestamp(id, 'snowflake') > '2026-11-20Z'");
    assert!(time.contains("Index Cond"), "{time}");
}

/// The same tokens, and the same words.
#[test]
fn public_ids_are_the_same_and_are_refused_in_the_same_words() {
    let (server, mut session) = start();
    if !server.has_extension("pgcrypto") {
        return skip("pgcrypto is not installed");
    }
    session.batch_execute("CREATE EXTENSION pgcrypto").unwrap();
    let message = |session: &mut Client, call: &str| {
        of_all(
            call,
            calls(call).map(|call| {
                let refusal = refused(session.batch_execute(&format!("SELECT {call}")));
                (refusal.sqlstate, refusal.message)
            }),
        )
    };
    // The extension's HINT names the runbook as well.
    assert_eq!(message(&mut session, "@snowflake_conceal(1, 'ord')").0, "55000");
    let key = "decode(repeat('07', 32), 'hex')";
    let fingerprint = returned(&mut session, &format!("@snowflake_new_public_key({key}, first_id => 100)"));
    assert_eq!(returned(&mut session, &format!("@snowflake_new_public_key({key})")), fingerprint);
    for call in ["@snowflake_conceal(99, 'ord')", "@snowflake_new_public_key(first_id => 7)"] {
        assert_eq!(message(&mut session, call).0, "55000", "{call}");
    }
    for call in [
        "@snowflake_conceal(100, 'Ord')",
        "@snowflake_reveal('', repeat('x', 100))",
        "@snowflake_reveal('ord_1', 'ord', true)",
        "@snowflake_reveal(ARRAY['ord_1'], 'ord', true)",
        "@snowflake_new_public_key('\\x00')",
        "@snowflake_new_public_key(first_id => 7, for_all => true)",
        "@snowflake_public_domain('d', '1')",
    ] {
        refusal(&mut session, call);
    }
    for id in [100, 249_498_276_909_305_860, i64::MAX] {
        let token = returned(&mut session, &format!("@snowflake_conceal({id}, 'ord')"));
        assert_eq!(returned(&mut session, &format!("@snowflake_reveal('{token}', 'ord', true)")), id.to_string());
        let array = format!("@snowflake_reveal(ARRAY['{token}', NULL, 'x'], 'ord')");
        assert_eq!(returned(&mut session, &array), format!("{{{id},NULL,NULL}}"));
    }
    session.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").unwrap();
    let call = "snowflake_new_public_key()";
    for schema in if runs_extension() { &BOTH[..] } else { &BOTH[1..] } {
        session.batch_execute("SAVEPOINT s").unwrap();
        let refusal = refused(session.batch_execute(&format!("SELECT {schema}.{call}")));
        let words = "cannot make a key for public ids in a transaction of isolation level \"repeatable read\"";
        assert_eq!((refusal.sqlstate.as_str(), refusal.message.as_str()), ("25001", words));
        session.batch_execute("ROLLBACK TO s").unwrap();
    }
}
