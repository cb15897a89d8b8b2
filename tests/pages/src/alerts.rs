//! The alerts of `monitoring/alerts.yaml`, which two tables have: `docs/monitor.md` says when each
//! one fires, and `docs/runbook.md`, which an administrator on call enters by an alert's name, says
//! what to do. Their rows must say what the rules say.

use std::collections::BTreeMap;

/// What a rule or a row says of an alert, as far as it does.
type Alerts = BTreeMap<String, Vec<String>>;

/// Returns what differs between the rules and the rows of the two pages.
#[must_use]
pub fn faults(rules: &str, monitor: &str, runbook: &str) -> Vec<String> {
    let rules = of_rules(rules);
    let entries = rules.iter().map(|(alert, said)| (alert.clone(), said[2..].to_vec())).collect();
    let mut faults = differences("docs/monitor.md", &rules, &of_rows(monitor, "runbook.md#", 2));
    faults.extend(differences("docs/runbook.md", &entries, &of_rows(runbook, "#", 0)));
    faults
}

fn differences(page: &str, rules: &Alerts, rows: &Alerts) -> Vec<String> {
    let wrong = rules.iter().filter(|(alert, said)| rows.get(*alert) != Some(said));
    let wrong = wrong.map(|(alert, said)| match rows.get(alert) {
        Some(row) => format!("{page}: the row of {alert} says {row:?}, and the rule {said:?}"),
        None => format!("{page}: no row has {alert}"),
    });
    let extra = rows.keys().filter(|alert| !rules.contains_key(*alert));
    wrong.chain(extra.map(|alert| format!("{page}: there is no alert {alert}"))).collect()
}

/// The severity, the time for which it must last, and the entry of the runbook, of each rule.
fn of_rules(rules: &str) -> Alerts {
    let mut alerts = Alerts::new();
    for rule in rules.split("- alert: ").skip(1) {
        let value = |before: &str, after: &str| {
            let rest = rule.split_once(before).map_or("", |(_, rest)| rest);
            rest.split(after).next().unwrap_or_default().to_owned()
        };
        let said = [value("labels: {severity: ", "}"), value(" for: ", "\n"), value("runbook: docs/runbook.md#", "\n")];
        alerts.insert(rule.lines().next().unwrap_or_default().to_owned(), said.to_vec());
    }
    alerts
}

/// The first cells of each row, and the first entry that its last cell leads to.
fn of_rows(page: &str, link: &str, cells: usize) -> Alerts {
    let row = |line: &str| {
        let (alert, rest) = line.strip_prefix("| `Snowflake")?.split_once("` | ")?;
        let mut said: Vec<_> = rest.split(" | ").take(cells).map(str::to_owned).collect();
        let entry = line.split_once(&format!("]({link}")).and_then(|(_, rest)| rest.split_once(')'));
        said.push(entry.map_or_else(String::new, |(entry, _)| entry.to_owned()));
        Some((format!("Snowflake{alert}"), said))
    };
    page.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "      - alert: SnowflakeOne\n        expr: x > 0\n        for: 1m\n        \
                         labels: {severity: critical}\n        annotations:\n          runbook: docs/runbook.md#one\n";

    #[test]
    fn rows_that_say_what_the_rules_say_have_no_fault() {
        let monitor = "| `SnowflakeOne` | critical | 1m | It is so. | [One](runbook.md#one), [two](runbook.md#two) |\n";
        assert_eq!(faults(RULES, monitor, "| `SnowflakeOne` | [One](#one) |\n"), [""; 0]);
    }

    #[test]
    fn each_difference_is_noticed() {
        let monitor = "| `SnowflakeOne` | critical | 1m | It is so. | [One](runbook.md#one) |\n";
        let runbook = "| `SnowflakeOne` | [One](#one) |\n";
        for (old, new) in [("critical", "warning"), ("1m", "2m"), ("md#one", "md#two"), (monitor, "")] {
            assert_eq!(faults(RULES, &monitor.replace(old, new), runbook).len(), 1, "{old}");
        }
        assert_eq!(faults(RULES, monitor, "| `SnowflakeOne` | [One](#two) |\n").len(), 1);
        assert_eq!(faults(RULES, monitor, &format!("{runbook}| `SnowflakeTwo` | [Two](#two) |\n")).len(), 1);
    }

    #[test]
    fn the_rules_are_read() {
        let path = crate::root().join("monitoring/alerts.yaml");
        let rules = of_rules(&std::fs::read_to_string(path).unwrap());
        assert!(rules.len() > 30);
        assert!(rules.values().flatten().all(|said| !said.is_empty() && !said.contains(' ')), "{rules:?}");
    }
}
