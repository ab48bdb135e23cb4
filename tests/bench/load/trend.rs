//! Whether a value stayed constant: the line through its samples, and its permitted rise.

/// The trend of a column.
pub(crate) struct Trend {
    /// The mean.
    pub(crate) mean: f64,
    /// The rise of the line from the first sample to the last.
    pub(crate) rise: f64,
}

/// The largest rise of a line in the observed time that counts as flat.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flat {
    /// As a part of the mean.
    pub(crate) part: f64,
    /// In addition, for small values.
    pub(crate) beside: f64,
}

impl Trend {
    /// The least-squares line through points of time and value.
    #[expect(clippy::cast_precision_loss, reason = "some hundred samples")]
    pub(crate) fn of(points: &[(f64, f64)]) -> Self {
        let count = points.len().max(1) as f64;
        let mean_of = |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / count;
        let (time, mean) = (mean_of(|point| point.0), mean_of(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - time).powi(2)).sum();
        let common: f64 = points.iter().map(|point| (point.0 - time) * (point.1 - mean)).sum();
        let lasts = points.last().map_or(0.0, |last| last.0 - points[0].0);
        let rise = if spread > 0.0 { common / spread * lasts } else { 0.0 };
        Self { mean, rise }
    }

    /// The permitted rise.
    pub(crate) fn bound(&self, flat: Flat) -> f64 {
        self.mean * flat.part + flat.beside
    }
}
