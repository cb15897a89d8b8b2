//! The world of a round: layouts, ids around the bounds of conditions, and relations of every kind
//! that hold them.

use std::collections::{BTreeMap, BTreeSet};

use snowflake_core::clock::{Utc, parse_instant};
use snowflake_core::id::layout::{BUILT_IN, Layout};

use crate::random::Random;

/// A layout, and ids of it: around a few ticks, so that bounds fall between, on and next to them.
pub struct Ids {
    /// Its name in SQL: a built-in name, or the whole line.
    pub text: String,
    pub layout: Layout,
    pub ids: Vec<i64>,
}

impl Ids {
    /// An instant at the start of one of the ticks, in the microseconds of a layout that reads
    /// these ids.
    pub fn tick_us(&self, reader: &Layout, random: &Random) -> i128 {
        let id = random.pick(&self.ids);
        i128::from(reader.created_at_ms(id).expect("the reader is as wide")) * 1000
    }
}

/// How a relation is written to, if it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    No,
    Yes,
    /// A table whose id is a primary key.
    Key,
}

/// A table or a view: `id bigint, n integer, ts timestamptz, d date, w timestamp`, and perhaps
/// `created_at`.
pub struct Relation {
    pub name: String,
    /// The ids that it holds, as an index into [`World::ids`].
    pub of: usize,
    pub shows_id: bool,
    /// The layout with which its column `created_at` reads the ids, if there is one.
    pub created_at: Option<usize>,
    /// Whether that column is the time of the column `id`, by one layout, in every row.
    pub is_plain: bool,
    pub writes: Writes,
    /// The statements that create it.
    pub ddl: String,
}

/// All relations of a round.
pub struct World {
    /// First those of the server's layout.
    pub ids: Vec<Ids>,
    pub relations: Vec<Relation>,
    pub functions: String,
}

/// Tables with every kind of index, partition and constraint on ids and their times.
const TABLES: [&str; 20] = [
    "CREATE TABLE {t} (id bigint PRIMARY KEY, {rest})",
    "CREATE TABLE {t} (id bigint PRIMARY KEY, {rest}) PARTITION BY RANGE (id); {range}",
    "CREATE TABLE {t} (id bigint PRIMARY KEY, {rest}) PARTITION BY HASH (id); {hash}",
    "CREATE TABLE {t} (id bigint, {rest}); CREATE INDEX ON {t} (id) INCLUDE (n)",
    "CREATE TABLE {t} (id bigint, {rest})",
    "CREATE TABLE {t} (id bigint, {rest}); CREATE INDEX ON {t} (n, id)",
    "CREATE TABLE {t} (id bigint, {rest}); CREATE INDEX ON {t} (id DESC NULLS LAST, ts)",
    "CREATE TABLE {t} (id bigint, {rest}); CREATE INDEX ON {t} USING brin (id) WITH (pages_per_range = 1)",
    "CREATE TABLE {t} (id even_longer PRIMARY KEY, {rest})",
    "CREATE TABLE {t} (id longer, {rest}) PARTITION BY RANGE (id); {range}; CREATE INDEX ON {t} (id)",
    "CREATE TABLE {t} (id bigint, {rest}); CREATE INDEX ON {t} (snowflake_timestamp(id, '{layout}'))",
    "CREATE TABLE {t} (id bigint, {rest}); CREATE INDEX ON {t} (id) WHERE n < 5",
    "CREATE TABLE {t} (id bigint, {rest}) PARTITION BY RANGE (id); {range}; CREATE INDEX ON {t}_1 (id);
     CREATE INDEX ON {t}_2 (snowflake_timestamp(id, '{layout}'))",
    "CREATE TABLE {t} (id bigint, {rest}); CREATE TABLE {t}_1 (PRIMARY KEY (id)) INHERITS ({t});
     CREATE TABLE {t}_2 (CHECK (id >= {middle})) INHERITS ({t}); CREATE INDEX ON {t}_2 (id)",
    "CREATE TABLE {t} (id bigint, {rest}); CREATE TABLE {t}_1 (PRIMARY KEY (id)) INHERITS ({t});
     CREATE TABLE {t}_2 (CHECK (snowflake_timestamp(id, '{layout}') >= timestamptz '{middle_time}')) INHERITS ({t})",
    "CREATE TABLE {t} (id bigint, {rest}) PARTITION BY RANGE (snowflake_timestamp(id, '{layout}'));
     CREATE TABLE {t}_0 PARTITION OF {t} FOR VALUES FROM (MINVALUE) TO ('{middle_time}');
     CREATE TABLE {t}_1 PARTITION OF {t} DEFAULT; CREATE INDEX ON {t} (id)",
    "CREATE TABLE {t} (id bigint, {rest}); CREATE INDEX ON {t} (((snowflake_parse(id, '{layout}')).created_at))",
    "CREATE TABLE {t} (id bigint, {rest}) PARTITION BY RANGE (id);
     CREATE TABLE {t}_0 PARTITION OF {t} FOR VALUES FROM (MINVALUE) TO (snowflake_min('{middle_time}', '{layout}'));
     CREATE TABLE {t}_1 PARTITION OF {t} DEFAULT; CREATE INDEX ON {t}_0 (id)",
    "CREATE TABLE {t} (id bigint, {rest}); CREATE INDEX ON {t} (id); ALTER TABLE {t} ENABLE ROW LEVEL SECURITY;
     CREATE POLICY few ON {t} USING (n < 7)",
    "CREATE TABLE {t} (id bigint, {rest}); CREATE INDEX ON {t} (id); ALTER TABLE {t} ENABLE ROW LEVEL SECURITY;
     CREATE POLICY old ON {t} USING (snowflake_timestamp(id, '{layout}') <= timestamptz '{middle_time}')",
];

