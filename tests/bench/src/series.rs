//! What the runs of one measurement gave.

/// One value per run.
#[derive(Clone)]
pub struct Series {
    /// What was measured, as the table calls it.
    pub what: String,
    pub unit: &'static str,
    pub values: Vec<f64>,
}

impl Series {
    /// Makes a series of the values of all runs.
    pub fn new(what: impl Into<String>, unit: &'static str, values: Vec<f64>) -> Self {
        Self { what: what.into(), unit, values }
    }

    /// Makes a series of what is the same in every run.
    pub fn constant(what: impl Into<String>, unit: &'static str, value: f64, runs: usize) -> Self {
        Self::new(what, unit, vec![value; runs])
    }

    /// Subtracts another series from this one, run by run.
    pub fn less(&self, other: &Self) -> Self {
        let values = self.values.iter().zip(&other.values).map(|(value, other)| value - other).collect();
        Self::new(self.what.clone(), self.unit, values)
    }
}

/// Returns the value that a share of all values (0 to 1) is not above, between two of them in
/// proportion.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let position = share * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
    low + (high - low) * position.fract()
}

/// Returns the median.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Returns the least value.
pub fn least(values: &[f64]) -> f64 {
    quantile(values, 0.0)
}

/// Measures every subject once per run, each run beginning with another subject, so that nothing
/// that drifts (a clock rate, a disk's cache) favours one of them. A run before the first is thrown
/// away. Returns the values of each subject.
pub fn in_turn<E>(
    runs: usize,
    subjects: usize,
    mut measure: impl FnMut(usize) -> Result<f64, E>,
) -> Result<Vec<Vec<f64>>, E> {
    let mut values = vec![Vec::with_capacity(runs); subjects];
    for run in 0..=runs {
        for turn in 0..subjects {
            let subject = (run + turn) % subjects;
            let value = measure(subject)?;
            if run > 0 {
                values[subject].push(value);
            }
        }
    }
    Ok(values)
}
