//! The labels of finished requests: their upstream and their result.

use http::StatusCode;
use opentelemetry::KeyValue;

use crate::attributes::{label, pair, word};
use crate::catalog::attributes as key;
use crate::series_limits::{Overflow, OverflowStep};
use tokengauge_measure::load::RouteKey;
use tokengauge_measure::record::{Outcome, Record};
use tokengauge_measure::timing::Stage;
use tokengauge_types::event::{ErrorSource, RouteFacts};
use tokengauge_types::label::{Label, OTHER};

/// The result of a request, as attributes of the counter of finished requests.
#[derive(Clone, Copy, Debug, Hash)]
pub struct FinishedResult<'a> {
    outcome: Outcome,
    error_source: ErrorSource,
    stage: Stage,
    error: Option<&'a Label>,
    status: Option<u16>,
}

impl<'a> FinishedResult<'a> {
    pub fn from_record(record: &Record, error: Option<&'a Label>) -> Self {
        let (outcome, error_source, status) =
            (record.outcome, record.error_source, record.http.status);
        Self { outcome, error_source, stage: end_stage(record), error, status }
    }

    /// Returns the result of a request that succeeds with this status.
    pub const fn ok(status: u16) -> Self {
        let (outcome, error_source, stage) = (Outcome::Ok, ErrorSource::None, Stage::Tail);
        Self { outcome, error_source, stage, error: None, status: Some(status) }
    }

    pub fn attributes(&self, step: OverflowStep) -> Vec<KeyValue> {
        let mut attributes = vec![
            word(key::OUTCOME, self.outcome.as_str()),
            word(key::ERROR_SOURCE, self.error_source.as_str()),
            word(key::STAGE, self.stage.as_str()),
        ];
        attributes.extend(status(self.status, step));
        attributes.extend(self.error.map(|error| label(key::ERROR_TYPE, error)));
        attributes
    }
}

/// The route and the server of a request.
#[derive(Clone, Debug, Hash)]
pub struct UpstreamLabels {
    pub route_key: RouteKey,
    pub server_address: Label,
    pub server_port: u16,
}

impl UpstreamLabels {
    pub fn from_route(route: &RouteFacts) -> Self {
        let (server_address, server_port) = (route.server_address.clone(), route.server_port);
        Self { route_key: RouteKey::from_route(route), server_address, server_port }
    }
}

impl Overflow for UpstreamLabels {
    fn replaced_with_other(&self, step: OverflowStep) -> Self {
        let route_key = self.route_key.replaced_with_other(step);
        match step {
            OverflowStep::Nothing
            | OverflowStep::Tenant
            | OverflowStep::Variant
            | OverflowStep::Model => Self { route_key, ..self.clone() },
            OverflowStep::Route => {
                Self { route_key, server_address: Label::from_trusted(OTHER), server_port: 0 }
            }
        }
    }

    fn text_bytes(&self) -> usize {
        self.route_key.text_bytes() + self.server_address.as_str().len()
    }
}

/// Returns the attribute of the response model, which is replaced by `other` together with the requested model.
pub fn response_model(model: &Option<Label>, step: OverflowStep) -> Option<KeyValue> {
    let other = Label::from_trusted(OTHER);
    let model = match step {
        OverflowStep::Nothing | OverflowStep::Tenant | OverflowStep::Variant => model.as_ref()?,
        OverflowStep::Model | OverflowStep::Route => model.as_ref().map(|_| &other)?,
    };
    Some(label(key::RESPONSE_MODEL, model))
}

/// Returns the attribute of the status. If even the route is replaced by `other`, an unknown status is replaced by the
/// first of its class, such as 500 for 599, as RFC 9110 (section 15) allows. The number of known statuses is bounded.
pub fn status(status: Option<u16>, step: OverflowStep) -> Option<KeyValue> {
    let status = status?;
    let is_known = step != OverflowStep::Route
        || StatusCode::from_u16(status).is_ok_and(|status| status.canonical_reason().is_some());
    let status = if is_known { status } else { status / 100 * 100 };
    Some(pair(key::STATUS, i64::from(status)))
}

/// Returns the stage in which a request ended: the first stage whose end was not reached.
pub fn end_stage(record: &Record) -> Stage {
    let timestamps = &record.timestamps;
    let streamed = record.call.as_ref().is_some_and(|call| call.streamed);
    let next = [
        (timestamps.admit, Stage::Admission),
        (timestamps.sent, Stage::Connect),
        (timestamps.head.or(timestamps.uploaded), Stage::Upload),
        (timestamps.head, Stage::Headers),
        (timestamps.byte, Stage::FirstByte),
        (timestamps.event.or(timestamps.token), Stage::FirstEvent),
        (timestamps.token, Stage::FirstToken),
        (timestamps.visible, Stage::Reasoning),
    ];
    if record.outcome == Outcome::Ok {
        return Stage::Tail;
    }
    let expected = if streamed { next.len() } else { 5 };
    let missing = next.into_iter().take(expected).find(|(point, _)| point.is_none());
    match missing {
        Some((_, stage)) => stage,
        None if streamed => Stage::Decode,
        None => Stage::Tail,
    }
}