/// What policies show of a table to a role that is not its owner.
const POLICIES: [&str; 6] = [
    "n < 7",
    "n < 7",
    "snowflake_timestamp(id, '{layout}') <= timestamptz '{middle_time}'",
    "id IS NOT NULL",
    "id >= 0 AND n IS NOT NULL",
    "false",
];

/// Views of one or two relations that show an id.
const VIEWS: [&str; 15] = [
    "CREATE VIEW {t} AS SELECT * FROM {one}",
    "CREATE VIEW {t} AS SELECT id, {created_at} AS created_at, n, ts, d, w FROM {one}",
    "CREATE VIEW {t} AS SELECT {created_at} AS created_at, n, ts, d, w FROM {one}",
    "CREATE VIEW {t} AS SELECT DISTINCT id, {created_at} AS created_at, n, ts, d, w FROM {one} WHERE n < 8",
    "CREATE VIEW {t} WITH (security_barrier) AS SELECT * FROM {one} WHERE n <> 3",
    "CREATE VIEW {t} WITH (security_barrier) AS SELECT id, {created_at} AS created_at, n, ts, d, w FROM {one}",
    "CREATE VIEW {t} AS SELECT id, n, ts, d, w FROM {one} UNION ALL SELECT id, n, ts, d, w FROM {two}",
    "CREATE VIEW {t} AS SELECT id, {created_at} AS created_at, n, ts, d, w FROM {one}
     UNION ALL SELECT id, {created_at}, n, ts, d, w FROM {two}",
    // Here `created_at` is not the time of `id` by one layout in all rows.
    "CREATE VIEW {t} AS SELECT id, {created_at} AS created_at, n, ts, d, w FROM {one}
     UNION ALL SELECT id, {another}, n, ts, d, w FROM {two}",
    "CREATE VIEW {t} AS SELECT id, {created_at} AS created_at, n, ts, d, w FROM {one}
     UNION ALL SELECT {middle}, {created_at}, n, ts, d, w FROM {two}",
    "CREATE VIEW {t} AS SELECT {created_at} AS created_at, n, ts, d, w FROM {one}
     UNION ALL SELECT NULL, n, ts, d, w FROM {two}",
    // Parts that stay subqueries.
    "CREATE VIEW {t} AS SELECT id, {created_at} AS created_at, n, ts, d, w FROM {one}
     UNION ALL SELECT id, {created_at}, n, ts, d, w FROM {two} WHERE n < 7",
    "CREATE VIEW {t} AS SELECT id, {created_at} AS created_at, n, ts, d, w FROM {one} WHERE n > 2
     UNION ALL SELECT id, {created_at}, n, ts, d, w FROM {two}",
    "CREATE VIEW {t} AS SELECT id, {created_at} AS created_at, n, ts, d, w FROM {one}
     UNION ALL (SELECT DISTINCT ON ({created_at}) id, {created_at}, n, ts, d, w FROM {two} ORDER BY 2, 1, 3, 4, 5, 6)",
    // Here a row has an id or a time.
    "CREATE VIEW {t} AS SELECT id, {created_at} AS created_at, n, ts, d, w FROM {one}
     UNION ALL SELECT id, {created_at}, max(n), max(ts), max(d), max(w) FROM {two}
     GROUP BY GROUPING SETS ((id), ({created_at}))",
];

