//! Time limits of SLOs for requests in flight. A request that exceeds a limit counts as bad at that moment, not only
//! when it ends.

use std::time::Duration;

use crate::slo::scope::Subject;
use crate::slo::{Objective, Sli};
use tokengauge_llm::dialect::Operation;
use tokengauge_types::clock::MonotonicInstant;

/// Time limit of one SLO for one request in flight.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Deadline {
    /// Index of the SLO.
    pub objective: usize,
    /// Longest time since the receipt of the request headers that counts as good. Time in which the client did not read
    /// is not included.
    pub limit: Duration,
    pub event: DeadlineEvent,
}

/// The event that meets a deadline.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DeadlineEvent {
    FirstToken,
    End,
}

impl Objective {
    /// Returns the time limit of this SLO for a request in scope, accepted at `accepted`.
    ///
    /// Returns `None` if only the end of the request decides the verdict. For example, a response without visible text
    /// can be a tool call, and failures in `exclude` do not count.
    pub(super) fn deadline(
        &self,
        subject: &Subject<'_>,
        accepted: MonotonicInstant,
    ) -> Option<(Duration, DeadlineEvent)> {
        let is_counted = self.counting.exclude.is_empty()
            && accepted >= MonotonicInstant::ZERO + self.counting.warmup
            && subject.operation != Operation::Realtime;
        let limit = match self.indicator {
            Sli::Ttft(limit) if subject.stream => (limit, DeadlineEvent::FirstToken),
            Sli::Duration(limit) => (limit, DeadlineEvent::End),
            Sli::Ttft(_)
            | Sli::FirstVisible(_)
            | Sli::Availability
            | Sli::OutputRate(_)
            | Sli::TotalRate(_)
            | Sli::StallFree
            | Sli::InterToken(_)
            | Sli::TokensAboveRate(_)
            | Sli::SystemRate { .. } => return None,
        };
        is_counted.then_some(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slo::{CountingRules, Exclusion};
    use crate::testing::{at, objective};
    use tokengauge_types::label::Label;

    const SECOND: Duration = Duration::from_secs(1);

    fn deadline(indicator: Sli, counting: CountingRules, stream: bool) -> Option<DeadlineEvent> {
        let objective = Objective { indicator, counting, ..objective("a") };
        let route = Label::from_trusted("default");
        let subject = Subject {
            route: &route,
            model: "gpt-4o",
            tenant: None,
            operation: Operation::Chat,
            stream,
        };
        objective.deadline(&subject, at(0)).map(|(_, event)| event)
    }

    #[test]
    fn only_slis_on_elapsed_time_have_a_deadline() {
        let of = |indicator, stream| deadline(indicator, CountingRules::default(), stream);
        assert_eq!(of(Sli::Ttft(SECOND), true), Some(DeadlineEvent::FirstToken));
        assert_eq!(of(Sli::Ttft(SECOND), false), None, "it has no first token");
        for stream in [true, false] {
            assert_eq!(of(Sli::Duration(SECOND), stream), Some(DeadlineEvent::End));
        }
        for other in [Sli::FirstVisible(SECOND), Sli::Availability, Sli::OutputRate(1.0)] {
            assert_eq!(of(other, true), None, "{other:?}");
        }
    }

    #[test]
    fn a_result_that_the_end_can_exclude_is_not_reported_early() {
        let of = |counting| deadline(Sli::Duration(SECOND), counting, true);
        let excluding =
            CountingRules { exclude: vec![Exclusion::Overload], ..CountingRules::default() };
        assert_eq!(of(excluding), None);
        let accepted = at(0).since(MonotonicInstant::ZERO);
        let warming = CountingRules { warmup: accepted + SECOND, ..CountingRules::default() };
        assert_eq!(of(warming), None);
        let warm = CountingRules { warmup: accepted, ..CountingRules::default() };
        assert_eq!(of(warm), Some(DeadlineEvent::End));
    }
}
