//! Parse errors of one exchange.

use tokengauge_llm::frame::ParseError;

/// Parse errors by kind, with the count of each.
#[derive(Debug, Default)]
pub(super) struct Anomalies(Vec<(ParseError, u32)>);

impl Anomalies {
    pub(super) fn note(&mut self, anomaly: ParseError) {
        match self.0.iter_mut().find(|(known, _)| *known == anomaly) {
            Some((_, times)) => *times = times.saturating_add(1),
            None => self.0.push((anomaly, 1)),
        }
    }

    pub(super) fn take(&mut self) -> Vec<(ParseError, u32)> {
        std::mem::take(&mut self.0)
    }
}