/// Instants around which ids lie: daylight saving changes in the zones that queries use, midnights,
/// a leap day.
const CENTRES: [&str; 12] = [
    "2025-11-02T05:00:00Z",
    "2010-11-07T02:31:00Z",
    "2026-04-04T15:00:00Z",
    "2011-12-30T10:00:00Z",
    "2025-10-26T01:00:00Z",
    "2026-03-29T01:00:00Z",
    "2026-11-01T06:00:00Z",
    "2026-06-01T00:00:00Z",
    "2028-02-29T12:00:00Z",
    "2025-12-31T18:15:00Z",
    "2026-05-31T22:00:00Z",
    "2026-01-01T00:00:00Z",
];

impl World {
    /// A world in which the server's layout is the first.
    pub fn new(server_layout: &str, random: &Random) -> Self {
        let second = loop {
            let text = random_layout(random);
            if text != server_layout {
                break text;
            }
        };
        let ids = vec![random_ids(server_layout.to_owned(), random), random_ids(second, random)];
        let mut world = Self { ids, relations: Vec::new(), functions: String::new() };
        for of in 0..2 {
            let first = world.relations.len();
            // First a table that certainly has a key, then any.
            let kinds = (0..7).map(|at| if at == 0 { 0 } else { random.below(TABLES.len()) }).collect::<Vec<_>>();
            for kind in kinds {
                world.add_table(of, kind, random);
            }
            for _ in 0..7 {
                world.add_view(of, first, random);
            }
            let (table, layout) = (&world.relations[first].name, &world.ids[of].text);
            world.functions += &format!(
                "CREATE FUNCTION is_since_{of}(bigint, timestamptz) RETURNS boolean IMMUTABLE LANGUAGE sql
                 AS $$ SELECT snowflake_timestamp($1, '{layout}') >= $2 $$;
                 CREATE FUNCTION since_{of}(timestamptz) RETURNS SETOF bigint STABLE LANGUAGE sql
                 AS $$ SELECT id FROM {table} WHERE snowflake_timestamp(id, '{layout}') > $1 $$;
                 CREATE FUNCTION until_{of}(timestamptz) RETURNS SETOF bigint STABLE LANGUAGE plpgsql AS $$ BEGIN
                 RETURN QUERY SELECT id FROM {table} WHERE (snowflake_parse(id, '{layout}')).created_at <= $1; END $$;\n"
            );
        }
        world
    }

    /// All statements that create the world, in the session's schema.
    pub fn ddl(&self) -> String {
        let relations = self.relations.iter().map(|relation| format!("{};\n", relation.ddl)).collect::<String>();
        format!(
            "CREATE DOMAIN longer AS bigint; CREATE DOMAIN even_longer AS longer CHECK (VALUE >= 0);\n{relations}{}
             CREATE FUNCTION same(timestamptz) RETURNS timestamptz STABLE LANGUAGE sql
             AS 'SELECT $1 + interval ''0''';
             CREATE FUNCTION same_slowly(timestamptz) RETURNS timestamptz STABLE LANGUAGE plpgsql
             AS 'BEGIN RETURN $1; END';",
            self.functions
        )
    }

    /// A layout that can read these ids: mostly their own.
    pub fn reader(&self, of: usize, random: &Random) -> usize {
        let other = 1 - of;
        let wide_enough = self.ids[other].layout.max_id() >= self.ids[of].layout.max_id();
        if wide_enough && random.one_in(6) { other } else { of }
    }

