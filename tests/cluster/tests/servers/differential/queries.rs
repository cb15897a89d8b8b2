//! The grammar: statements with conditions on an id's time, in all the places where a condition can
//! stand.

use std::fmt;
use std::slice::from_ref as only;

use super::computed::Computed;
use super::moments::Time;
use super::world::{Relation, World, Writes};
use crate::random::Random;

/// How a comparison with an id's time is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// As a user writes it.
    Time,
    /// As a comparison of the id with its bound, if the id is shown.
    Bound,
    /// The same, but a tick too late.
    BoundOneTickLate,
    /// The same, but with the other bound: wrong only if the bound is the start of a tick.
    OtherBound,
    /// The same, also for a time that is not that of the id beside it in every row.
    BoundOfTheIdBeside,
    /// As a user writes it, with the bound that a step from the time to what is compared would
    /// need if it changed nothing.
    BoundOfTheTimeItself,
    /// As a user writes it, but in the order of ids where that of times is asked for: wrong only
    /// where times are equal.
    OrderOfIds,
}

impl Spelling {
    /// Whether a comparison with the time itself is written as one with the time.
    pub fn is_time(self) -> bool {
        matches!(self, Self::Time | Self::BoundOfTheTimeItself | Self::OrderOfIds)
    }
}

/// A relation in a FROM.
#[derive(Clone)]
pub struct Item<'a> {
    pub alias: String,
    pub relation: &'a Relation,
    pub parsed: Option<Parsed>,
}

/// A function in FROM that reads the item's id, beside it.
#[derive(Clone)]
pub struct Parsed {
    pub alias: String,
    /// The layout that reads it.
    pub reader: usize,
    /// How it is joined.
    join: String,
    /// Whether every row of the item has its time.
    pub is_total: bool,
}

/// As FROM names it.
impl fmt::Display for Item<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.parsed {
            None => write!(f, "{} {}", self.relation.name, self.alias),
            Some(Parsed { join, .. }) => write!(f, "({} {} {join})", self.relation.name, self.alias),
        }
    }
}

impl Item<'_> {
    /// The columns that identify a row.
    fn columns(&self) -> String {
        let alias = &self.alias;
        let first = if self.relation.shows_id { "id" } else { "created_at" };
        format!("{alias}.{first}, {alias}.n")
    }
}

/// A statement.
pub struct Query {
    pub sql: String,
    /// Whether the order of the rows is given.
    pub ordered: bool,
    /// The table that it changes.
    pub changes: Option<String>,
    /// If the statement is prepared, the types of its parameters with the values of three
    /// executions.
    pub parameters: Option<Vec<(&'static str, [String; 3])>>,
}

/// Writes one statement.
pub struct Writer<'a> {
    pub random: Random,
    pub world: &'a World,
    pub parameters: Option<Vec<(&'static str, [String; 3])>>,
    pub spelling: Spelling,
    aliases: usize,
}

impl<'a> Writer<'a> {
    /// The statement of a seed.
    pub fn write(world: &'a World, seed: u64, spelling: Spelling) -> Query {
        let random = Random::new(seed);
        let parameters = random.one_in(3).then(Vec::new);
        let mut writer = Self { random, world, parameters, spelling, aliases: 0 };
        let mut query = Query { sql: String::new(), ordered: false, changes: None, parameters: None };
        query.sql = if writer.random.one_in(8) {
            let (table, sql) = writer.change();
            query.changes = Some(table);
            sql
        } else {
            let (columns, sql) = writer.select();
            query.ordered = columns > 0 && writer.random.one_in(4);
            if query.ordered {
                let by = (1..=columns).map(|column| column.to_string()).collect::<Vec<_>>().join(", ");
                let direction = writer.random.pick(&["", " DESC NULLS LAST"]);
                let limit = writer.random.pick(&["", " LIMIT 5", " LIMIT 20 OFFSET 3"]);
                // By all columns. The order of equal rows does not matter.
                format!("SELECT * FROM ({sql}) q ORDER BY {by}{direction}{limit}")
            } else {
                sql
            }
        };
        query.parameters = writer.parameters;
        query
    }

    // Relations

    /// Any relation, perhaps with a function that reads its id.
    pub fn item(&mut self) -> Item<'a> {
        let item = self.plain_item();
        let parsed = (item.relation.shows_id && self.random.one_in(5)).then(|| self.parsed(&item));
        Item { parsed, ..item }
    }

