//! The values of a measurement's runs.

/// One value per run.
#[derive(Clone)]
pub struct Series {
    /// The name of the measurement in the table.
    pub what: String,
    pub unit: &'static str,
    pub values: Vec<f64>,
}

impl Series {
    /// Makes a series of the values of all runs.
    pub fn new(what: impl Into<String>, unit: &'static str, values: Vec<f64>) -> Self {
        Self { what: what.into(), unit, values }
    }

    /// Makes a series of a value that is the same in every run.
    pub fn constant(what: impl Into<String>, unit: &'static str, value: f64, runs: usize) -> Self {
        Self::new(what, unit, vec![value; runs])
    }

    /// Subtracts another series from this one, run by run.
    pub fn less(&self, other: &Self) -> Self {
        let values = self.values.iter().zip(&other.values).map(|(value, other)| value - other).collect();
        Self::new(self.what.clone(), self.unit, values)
    }
}

/// Returns the quantile of a share (0 to 1) of the values, interpolated between two of them.
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

/// Measures every subject once per run. Each run begins with another subject, so that nothing that
/// drifts (a clock rate, a disk's cache) favours one of them. The result of an additional first run
/// is discarded. Returns the values of each subject.
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