    fn add_table(&mut self, of: usize, kind: usize, random: &Random) {
        let Ids { text, layout, ids } = &self.ids[of];
        let name = format!("t{}", self.relations.len());
        let key = TABLES[kind].contains("PRIMARY KEY, {rest}");
        let inherited = TABLES[kind].contains("INHERITS");
        let mut bounds = BTreeSet::new();
        while bounds.len() < 3 {
            // At a tick's first id, or anywhere.
            let id = random.pick(ids);
            bounds.insert(if random.one_in(2) { id & !low_bits(layout) } else { id });
        }
        let bounds = bounds.into_iter().collect::<Vec<_>>();
        let part = |at: usize, of: &str| format!("CREATE TABLE {name}_{at} PARTITION OF {name} {of}; ");
        let nested = if key { "HASH (id)" } else { "LIST (n)" };
        let range = part(0, &format!("FOR VALUES FROM (MINVALUE) TO ({})", bounds[0]))
            + &part(1, &format!("FOR VALUES FROM ({}) TO ({})", bounds[0], bounds[1]))
            + &part(2, &format!("FOR VALUES FROM ({}) TO ({})", bounds[1], bounds[2]))
            + &part(3, &format!("DEFAULT PARTITION BY {nested}"))
            + &(if key {
                format!("CREATE TABLE {name}_4 PARTITION OF {name}_3 FOR VALUES WITH (MODULUS 1, REMAINDER 0)")
            } else {
                format!("CREATE TABLE {name}_4 PARTITION OF {name}_3 DEFAULT")
            });
        let hash =
            (0..3).map(|at| part(at, &format!("FOR VALUES WITH (MODULUS 3, REMAINDER {at})"))).collect::<String>();
        let middle_time = Utc(layout.created_at_ms(bounds[1]).expect("an id of the layout")).to_string();
        let constraint = if random.one_in(3) { ", CHECK (id >= 0)" } else { "" };
        let mut ddl = TABLES[kind].to_owned();
        if !ddl.contains("POLICY") && random.one_in(4) {
            ddl += &format!(
                "; ALTER TABLE {{t}} ENABLE ROW LEVEL SECURITY; CREATE POLICY shown ON {{t}} USING ({})",
                random.pick(&POLICIES)
            );
        }
        let mut ddl = ddl
            .replace("{rest}", &format!("n integer, ts timestamptz, d date, w timestamp{constraint}"))
            .replace("{range}", &range)
            .replace("{hash}", &hash)
            .replace("{middle_time}", &middle_time)
            .replace("{middle}", &bounds[1].to_string())
            .replace("{layout}", text)
            .replace("{t}", &name);
        let mut rows = BTreeMap::<_, Vec<_>>::new();
        // Numbers that are not ids, where the table itself does not read their time.
        let is_read = ["snowflake_", "even_longer", "id >= "].iter().any(|reads| ddl.contains(reads));
        let beyond = layout.max_id().checked_add(1).unwrap_or(i64::MIN);
        let strange = if !is_read && random.one_in(3) { vec![-1, beyond] } else { Vec::new() };
        for id in self.ids[of].ids.iter().filter(|_| !random.one_in(3)).chain(&strange) {
            let value = if !key && !inherited && random.one_in(8) { "NULL".to_owned() } else { id.to_string() };
            let into = match (inherited, *id >= bounds[1]) {
                (true, true) if random.one_in(2) => "_2",
                (true, _) if random.one_in(2) => "_1",
                _ => "",
            };
            let n = if random.one_in(12) { "NULL".to_owned() } else { random.below(10).to_string() };
            let column = |kind: &str| {
                let us = self.ids[of].tick_us(layout, random) + i128::from(random.of(-1..=1));
                if random.one_in(10) { "NULL".to_owned() } else { literal(kind, us) }
            };
            let rest = ["timestamptz", "date", "timestamp"].map(column).join(", ");
            rows.entry(into).or_default().push(format!("({value}, {n}, {rest})"));
        }
        for (into, rows) in rows {
            ddl += &format!(";\nINSERT INTO {name}{into} VALUES {}", rows.join(", "));
        }
        if random.one_in(2) {
            ddl += &format!(";\nANALYZE {name}");
        }
        let writes = if key { Writes::Key } else { Writes::Yes };
        self.relations.push(Relation { name, of, shows_id: true, created_at: None, is_plain: true, writes, ddl });
    }