    /// Any relation by itself.
    pub fn plain_item(&mut self) -> Item<'a> {
        self.item_of(|_| true)
    }

    fn parsed(&self, item: &Item) -> Parsed {
        let (random, alias) = (&self.random, format!("{}p", item.alias));
        let reader = self.world.reader(item.relation.of, random);
        let layout = &self.world.ids[reader].text;
        let id = format!("{}.id", item.alias);
        let arguments = if reader == 0 && random.one_in(2) { id } else { format!("{id}, '{layout}'") };
        let function = match random.below(4) {
            0 | 1 => format!("snowflake_parse({arguments}) {alias}"),
            // The result of a function that returns no record is named like the function.
            2 => format!("snowflake_timestamp({arguments}) {alias}(created_at)"),
            _ => format!("ROWS FROM (snowflake_parse({arguments}), generate_series(1, 2)) WITH ORDINALITY {alias}"),
        };
        let (join, is_total) = match random.below(6) {
            0 | 1 => (format!("CROSS JOIN LATERAL {function}"), true),
            2 => (format!("JOIN LATERAL {function} ON true"), true),
            3 | 4 => (format!("LEFT JOIN LATERAL {function} ON true"), true),
            _ => {
                let (operator, n) = (random.pick(&["<", ">="]), random.below(10));
                (format!("LEFT JOIN LATERAL {function} ON {}.n {operator} {n}", item.alias), false)
            }
        };
        let is_total = is_total && !function.starts_with("ROWS FROM");
        Parsed { alias, reader, join, is_total }
    }

    fn item_of(&mut self, is_wanted: impl Fn(&Relation) -> bool) -> Item<'a> {
        let wanted = self.world.relations.iter().filter(|relation| is_wanted(relation)).collect::<Vec<_>>();
        self.aliases += 1;
        Item { alias: format!("r{}", self.aliases), relation: self.random.pick(&wanted), parsed: None }
    }

    // Conditions

    /// A condition on items, which may refer to others.
    fn condition(&mut self, items: &[Item], outer: &[Item]) -> String {
        let condition = self.nested(items, outer, 2);
        match self.random.below(30) {
            0 => self.folded(items),
            1 => format!("{condition} AND {}", self.folded(items)),
            _ => condition,
        }
    }

    /// A condition that the planner may find to be false or NULL for all rows, or for those of some
    /// partitions: by itself, by a constraint, or with the value of a parameter. It then does not
    /// prepare the relation as others, nor read it.
    fn folded(&mut self, items: &[Item]) -> String {
        let at = self.random.below(items.len());
        let (item, n) = (&items[at], self.random.below(10));
        let (alias, time) = (&item.alias, self.time(item).sql);
        let id = if item.relation.shows_id { format!("{alias}.id") } else { format!("{alias}.n") };
        match self.random.below(20) {
            0 if self.parameters.is_some() => {
                let values = ["false", "NULL", "true"].map(str::to_owned);
                self.parameter_of("boolean", values)
            }
            0 => "NULL::boolean".to_owned(),
            1..=3 => "NULL".to_owned(),
            4 | 5 => "false".to_owned(),
            6 => "1 = 2".to_owned(),
            7 => "NOT true".to_owned(),
            8 => "(SELECT false)".to_owned(),
            9 => "now() < '2000-01-01'".to_owned(),
            // Of a key it is not NULL, and of some tables a constraint says that it is not below 0.
            10..=13 => format!("{id} IS NULL"),
            14 | 15 => format!("{id} < 0"),
            16 => format!("{id} = NULL"),
            17 => format!("{time} < NULL"),
            18 => format!("{time} > timestamptz '2026-01-01Z' AND {time} < timestamptz '2025-01-01Z'"),
            _ => format!("({alias}.n > {n} AND {alias}.n < {n})"),
        }
    }

    /// The condition of a statement that asks for the first rows.
    fn condition_of_first(&mut self, item: &Item) -> String {
        match self.random.below(12) {
            0..=2 => "true".to_owned(),
            3..=6 => self.folded(only(item)),
            _ => self.condition(only(item), &[]),
        }
    }

    fn nested(&mut self, items: &[Item], outer: &[Item], depth: usize) -> String {
        let choice = if depth == 0 { 0 } else { self.random.below(10) };
        let nested = |writer: &mut Self| writer.nested(items, outer, depth - 1);
        match choice {
            0..=4 => self.atom(items, outer),
            5 | 6 => format!("({} AND {})", nested(self), nested(self)),
            7 => format!("({} OR {})", nested(self), nested(self)),
            8 => format!("NOT ({})", nested(self)),
            _ => format!("({} AND {} AND {})", nested(self), nested(self), nested(self)),
        }
    }

    fn atom(&mut self, items: &[Item], outer: &[Item]) -> String {
        let at = self.random.below(items.len());
        let item = &items[at];
        let others = items.iter().filter(|other| other.alias != item.alias).chain(outer).cloned().collect::<Vec<_>>();
        let time = self.time(item);
        let alias = &item.alias;
        let moment = |writer: &mut Self| writer.moment(item, time.reader, &others);
        match self.random.below(36) {
            34 | 35 => self.any_of_computed(&time, item),
            30..=33 => self.of_computed(&time, item),
            28 | 29 => self.local(&time, item),
            25 => self.in_range(&time, item),
            26 => self.aged(&time, item),
            27 => self.any_of_many(&time, item),
            0..=10 => self.random_comparison(&time, item, &others),
            11 | 12 => {
                let (from, to) = (moment(self), moment(self));
                let not = self.random.pick(&["", "", "NOT "]);
                let between = if self.spelling.is_time() {
                    format!("{} BETWEEN {from} AND {to}", time.sql)
                } else {
                    let [one, other] =
                        [(">=", &from), ("<=", &to)].map(|(operator, x)| self.comparison(&time, operator, x, false));
                    format!("{one} AND {other}")
                };
                format!("{not}({between})")
            }
            13 => format!("{} BETWEEN SYMMETRIC {} AND {}", time.sql, moment(self), moment(self)),
            14 => format!("{alias}.n {} {}", self.random.pick(&["<", ">=", "="]), self.random.below(10)),
            15 => format!("{} IS {}NULL", time.sql, self.random.pick(&["", "NOT "])),
            16 => {
                let (one, other) =
                    (self.random_comparison(&time, item, &others), self.random_comparison(&time, item, &others));
                format!("CASE WHEN {alias}.n > 4 THEN {one} ELSE {other} END")
            }
            17 => {
                let test =
                    self.random.pick(&["TRUE", "NOT TRUE", "FALSE", "NOT FALSE", "UNKNOWN", "DISTINCT FROM TRUE"]);
                format!("({}) IS {test}", self.random_comparison(&time, item, &others))
            }
            18 if self.random.one_in(3) => format!("{} <> {}", time.sql, moment(self)),
            18 => {
                let (moment, flipped) = (moment(self), self.random.one_in(4));
                self.comparison(&time, "=", &moment, flipped)
            }
            19 if self.random.one_in(2) => self.among_moments(&time, item),
            19 => {
                let moments = [0; 2].map(|_| self.instant(item, time.reader, &others)).join(", ");
                let operator = self.random.pick(&["= ANY", "<= ANY", "> ANY", ">= ALL", "< ALL"]);
                format!("{} {operator} (ARRAY[{moments}])", time.sql)
            }
            20 => self.rows(&time, item, &others),
            21 if time.id.is_some() && time.reader == item.relation.of => {
                let moment = self.instant(item, time.reader, &others);
                format!("is_since_{}({alias}.id, {moment})", time.reader)
            }
            22 => {
                let (other, limit) = (self.item(), self.random.below(6));
                let operator = self.random.pick(&[">= ANY", "< ANY", "<= ANY", "> ALL", "<= ALL", ">= ALL"]);
                let column = self.random.pick(&["ts", "d", "w"]);
                format!("{} {operator} (SELECT {1}.{column} FROM {other} WHERE {1}.n < {limit})", time.sql, other.alias)
            }
            23 => format!("coalesce({}, false)", self.random_comparison(&time, item, &others)),
            _ => {
                // Two that contradict each other, or leave a few ticks.
                let (from, to) = (moment(self), moment(self));
                let operators = self.random.pick(&[(">=", "<"), (">", "<="), (">", "<"), (">=", "<=")]);
                let from = self.comparison(&time, operators.0, &from, false);
                format!("({from} AND {})", self.comparison(&time, operators.1, &to, false))
            }
        }
    }

    /// An IN with up to five moments.
    fn among_moments(&mut self, time: &Time, item: &Item) -> String {
        let kind = self.random.pick(&["timestamptz", "timestamptz", "date", "timestamp"]);
        let moments = (0..self.random.of(1..=5))
            .map(|_| match self.random.below(16) {
                0 => format!("NULL::{kind}"),
                1 => format!("{kind} 'infinity'"),
                _ if self.parameters.is_some() && self.random.one_in(3) => self.parameter(kind, item, time.reader),
                _ => self.near(kind, item, time.reader),
            })
            .collect::<Vec<_>>();
        if self.spelling.is_time() {
            return format!("{} IN ({})", time.sql, moments.join(", "));
        }
        let arms = moments.iter().map(|moment| self.comparison(time, "=", moment, false)).collect::<Vec<_>>();
        format!("({})", arms.join(" OR "))
    }

    /// A range that holds it or not, with every kind of bound.
    fn in_range(&mut self, time: &Time, item: &Item) -> String {
        let bound = |writer: &mut Self| match writer.random.below(8) {
            0 => "NULL".to_owned(),
            1 => writer.random.pick(&["timestamptz 'infinity'", "timestamptz '-infinity'"]).to_owned(),
            _ => writer.near("timestamptz", item, time.reader),
        };
        let (one, other) = (bound(self), bound(self));
        let (least, greatest) = if one == "NULL" || other == "NULL" {
            (one, other)
        } else {
            (format!("least({one}, {other})"), format!("greatest({one}, {other})"))
        };
        let kinds = self.random.pick(&["[]", "[)", "(]", "()"]);
        let range = match self.random.below(12) {
            0 => "tstzrange 'empty'".to_owned(),
            1 => "NULL::tstzrange".to_owned(),
            _ => format!("tstzrange({least}, {greatest}, '{kinds}')"),
        };
        let range = if self.parameters.is_some() && self.random.one_in(2) {
            self.parameter_of("tstzrange", [range.clone(), "'empty'".to_owned(), range])
        } else {
            range
        };
        let flipped = self.random.one_in(2);
        if let (Some(id), true) = (&time.id, !self.spelling.is_time()) {
            let end = |of: &str, inclusive: &str, exclusive: &str| {
                let limit = format!("{of}({range})");
                let [inclusive, exclusive] =
                    [inclusive, exclusive].map(|operator| self.comparison(time, operator, &limit, false));
                format!(
                    "CASE WHEN {of}_inf({range}) THEN true WHEN {of}_inc({range}) THEN {inclusive} ELSE {exclusive} END"
                )
            };
            let both = format!("{} AND {}", end("lower", ">=", ">"), end("upper", "<=", "<"));
            return format!("CASE WHEN {id} IS NOT NULL THEN NOT isempty({range}) AND {both} END");
        }
        if flipped { format!("{range} @> {}", time.sql) } else { format!("{} <@ {range}", time.sql) }
    }

    /// A condition on the age, from now or any other time.
    fn aged(&mut self, time: &Time, item: &Item) -> String {
        let (moment, months) = (self.near("timestamptz", item, time.reader), self.random.pick(&[0, 0, 0, 1, -1]));
        let flipped = self.random.one_in(4);
        let operator = self.random.pick(&["<", "<=", ">", ">=", "="]);
        let at = match self.random.below(8) {
            0 | 1 => "now()".to_owned(),
            2 => "current_timestamp".to_owned(),
            // No infinite time: a difference with it may raise an error, but only for a row that
            // no other condition excludes before. `pushdown_forms.rs` has those.
            3..=5 if self.parameters.is_some() => {
                let values = [(); 3].map(|()| self.near("timestamptz", item, time.reader));
                self.parameter_of("timestamptz", values)
            }
            _ => self.near("timestamptz", item, time.reader),
        };
        // An interval that is not computed from a parameter, which could raise an error of its own.
        let from = if at.starts_with('$') { "timestamptz '2026-01-01Z'".to_owned() } else { at.clone() };
        let age = format!("({from} - {moment} + interval '{months} months')");
        // As age() counts it, in months.
        if self.random.one_in(3) {
            let age = format!("age({from}, {moment}) + interval '{months} months'");
            let days = self.random.pick(&["0", "0", "1 day", "-1 day", "00:00:00.1"]);
            return format!("age({at}, {}) {operator} {age} + interval '{days}'", time.sql);
        }
        // The time at which that age ends, if the parts of the interval add up to its length.
        if time.id.is_some() && !self.spelling.is_time() && from == at {
            let moment = format!("({moment} - interval '{} hours')", months * 720);
            let operator = match operator {
                "<" => ">",
                "<=" => ">=",
                ">" => "<",
                ">=" => "<=",
                _ => "=",
            };
            return self.comparison(time, operator, &moment, false);
        }
        match (flipped, operator) {
            (false, _) => format!("{at} - {} {operator} {age}", time.sql),
            (true, "<") => format!("{age} > {at} - {}", time.sql),
            (true, "<=") => format!("{age} >= {at} - {}", time.sql),
            (true, ">") => format!("{age} < {at} - {}", time.sql),
            (true, ">=") => format!("{age} <= {at} - {}", time.sql),
            (true, _) => format!("{age} = {at} - {}", time.sql),
        }
    }

    /// A condition on the local time or the day in a zone.
    fn local(&mut self, time: &Time, item: &Item) -> String {
        let zone = self.random.pick(&[
            "UTC",
            "America/Havana",
            "America/St_Johns",
            "Australia/Lord_Howe",
            "Pacific/Apia",
            "CET",
            "<+13:30>-13:30",
        ]);
        let local = format!("({} AT TIME ZONE '{zone}')", time.sql);
        let (kind, local) = match self.random.below(6) {
            0 | 1 => ("date", format!("{}::date", time.sql)),
            2 => ("date", format!("date({local})")),
            3 => ("date", format!("{local}::date")),
            4 => ("timestamp", format!("{}::timestamp", time.sql)),
            _ => ("timestamp", local),
        };
        let operator = self.random.pick(&["<", "<=", "=", ">=", ">"]);
        let x = if self.parameters.is_some() && self.random.one_in(2) {
            self.parameter(kind, item, time.reader)
        } else {
            self.near(kind, item, time.reader)
        };
        if self.random.one_in(4) { format!("{x} {operator} {local}") } else { format!("{local} {operator} {x}") }
    }

    /// An array that is not a constant, or of more elements than are searched for one by one.
    fn any_of_many(&mut self, time: &Time, item: &Item) -> String {
        let array = |writer: &Self, count: i64| {
            let near = |_| {
                if writer.random.one_in(9) { "NULL".to_owned() } else { writer.near("timestamptz", item, time.reader) }
            };
            format!("ARRAY[{}]::timestamptz[]", (0..count).map(near).collect::<Vec<_>>().join(", "))
        };
        let array = if self.parameters.is_some() && self.random.one_in(2) {
            let values = [array(self, 3), "NULL".to_owned(), array(self, self.random.of(0..=2))];
            self.parameter_of("timestamptz[]", values)
        } else if self.random.one_in(2) {
            let other = self.plain_item();
            let limit = self.random.below(6);
            format!("(SELECT array_agg({0}.ts) FROM {other} WHERE {0}.n < {limit})::timestamptz[]", other.alias)
        } else {
            array(self, 120)
        };
        format!("{} = ANY ({array})", time.sql)
    }

    /// Compares what is computed from a time.
    fn of_computed(&mut self, time: &Time, item: &Item) -> String {
        let computed = Computed::new(&time.sql, &self.random);
        let kind = computed.kind(&self.random);
        let near = self.near("timestamptz", item, time.reader);
        let x = match computed.number(&near) {
            Some(number) => {
                let more = ["0", "0", "0", "1", "-1", "0.5", "0.000001", "-0.000001", "'NaN'", "'infinity'"];
                format!("{number} + {}", self.random.pick(&more))
            }
            _ if self.parameters.is_some() && self.random.one_in(2) => self.parameter(kind, item, time.reader),
            _ if self.random.one_in(12) => format!("{kind} '{}infinity'", self.random.pick(&["", "-"])),
            _ => self.near(kind, item, time.reader),
        };
        let operator = self.random.pick(&["<", "<=", "=", ">=", ">"]);
        let flipped = self.random.one_in(4);
        let Computed { sql, .. } = &computed;
        let condition = match (flipped, operator) {
            (false, _) => format!("{sql} {operator} {x}"),
            (true, "<") => format!("{x} > {sql}"),
            (true, "<=") => format!("{x} >= {sql}"),
            (true, ">") => format!("{x} < {sql}"),
            (true, ">=") => format!("{x} <= {sql}"),
            (true, _) => format!("{x} = {sql}"),
        };
        match self.spelling {
            Spelling::BoundOfTheTimeItself if computed.number("").is_none() => {
                format!("({condition} AND {} {operator} {x})", time.sql)
            }
            _ => condition,
        }
    }

    /// A comparison of two rows, of which one begins with a time, or with what is computed from it.
    fn rows(&mut self, time: &Time, item: &Item, others: &[Item]) -> String {
        let operator = self.random.pick(&["<", "<=", ">", ">="]);
        let (first, x) = if self.random.one_in(3) {
            let computed = Computed::new(&time.sql, &self.random);
            let kind = computed.kind(&self.random);
            let x = self.element(&computed, kind, item, time.reader);
            (computed.sql, x)
        } else {
            (time.sql.clone(), self.moment(item, time.reader, others))
        };
        let alias = &item.alias;
        let (second, y) = match &time.id {
            Some(id) if self.random.one_in(2) => {
                (id.clone(), self.random.pick(&self.world.ids[item.relation.of].ids).to_string())
            }
            _ if self.random.one_in(9) => (format!("{alias}.n"), "NULL::integer".to_owned()),
            _ => (format!("{alias}.n"), self.random.below(10).to_string()),
        };
        if self.random.one_in(4) {
            format!("({x}, {y}) {operator} ({first}, {second})")
        } else {
            format!("({first}, {second}) {operator} ({x}, {y})")
        }
    }

    /// A value of a type that is compared with what is computed from a time.
    fn element(&mut self, computed: &Computed, kind: &'static str, item: &Item, reader: usize) -> String {
        let near = self.near("timestamptz", item, reader);
        match self.random.below(12) {
            0 => format!("NULL::{kind}"),
            1 => format!("{kind} '{}'", self.random.pick(&["infinity", "-infinity"])),
            _ if let Some(number) = computed.number(&near) => number,
            2..=4 if self.parameters.is_some() => self.parameter(kind, item, reader),
            _ => self.near(kind, item, reader),
        }
    }

    /// An IN or an array of what is computed from a time.
    fn any_of_computed(&mut self, time: &Time, item: &Item) -> String {
        let computed = Computed::new(&time.sql, &self.random);
        let kind = computed.kind(&self.random);
        let column = match kind {
            "timestamptz" => Some("ts"),
            "date" => Some("d"),
            "timestamp" => Some("w"),
            _ => None,
        };
        let list = |writer: &mut Self, count: i64| {
            (0..count).map(|_| writer.element(&computed, kind, item, time.reader)).collect::<Vec<_>>().join(", ")
        };
        let sql = &computed.sql;
        match (self.random.below(6), column) {
            (0, Some(_)) if self.parameters.is_some() => {
                let array = |writer: &Self, count| {
                    let near = (0..count).map(|_| writer.near(kind, item, time.reader)).collect::<Vec<_>>().join(", ");
                    format!("ARRAY[{near}]::{kind}[]")
                };
                let values = [array(self, 3), "NULL".to_owned(), array(self, self.random.of(0..=2))];
                let parameter = self.parameter_of(array_of(kind), values);
                format!("{sql} = ANY ({parameter})")
            }
            (1, Some(column)) => {
                let other = self.plain_item();
                let limit = self.random.below(6);
                format!(
                    "{sql} = ANY ((SELECT array_agg({0}.{column}) FROM {other} WHERE {0}.n < {limit})::{kind}[])",
                    other.alias
                )
            }
            (2, _) => format!("{sql} = ANY (ARRAY[{}]::{kind}[])", list(self, 110)),
            _ => {
                let count = self.random.of(1..=5);
                format!("{sql} IN ({})", list(self, count))
            }
        }
    }

    fn random_comparison(&mut self, time: &Time, item: &Item, others: &[Item]) -> String {
        let operator = self.random.pick(&["<", "<=", ">", ">="]);
        let moment = self.moment(item, time.reader, others);
        let flipped = self.random.one_in(4);
        self.comparison(time, operator, &moment, flipped)
    }

    /// Compares an id's time with a moment, in the given spelling. Takes no random number, so that
    /// every spelling belongs to the same query.
    fn comparison(&self, time: &Time, operator: &str, moment: &str, flipped: bool) -> String {
        let (Some(id), true) = (&time.id, !self.spelling.is_time()) else {
            return match (flipped, operator) {
                (false, _) => format!("{} {operator} {moment}", time.sql),
                (true, "<") => format!("{moment} > {}", time.sql),
                (true, "<=") => format!("{moment} >= {}", time.sql),
                (true, ">") => format!("{moment} < {}", time.sql),
                (true, "=") => format!("{moment} = {}", time.sql),
                (true, _) => format!("{moment} <= {}", time.sql),
            };
        };
        let ids = &self.world.ids[time.reader];
        let (mut bound, mut other) = ("snowflake_before", "snowflake_until");
        if matches!(operator, ">" | "<=") {
            (bound, other) = (other, bound);
        }
        if self.spelling == Spelling::OtherBound {
            (bound, other) = (other, bound);
        }
        let late = if self.spelling == Spelling::BoundOneTickLate {
            1 + (ids.layout.max_id() >> ids.layout.last_tick().count_ones())
        } else {
            0
        };
        if operator == "=" {
            let text = &ids.text;
            return format!(
                "({id} - {late} > {bound}({moment}, '{text}') AND {id} - {late} <= {other}({moment}, '{text}'))"
            );
        }
        let comparison = if matches!(operator, ">" | ">=") { ">" } else { "<=" };
        format!("{id} - {late} {comparison} {bound}({moment}, '{}')", ids.text)
    }

    // Statements that read

    /// A query, and how many columns it has (0: it cannot be part of another).
    fn select(&mut self) -> (usize, String) {
        match self.random.below(27) {
            22..=25 => self.in_order(),
            0..=4 => self.plain(),
            5..=8 => self.join(),
            9 => self.exists(),
            10 => self.among(),
            11 => self.with(),
            12 => self.set_operation(),
            13 => self.lateral(),
            14 => self.groups(),
            15 => self.having(),
            16 => self.scalar(),
            17 => self.window(),
            18 => self.recursive(),
            19 => self.function(),
            20 => self.locked(),
            21 => self.computed(),
            _ => self.aggregate(),
        }
    }

    fn plain(&mut self) -> (usize, String) {
        let a = self.item();
        (2, format!("SELECT {} FROM {a} WHERE {}", a.columns(), self.condition(only(&a), &[])))
    }

    /// The first rows in the order of time. If the order is total, with their places.
    fn in_order(&mut self) -> (usize, String) {
        let a = self.item();
        let mut from = a.to_string();
        if a.parsed.is_none() && a.relation.writes != Writes::No {
            match self.random.below(12) {
                0 | 1 => from = format!("ONLY {from}"),
                2 => from += " TABLESAMPLE BERNOULLI (70) REPEATABLE (7)",
                _ => (),
            }
        }
        let time = self.time(&a);
        let condition = self.condition_of_first(&a);
        if self.random.one_in(3) {
            let b = self.item();
            from = format!("{from} JOIN {b} ON {}.n = {}.n AND {}", a.alias, b.alias, self.condition(only(&b), &[]));
        }
        let direction = self.random.pick(&["", "", " DESC", " DESC", " DESC NULLS LAST", " NULLS FIRST"]);
        let second = self.random.pick(&["", " DESC"]);
        let is_total = !self.random.one_in(3);
        let limit = if is_total {
            self.random.pick(&["", " LIMIT 1", " LIMIT 5", " LIMIT 20 OFFSET 3", " FETCH FIRST 5 ROWS WITH TIES"])
        } else {
            self.random.pick(&["", " FETCH FIRST 5 ROWS WITH TIES"])
        };
        let columns = format!("{}, {} AS time", a.columns(), time.sql);
        let first = self.key_of_order(&time);
        if !is_total {
            return (0, format!("SELECT {columns} FROM {from} WHERE {condition} ORDER BY {first}{direction}{limit}"));
        }
        // The id, or the first column.
        let last = if a.relation.shows_id { format!("{}.id", a.alias) } else { "1".to_owned() };
        let keys = format!("{first}{direction}, {}.n{second}, {last}", a.alias);
        let sorted = format!("SELECT {columns} FROM {from} WHERE {condition} ORDER BY {keys}{limit}");
        (0, format!("SELECT s.*, row_number() OVER () FROM ({sorted}) s"))
    }

    fn key_of_order(&self, time: &Time) -> String {
        match &time.id {
            Some(id) if self.spelling == Spelling::OrderOfIds => id.clone(),
            _ => time.sql.clone(),
        }
    }

    /// A join of two or three, with conditions on its sides in ON and WHERE.
    fn join(&mut self) -> (usize, String) {
        let mut items = vec![self.item()];
        let mut from = items[0].to_string();
        for _ in 0..self.random.pick(&[1, 1, 2]) {
            let item = self.item();
            let kind = self.random.pick(&["JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
            let at = self.random.below(items.len());
            from += &format!(" {kind} {item} ON {}.n = {}.n", items[at].alias, item.alias);
            items.push(item);
            if self.random.one_in(2) {
                from += &format!(" AND {}", self.condition(&items, &[]));
            }
        }
        let columns = items.iter().map(Item::columns).collect::<Vec<_>>();
        let condition = if self.random.one_in(4) { "true".to_owned() } else { self.condition(&items, &[]) };
        (2 * items.len(), format!("SELECT {} FROM {from} WHERE {condition}", columns.join(", ")))
    }

    /// A semi-join or an anti-join.
    fn exists(&mut self) -> (usize, String) {
        let (a, b) = (self.item(), self.item());
        let kind = self.random.pick(&["EXISTS", "NOT EXISTS"]);
        let same = if self.random.one_in(2) { format!("{}.n = {}.n", b.alias, a.alias) } else { "true".to_owned() };
        let (inner, outer) = (self.condition(only(&b), only(&a)), self.condition(only(&a), &[]));
        let exists = format!("{kind} (SELECT FROM {b} WHERE {same} AND {inner})");
        (2, format!("SELECT {} FROM {a} WHERE {exists} AND {outer}", a.columns()))
    }

    fn among(&mut self) -> (usize, String) {
        let (a, b) = (self.item(), self.item());
        let kind = self.random.pick(&["IN", "NOT IN"]);
        let (inner, outer) = (self.condition(only(&b), &[]), self.condition(only(&a), &[]));
        let among = format!("{}.n {kind} (SELECT {}.n FROM {b} WHERE {inner})", a.alias, b.alias);
        (2, format!("SELECT {} FROM {a} WHERE {among} AND {outer}", a.columns()))
    }

    fn with(&mut self) -> (usize, String) {
        let a = self.item();
        let c = Item { alias: "c".to_owned(), relation: a.relation, parsed: None };
        let (inner, outer) = (self.condition(only(&a), &[]), self.condition(only(&c), &[]));
        let kind = self.random.pick(&["", " MATERIALIZED", " NOT MATERIALIZED"]);
        let with = format!("WITH c AS{kind} (SELECT {}.* FROM {a} WHERE {inner})", a.alias);
        (2, format!("{with} SELECT {} FROM c WHERE {outer}", c.columns()))
    }

    fn set_operation(&mut self) -> (usize, String) {
        let a = self.item();
        let b = self.item_of(|relation| relation.name == a.relation.name);
        let u = Item { alias: "u".to_owned(), relation: a.relation, parsed: None };
        let kind = self.random.pick(&["UNION ALL", "UNION ALL", "UNION", "EXCEPT", "INTERSECT"]);
        let [one, other] = [&a, &b]
            .map(|item| format!("SELECT {}.* FROM {item} WHERE {}", item.alias, self.condition(only(item), &[])));
        let condition = self.condition(only(&u), &[]);
        (2, format!("SELECT {} FROM ({one} {kind} {other}) u WHERE {condition}", u.columns()))
    }

    fn lateral(&mut self) -> (usize, String) {
        let (a, b) = (self.item(), self.item());
        let (inner, outer) = (self.condition(only(&b), only(&a)), self.condition(only(&a), &[]));
        let top = self.random.pick(&["", " ORDER BY 1, 2 LIMIT 3"]);
        let lateral = format!("LATERAL (SELECT {} FROM {b} WHERE {inner}{top}) l", b.columns());
        let join = self.random.pick(&["JOIN", "LEFT JOIN"]);
        (4, format!("SELECT {}, l.* FROM {a} {join} {lateral} ON true WHERE {outer}", a.columns()))
    }

    /// A time that is computed in a subquery. An outer join may make it NULL although the id is
    /// there.
    fn computed(&mut self) -> (usize, String) {
        let (a, b) = (self.item(), self.item());
        let (time, moment) = (self.time(&a).sql, self.constant(&a, a.relation.of));
        let (outer, n) = (self.condition(only(&a), &[]), self.random.below(10));
        let from = match self.random.below(3) {
            0 => String::new(),
            1 => format!(" FROM (SELECT) b WHERE {}.n > {n}", a.alias),
            _ => format!(" FROM {b} WHERE {}.n = {}.n LIMIT 1", b.alias, a.alias),
        };
        let join = self.random.pick(&["JOIN", "LEFT JOIN", "LEFT JOIN"]);
        let (operator, connective) =
            (self.random.pick(&["<", "<=", ">", ">="]), self.random.pick(&["AND", "OR", "OR"]));
        let joined = format!("{a} {join} LATERAL (SELECT {time} AS time{from}) l ON {}.n <> {n}", a.alias);
        let condition = format!("l.time {operator} {moment} {connective} {outer}");
        (3, format!("SELECT {}, l.time FROM {joined} WHERE {condition}", a.columns()))
    }

    fn groups(&mut self) -> (usize, String) {
        let a = self.item();
        let (time, condition) = (self.time(&a).sql, self.condition(only(&a), &[]));
        let moment = self.constant(&a, a.relation.of);
        let having = match self.random.below(3) {
            0 => "count(*) > 1".to_owned(),
            1 => format!("min({time}) < {moment}"),
            _ => format!("max({time}) >= {moment}"),
        };
        let hour = format!("date_trunc('hour', {time})");
        let by = self.random.pick(&["1", "1", "ROLLUP (1)", "GROUPING SETS ((1), ())"]);
        (2, format!("SELECT {hour}, count(*) FROM {a} WHERE {condition} GROUP BY {by} HAVING {having}"))
    }

    /// A HAVING that becomes a WHERE.
    fn having(&mut self) -> (usize, String) {
        let a = self.item();
        let condition = self.condition(only(&a), &[]);
        let mut keys = vec!["n", "ts", "d", "w"];
        keys.extend(a.relation.shows_id.then_some("id"));
        keys.extend(a.relation.created_at.map(|_| "created_at"));
        let parsed = a.parsed.iter().map(|parsed| format!("{}.created_at", parsed.alias));
        let keys =
            keys.iter().map(|column| format!("{}.{column}", a.alias)).chain(parsed).collect::<Vec<_>>().join(", ");
        (3, format!("SELECT {}, count(*) FROM {a} GROUP BY {keys} HAVING {condition}", a.columns()))
    }

    fn scalar(&mut self) -> (usize, String) {
        let (a, b) = (self.item(), self.item());
        let (inner, outer) = (self.condition(only(&b), only(&a)), self.condition(only(&a), &[]));
        (3, format!("SELECT {}, (SELECT count(*) FROM {b} WHERE {inner}) FROM {a} WHERE {outer}", a.columns()))
    }

    /// A condition that is pushed below a window only if it is one on the partition's key.
    fn window(&mut self) -> (usize, String) {
        let a = self.plain_item();
        let w = Item { alias: "w".to_owned(), relation: a.relation, parsed: None };
        let key = if a.relation.shows_id { "id" } else { "created_at" };
        let inner = format!("SELECT *, count(*) OVER (PARTITION BY {key}) AS times FROM {a}");
        let condition = self.condition(only(&w), &[]);
        (3, format!("SELECT {}, w.times FROM ({inner}) w WHERE {condition}", w.columns()))
    }

    fn recursive(&mut self) -> (usize, String) {
        let (a, b) = (self.item(), self.item());
        let (start, step) = (self.condition(only(&a), &[]), self.condition(only(&b), &[]));
        let start = format!("SELECT {}.n, 0 FROM {a} WHERE {start}", a.alias);
        let step = format!("SELECT {0}.n, depth + 1 FROM r JOIN {b} ON {0}.n = r.n + 1 WHERE {step}", b.alias);
        (2, format!("WITH RECURSIVE r(n, depth) AS ({start} UNION {step}) SELECT n, depth FROM r"))
    }

    /// A function that returns a set: inlined, or planned by itself.
    fn function(&mut self) -> (usize, String) {
        let a = self.item();
        let (name, of) = (self.random.pick(&["since", "until"]), a.relation.of);
        let (moment, condition) = (self.constant(&a, of), self.condition(only(&a), &[]));
        (1, format!("SELECT f.id FROM {name}_{of}({moment}) f(id) JOIN {a} ON {condition}"))
    }

    fn locked(&mut self) -> (usize, String) {
        let a = self.item_of(|relation| relation.writes != Writes::No);
        let strength = self.random.pick(&["UPDATE", "SHARE", "KEY SHARE"]);
        let condition = self.condition(only(&a), &[]);
        (0, format!("SELECT {} FROM {a} WHERE {condition} FOR {strength}", a.columns()))
    }

    fn aggregate(&mut self) -> (usize, String) {
        let a = self.item();
        let (time, condition) = (self.time(&a).sql, self.condition(only(&a), &[]));
        (4, format!("SELECT count(*), min({time}), max({time}), sum({}.n) FROM {a} WHERE {condition}", a.alias))
    }

    // Statements that write

    /// A statement that writes, and the table it changes. What it writes does not depend on the
    /// order of rows.
    fn change(&mut self) -> (String, String) {
        let is_upsert = self.random.one_in(8);
        let a = self.item_of(|relation| relation.writes == Writes::Key || relation.writes == Writes::Yes && !is_upsert);
        let b = self.item();
        let sql = match self.random.below(8) {
            _ if is_upsert => self.upsert(&a, &b),
            6 | 7 => self.change_first(&a),
            0 => self.update(&a),
            1 => self.update_from(&a, &b),
            2 => self.delete(&a),
            3 => self.delete_using(&a, &b),
            4 => self.merge(&a, &b),
            _ => self.with_delete(&a, &b),
        };
        (a.relation.name.clone(), sql)
    }

    fn update(&mut self, a: &Item) -> String {
        let condition = self.condition(only(a), &[]);
        format!("UPDATE {a} SET n = {}.n + 100 WHERE {condition} RETURNING {}", a.alias, a.columns())
    }

    fn update_from(&mut self, a: &Item, b: &Item) -> String {
        let (same, condition) = (format!("{}.n = {}.n", a.alias, b.alias), self.condition(only(a), only(b)));
        let set = format!("SET n = {}.n + 100 FROM {b}", a.alias);
        format!("UPDATE {a} {set} WHERE {same} AND {condition} RETURNING {}", a.columns())
    }

    fn delete(&mut self, a: &Item) -> String {
        format!("DELETE FROM {a} WHERE {} RETURNING {}", self.condition(only(a), &[]), a.columns())
    }

    /// Deletes or updates the first rows in the order of time.
    fn change_first(&mut self, a: &Item) -> String {
        let b = self.item_of(|relation| relation.name == a.relation.name);
        let time = self.time(&b);
        let condition = self.condition_of_first(&b);
        let (keys, direction) = (self.key_of_order(&time), self.random.pick(&["", " DESC"]));
        let limit = if self.random.one_in(2) {
            format!("{direction}, {0}.n, {0}.id LIMIT 10", b.alias)
        } else {
            format!("{direction} FETCH FIRST 5 ROWS WITH TIES")
        };
        let first = format!("SELECT {}.id FROM {b} WHERE {condition} ORDER BY {keys}{limit}", b.alias);
        let (alias, columns) = (&a.alias, a.columns());
        if self.random.one_in(2) {
            format!("DELETE FROM {a} WHERE {alias}.id IN ({first}) RETURNING {columns}")
        } else {
            format!("UPDATE {a} SET n = {alias}.n + 100 WHERE {alias}.id IN ({first}) RETURNING {columns}")
        }
    }

    fn delete_using(&mut self, a: &Item, b: &Item) -> String {
        let same = format!("{}.n = {}.n", a.alias, b.alias);
        let condition = self.condition(&[a.clone(), b.clone()], &[]);
        format!("DELETE FROM {a} USING {b} WHERE {same} AND {condition} RETURNING {}", a.columns())
    }

    fn merge(&mut self, a: &Item, b: &Item) -> String {
        let conditions = (self.condition(only(b), &[]), self.condition(only(a), &[]), self.condition(only(a), &[]));
        let (source, on, when) = conditions;
        // Distinct: no row may be affected twice.
        let using = format!("(SELECT DISTINCT {}.n FROM {b} WHERE {source}) s", b.alias);
        let update = format!("WHEN MATCHED AND {when} THEN UPDATE SET n = {}.n + 100", a.alias);
        format!("MERGE INTO {a} USING {using} ON {}.n = s.n AND {on} {update} WHEN MATCHED THEN DELETE", a.alias)
    }

    fn with_delete(&mut self, a: &Item, b: &Item) -> String {
        let (deleted, joined) = (self.condition(only(a), &[]), self.condition(only(b), &[]));
        let with = format!("WITH gone AS (DELETE FROM {a} WHERE {deleted} RETURNING {}.*)", a.alias);
        format!("{with} SELECT gone.id, {}.n FROM gone JOIN {b} ON {joined}", b.alias)
    }

    fn upsert(&mut self, a: &Item, b: &Item) -> String {
        let (inner, condition) = (self.condition(only(b), &[]), self.condition(only(a), &[]));
        let Item { alias, relation, .. } = a;
        let rows = format!("SELECT id, n FROM {} WHERE EXISTS (SELECT FROM {b} WHERE {inner})", relation.name);
        let update = format!("ON CONFLICT (id) DO UPDATE SET n = excluded.n + 100 WHERE {condition}");
        format!("INSERT INTO {} AS {alias} (id, n) {rows} {update} RETURNING {}", relation.name, a.columns())
    }
}

/// The name of the type of arrays of a type.
fn array_of(kind: &str) -> &'static str {
    match kind {
        "date" => "date[]",
        "timestamp" => "timestamp[]",
        _ => "timestamptz[]",
    }
}
