//! Timestamps of one request, and the stages between them.

use std::time::Duration;

use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::label_enum;

/// Time of the first occurrence of each step. `None` if the step did not happen.
///
/// Callers set these timestamps; this module never reads a clock.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Timestamps {
    /// Request headers received from the client.
    pub accept: MonotonicInstant,
    /// Request admitted by the concurrency limit.
    pub admit: Option<MonotonicInstant>,
    /// Request headers written to an upstream connection.
    pub sent: Option<MonotonicInstant>,
    /// Last request byte written upstream.
    pub uploaded: Option<MonotonicInstant>,
    /// Response headers received.
    pub head: Option<MonotonicInstant>,
    /// First response body byte.
    pub byte: Option<MonotonicInstant>,
    /// First well-formed event of the API format.
    pub event: Option<MonotonicInstant>,
    /// First generated token of any kind.
    pub token: Option<MonotonicInstant>,
    /// First user-visible token.
    pub visible: Option<MonotonicInstant>,
    /// Last generated token.
    pub last: Option<MonotonicInstant>,
    /// The response body ended or failed, or the client or the upstream abandoned the request.
    pub end: Option<MonotonicInstant>,
}

label_enum! {
    /// Time between two consecutive timestamps of a request. All stages together add up to end − accept.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub enum Stage {
        Admission = "admission",
        Connect = "connect",
        Upload = "upload",
        Headers = "headers",
        FirstByte = "first_byte",
        FirstEvent = "first_event",
        FirstToken = "first_token",
        Reasoning = "reasoning",
        Decode = "decode",
        Tail = "tail",
    }
}

/// Length of each stage that took place.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stages([Option<Duration>; Stage::ALL.len()]);

impl Stages {
    /// Returns the duration of a stage, or `None` if the stage did not take place.
    pub fn get(&self, stage: Stage) -> Option<Duration> {
        self.0.get(stage as usize).copied().flatten()
    }

    /// Returns the stages that took place, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Stage, Duration)> + '_ {
        Stage::ALL.into_iter().zip(&self.0).filter_map(|(stage, length)| Some((stage, (*length)?)))
    }
}

impl Timestamps {
    /// Splits the time from accept to end into stages, at every timestamp that is present.
    ///
    /// The stage of a missing timestamp is omitted, and its time goes to the next stage. A timestamp that is later than
    /// a following one is moved back to it. For example, the last request byte may be written after the response
    /// headers arrive.
    pub fn stages(&self) -> Stages {
        let mut stages = Stages::default();
        let Some(end) = self.end else { return stages };
        let marks = [
            self.admit,
            self.sent,
            self.uploaded,
            self.head,
            self.byte,
            self.event,
            self.token,
            self.visible,
            self.last,
            Some(end),
        ];
        // No timestamp may be later than a following one. The backward pass finds the upper bound of each.
        let mut ceilings = [end; Stage::ALL.len()];
        let mut ceiling = end;
        for (slot, mark) in ceilings.iter_mut().zip(&marks).rev() {
            ceiling = mark.map_or(ceiling, |at| at.min(ceiling));
            *slot = ceiling;
        }
        let mut from = self.accept;
        for ((slot, mark), ceiling) in stages.0.iter_mut().zip(&marks).zip(ceilings) {
            if mark.is_some() {
                *slot = Some(ceiling.since(from));
                from = from.max(ceiling);
            }
        }
        stages
    }

    /// Returns the time to first token: token − accept.
    pub fn time_to_first_token(&self) -> Option<Duration> {
        Some(self.token?.since(self.accept))
    }

    /// Returns the upstream's time to first token: token − uploaded, because the backend needs the whole request. If
    /// the first token arrives before the end of the upload, the result is token − sent.
    pub fn upstream_time_to_first_token(&self) -> Option<Duration> {
        let token = self.token?;
        let has_request = self.uploaded.filter(|at| *at <= token);
        Some(token.since(has_request.or(self.sent)?))
    }

    /// Returns the time to the first user-visible token: visible − accept.
    pub fn time_to_visible(&self) -> Option<Duration> {
        Some(self.visible?.since(self.accept))
    }

    /// Returns the duration: end − accept.
    pub fn duration(&self) -> Option<Duration> {
        Some(self.end?.since(self.accept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(stages: &Stages) -> Duration {
        stages.iter().map(|(_, length)| length).sum()
    }

    fn at(millis: u64) -> Option<MonotonicInstant> {
        Some(MonotonicInstant::from_millis(millis))
    }

    fn full() -> Timestamps {
        Timestamps {
            accept: MonotonicInstant::from_millis(100),
            admit: at(110),
            sent: at(130),
            uploaded: at(160),
            head: at(200),
            byte: at(250),
            event: at(310),
            token: at(380),
            visible: at(460),
            last: at(550),
            end: at(650),
        }
    }

    #[test]
    fn stages_are_the_gaps_between_neighbouring_points_and_add_up() {
        let stages = full().stages();
        let lengths: Vec<_> =
            stages.iter().map(|(stage, length)| (stage, length.as_millis())).collect();
        let expected: Vec<_> =
            Stage::ALL.into_iter().zip([10, 20, 30, 40, 50, 60, 70, 80, 90, 100]).collect();
        assert_eq!(lengths, expected);
        assert_eq!(total(&stages), full().duration().unwrap());
    }

    #[test]
    fn a_missing_point_takes_the_time_of_the_next_and_the_stages_still_add_up() {
        let timestamps =
            Timestamps { event: None, token: None, visible: None, last: None, ..full() };
        let stages = timestamps.stages();
        assert!(stages.iter().all(|(stage, _)| !matches!(
            stage,
            Stage::FirstEvent | Stage::FirstToken | Stage::Reasoning | Stage::Decode
        )));
        assert_eq!(total(&stages), Duration::from_millis(550));
    }

    #[test]
    fn an_upload_longer_than_the_response_headers_is_clipped() {
        let timestamps = Timestamps { uploaded: at(220), ..full() };
        let upload =
            timestamps.stages().iter().find(|(stage, _)| *stage == Stage::Upload).unwrap().1;
        assert_eq!(upload, Duration::from_millis(70), "sent 130 … head 200");
        assert_eq!(total(&timestamps.stages()), Duration::from_millis(550));
    }

    #[test]
    fn a_slow_upload_is_not_upstream_time() {
        let time =
            |timestamps: Timestamps| timestamps.upstream_time_to_first_token().unwrap().as_millis();
        assert_eq!(time(full()), 220, "uploaded 160 … token 380");
        assert_eq!(time(Timestamps { uploaded: at(400), ..full() }), 250, "sent 130 … token 380");
        assert_eq!(time(Timestamps { uploaded: None, ..full() }), 250);
    }

    #[test]
    fn without_an_end_there_are_no_stages() {
        assert_eq!(Timestamps { end: None, ..full() }.stages(), Stages::default());
    }

    #[test]
    fn any_order_of_points_still_adds_up() {
        for seed in 0..2_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut point =
                || random.bool().then(|| MonotonicInstant::from_millis(random.u64(100..1_000)));
            let timestamps = Timestamps {
                accept: MonotonicInstant::from_millis(100),
                admit: point(),
                sent: point(),
                uploaded: point(),
                head: point(),
                byte: point(),
                event: point(),
                token: point(),
                visible: point(),
                last: point(),
                end: at(1_000),
            };
            assert_eq!(total(&timestamps.stages()), Duration::from_millis(900), "{timestamps:?}");
        }
    }
}