    fn add_view(&mut self, of: usize, first: usize, random: &Random) {
        let unions = VIEWS.into_iter().filter(|view| view.contains("UNION ALL")).collect::<Vec<_>>();
        let kind = if random.one_in(2) { random.pick(&unions) } else { random.pick(&VIEWS) };
        let shown = self.relations[first..].iter().filter(|relation| relation.shows_id).collect::<Vec<_>>();
        let (one, two) = (random.pick(&shown), random.pick(&shown));
        let name = format!("v{}", self.relations.len());
        let reader = self.reader(of, random);
        let created_at = time_of("id", &self.ids[reader].text, reader == 0, random);
        // A layout that reads them differently, if there is one.
        let (others_max, own_max) = (self.ids[1 - of].layout.max_id(), self.ids[of].layout.max_id());
        let another_reader = if others_max >= own_max { 1 - reader } else { reader };
        let another = time_of("id", &self.ids[another_reader].text, another_reader == 0, random);
        // A view's policies are those of its owner, who sees all rows, or those of its user.
        let options = random.weighed(&[
            (6, ""),
            (1, " WITH (security_barrier)"),
            (2, " WITH (security_invoker)"),
            (2, " WITH (security_barrier, security_invoker)"),
        ]);
        let ddl = kind
            .replace("{t} AS", &format!("{{t}}{options} AS"))
            .replace("{t}", &name)
            .replace("{one}", &one.name)
            .replace("{two}", &two.name)
            .replace("{created_at}", &created_at)
            .replace("{another}", &another)
            .replace("{middle}", &random.pick(&self.ids[of].ids).to_string());
        let relation = Relation {
            shows_id: kind.contains(" id,") || kind.contains('*'),
            created_at: if kind.contains("created_at") {
                Some(reader)
            } else if kind.contains('*') {
                one.created_at
            } else {
                None
            },
            is_plain: if kind.contains('*') {
                one.is_plain
            } else {
                !["{another}", "{middle}", "GROUPING"].iter().any(|other| kind.contains(other))
            },
            writes: Writes::No,
            name,
            of,
            ddl,
        };
        self.relations.push(relation);
    }
}

/// An id's time, in one of its spellings; without the layout only if it is the server's.
pub fn time_of(id: &str, layout: &str, is_servers: bool, random: &Random) -> String {
    let arguments = if is_servers && random.one_in(2) { id.to_owned() } else { format!("{id}, '{layout}'") };
    if random.one_in(3) {
        format!("(snowflake_parse({arguments})).created_at")
    } else {
        format!("snowflake_timestamp({arguments})")
    }
}

/// A literal of a type for an instant in microseconds since 1970, in UTC and within the type's
/// range.
pub fn literal(kind: &str, us: i128) -> String {
    // From the year 1 to timestamptz's last instant.
    let us = us.clamp(-62_135_596_800_000_000, 9_224_318_015_999_999_999);
    let text = Utc(us.div_euclid(1000) as i64).to_string().replace('T', " ");
    match kind {
        "date" => format!("date '{}'", text.split(' ').next().expect("a date comes first")),
        "timestamp" => format!("timestamp '{}'", text.replace('Z', &format!("{:03}", us.rem_euclid(1000)))),
        _ => format!("timestamptz '{}'", text.replace('Z', &format!("{:03}+00", us.rem_euclid(1000)))),
    }
}

/// A built-in layout, or one of any order, unit and width.
fn random_layout(random: &Random) -> String {
    if random.one_in(2) {
        return random.pick(&BUILT_IN).0.to_owned();
    }
    loop {
        let mut fields = vec![format!("sequence:{}", random.of(1..=16))];
        for field in ["worker", "datacenter"] {
            if random.one_in(2) {
                let at = random.below(fields.len() + 1);
                fields.insert(at, format!("{field}:{}", random.of(1..=16)));
            }
        }
        let unit = random.pick(&["1ms", "10ms", "100ms", "1s"]);
        let epoch = random.pick(&["1970-01-01T00:00:00Z", "2010-11-04T01:42:54.657Z", "2025-12-31T23:59:59.999Z"]);
        let text = format!("time:{} {} unit:{unit} epoch:{epoch}", random.of(20..=50), fields.join(" "));
        if Layout::parse(&text).is_ok() {
            return text;
        }
    }
}

/// The bits below the time.
fn low_bits(layout: &Layout) -> i64 {
    layout.max_id() >> layout.last_tick().count_ones()
}

fn random_ids(text: String, random: &Random) -> Ids {
    let layout = Layout::parse(&text).expect("the layout is one");
    let last = layout.last_tick() as i64;
    let low = low_bits(&layout);
    let mut ticks = vec![0, last, random.below(last as usize) as i64];
    for _ in 0..3 {
        let ms = parse_instant(random.pick(&CENTRES)).expect("an instant");
        ticks.push(layout.tick_at(ms).clamp(0, last));
    }
    let mut ids = BTreeSet::from([0, layout.max_id()]);
    for _ in 0..60 {
        let tick = (random.pick(&ticks) + random.of(-2..=2)).clamp(0, last);
        let number = match random.below(4) {
            0 => 0,
            1 => low,
            _ => random.below(low as usize + 1) as i64,
        };
        ids.insert(tick * (low + 1) + number);
    }
    Ids { text, layout, ids: ids.into_iter().collect() }
}
