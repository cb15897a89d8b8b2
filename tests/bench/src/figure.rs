//! A figure: what was measured, what it is compared with, and the bar that it has to reach.

use crate::series::{Series, least, median, quantile};

/// How the figure follows from what was measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// The median of what was measured by the median of the yardstick.
    Ratio,
    /// The median of what was measured less the median of the yardstick.
    Difference,
    /// The least of what was measured less the least of the yardstick. For what takes nanoseconds,
    /// to which other load on the machine adds more than the figure itself.
    LeastDifference,
    /// The median of what was measured.
    Alone,
}

/// What the figure has to reach.
#[derive(Clone, Copy)]
pub enum Bar {
    AtMost(f64),
    /// Also reached if the difference of the two medians is within the yardstick's own spread,
    /// which is half of the distance between its first and its third quartile.
    AtMostOrSpread(f64),
    AtLeast(f64),
    Exactly(f64),
    /// Too large or too small by at most this factor.
    Factor(f64),
    /// No bar: only for information.
    None,
}

/// Whether the bar is reached.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Ok,
    WithinSpread,
    Missed,
    /// There is no bar.
    Reported,
}

/// The results of a group of figures.
#[derive(Default)]
pub struct Measured {
    pub figures: Vec<Figure>,
    /// Figures that could not be measured here, and why.
    pub left_out: Vec<String>,
    /// What is a table of its own, in Markdown.
    pub tables: Vec<String>,
}

impl Measured {
    /// Notes that a figure could not be measured here, and why.
    pub fn left_out(figure: &str, why: &str) -> Self {
        Self { left_out: vec![format!("{figure}: {why}")], ..Self::default() }
    }
}

impl From<Vec<Figure>> for Measured {
    fn from(figures: Vec<Figure>) -> Self {
        Self { figures, ..Self::default() }
    }
}

/// One line of the table.
pub struct Figure {
    pub subject: Series,
    /// What it is compared with; `None` for [`Relation::Alone`].
    pub yardstick: Option<Series>,
    relation: Relation,
    pub bar: Bar,
}

impl Figure {
    /// Compares what was measured with a yardstick, measured in the same runs.
    pub fn ratio(subject: &Series, yardstick: &Series, bar: Bar) -> Self {
        Self { subject: subject.clone(), yardstick: Some(yardstick.clone()), relation: Relation::Ratio, bar }
    }

    /// Subtracts a yardstick that was measured in the same runs.
    pub fn difference(subject: &Series, yardstick: &Series, bar: Bar) -> Self {
        Self { relation: Relation::Difference, ..Self::ratio(subject, yardstick, bar) }
    }

    /// Subtracts the least value of a yardstick that was measured in the same runs from the least
    /// of the subject.
    pub fn least_difference(subject: &Series, yardstick: &Series, bar: Bar) -> Self {
        Self { relation: Relation::LeastDifference, ..Self::ratio(subject, yardstick, bar) }
    }

    /// Takes the measured values as they are.
    pub fn alone(subject: &Series, bar: Bar) -> Self {
        Self { subject: subject.clone(), yardstick: None, relation: Relation::Alone, bar }
    }

    /// Returns the unit of the figure itself; a ratio has none.
    pub fn unit(&self) -> &'static str {
        if self.relation == Relation::Ratio { "" } else { self.subject.unit }
    }

    /// Describes the figure in words.
    pub fn name(&self) -> String {
        match (&self.yardstick, self.relation) {
            (Some(yardstick), Relation::Ratio) => format!("{} / {}", self.subject.what, yardstick.what),
            (Some(yardstick), Relation::LeastDifference) => {
                format!("{} - {}, least of each", self.subject.what, yardstick.what)
            }
            (Some(yardstick), _) => format!("{} - {}", self.subject.what, yardstick.what),
            (None, _) => self.subject.what.clone(),
        }
    }

    /// Whether the figure is a ratio, which has no unit.
    pub fn is_ratio(&self) -> bool {
        self.relation == Relation::Ratio
    }

    /// Returns the figure.
    pub fn value(&self) -> f64 {
        self.relate(self.of_runs(&self.subject), self.yardstick.as_ref().map(|yardstick| self.of_runs(yardstick)))
    }

    /// Returns the value of a series that the figure takes for all of its runs.
    pub fn of_runs(&self, series: &Series) -> f64 {
        if self.relation == Relation::LeastDifference { least(&series.values) } else { median(&series.values) }
    }

    /// Returns the least and the greatest figure of single runs.
    pub fn spread(&self) -> (f64, f64) {
        let of_run = |run: usize| {
            self.relate(self.subject.values[run], self.yardstick.as_ref().map(|yardstick| yardstick.values[run]))
        };
        let runs: Vec<_> = (0..self.subject.values.len()).map(of_run).collect();
        (quantile(&runs, 0.0), quantile(&runs, 1.0))
    }

    fn relate(&self, subject: f64, yardstick: Option<f64>) -> f64 {
        match (self.relation, yardstick) {
            (Relation::Ratio, Some(yardstick)) => subject / yardstick,
            (Relation::Difference | Relation::LeastDifference, Some(yardstick)) => subject - yardstick,
            _ => subject,
        }
    }

    /// Returns whether the bar is reached.
    pub fn verdict(&self) -> Verdict {
        let value = self.value();
        let reached = match self.bar {
            Bar::AtMost(bar) | Bar::AtMostOrSpread(bar) => value <= bar,
            Bar::AtLeast(bar) => value >= bar,
            Bar::Exactly(bar) => value == bar,
            Bar::Factor(bar) => value <= bar && value >= 1.0 / bar,
            Bar::None => return Verdict::Reported,
        };
        if reached {
            Verdict::Ok
        } else if matches!(self.bar, Bar::AtMostOrSpread(_)) && self.is_within_spread() {
            Verdict::WithinSpread
        } else {
            Verdict::Missed
        }
    }

    fn is_within_spread(&self) -> bool {
        self.yardstick.as_ref().is_some_and(|yardstick| {
            let width = quantile(&yardstick.values, 0.75) - quantile(&yardstick.values, 0.25);
            median(&self.subject.values) - median(&yardstick.values) <= width / 2.0
        })
    }
}
