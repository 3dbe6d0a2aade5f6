//! Counts requests for whose events the channel has no room.
//!
//! Such a request is *muted*: the observer gets none of its events, but its result. Equal results are added up, so that
//! any number of requests takes bounded memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use tokengauge_types::clock::{MonotonicInstant, WallTime};
use tokengauge_types::event::{
    BodyWaitState, CallerIdentity, Direction, Ending, Headers, ObserverEvent, RequestHead,
    ResponseHead, RouteFacts, Scheme, SessionRule, TraceContext,
};
use tokengauge_types::label::Name;
use tokengauge_types::sync::{AtomicU64, Mutex, Ordering, lock};

/// Maximum number of different results that wait for the observer, about 1 MiB. Beyond it, only the route, the class of
/// the status and the ending are kept, which have few different values.
const MAX_RESULTS: usize = 1_024;

/// Method of requests whose method is not kept, as OpenTelemetry names it.
const OTHER_METHOD: &[u8] = b"_OTHER";

/// Facts that the data path knows about an open request that is muted.
#[derive(Debug)]
pub(super) struct MutedRequest {
    head: Box<RequestHead>,
    accepted: MonotonicInstant,
    progress: Mutex<Progress>,
    request_bytes: AtomicU64,
    response_bytes: AtomicU64,
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
struct Progress {
    is_admitted: bool,
    is_sent: bool,
    is_uploaded: bool,
    /// Status of the response, and whether this process generated it.
    response: Option<(u16, bool)>,
}

/// The parts of a request and its result that metrics and SLOs distinguish.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Key {
    /// Address of the route's settings, which the value keeps alive.
    route: usize,
    method: http::Method,
    path: Name,
    model: Option<Name>,
    version: http::Version,
    scheme: Scheme,
    tenant: Option<Name>,
    variant: Option<Name>,
    progress: Progress,
    ending: Ending,
}

/// Totals of muted requests with the same result.
#[derive(Debug)]
struct Totals {
    route: Arc<RouteFacts>,
    requests: u64,
    duration: Duration,
    request_bytes: u64,
    response_bytes: u64,
    /// When the last of them was accepted and ended.
    wall: WallTime,
    ended: MonotonicInstant,
}

/// Results of muted requests that wait for the observer.
#[derive(Debug, Default)]
pub(super) struct MutedResults(HashMap<Key, Totals>);

/// A number of muted requests with the same result.
#[derive(Debug)]
pub(crate) struct MutedResult {
    key: Key,
    totals: Totals,
}

/// The events of one request, in order, and their times. `None` for an event that did not occur.
pub(crate) type EventsOfResult = [Option<(MonotonicInstant, ObserverEvent)>; 8];

impl MutedRequest {
    pub(super) fn new(head: Box<RequestHead>, accepted: MonotonicInstant) -> Self {
        Self {
            head,
            accepted,
            progress: Mutex::default(),
            request_bytes: AtomicU64::new(0),
            response_bytes: AtomicU64::new(0),
        }
    }

    /// Keeps what the result contains of an event.
    pub(super) fn note(&self, event: &ObserverEvent) {
        let mut progress = lock(&self.progress);
        match event {
            ObserverEvent::Admitted => progress.is_admitted = true,
            ObserverEvent::RequestHeadSent => progress.is_sent = true,
            ObserverEvent::RequestBodySent => progress.is_uploaded = true,
            ObserverEvent::ResponseHead(head) => {
                progress.response = Some((head.status, head.from_proxy));
            }
            ObserverEvent::RequestHead(_)
            | ObserverEvent::Queued
            | ObserverEvent::Connected(_)
            | ObserverEvent::ConnectionReused(_)
            | ObserverEvent::Body { .. }
            | ObserverEvent::Trailers(_)
            | ObserverEvent::Upgraded
            | ObserverEvent::Closed(_)
            | ObserverEvent::Gap { .. }
            | ObserverEvent::GatewayUsage(_)
            | ObserverEvent::End(_) => {}
        }
    }

    pub(super) fn count_bytes(&self, direction: Direction, bytes: u64) {
        let total = match direction {
            Direction::Request => &self.request_bytes,
            Direction::Response => &self.response_bytes,
        };
        total.fetch_add(bytes, Ordering::Relaxed);
    }

    fn key(&self, ending: Ending) -> Key {
        let head = &*self.head;
        Key {
            route: Arc::as_ptr(&head.route).addr(),
            method: head.method.clone(),
            path: head.path.clone(),
            model: head.model.clone(),
            version: head.version,
            scheme: head.scheme,
            tenant: head.identity.tenant.clone(),
            variant: head.identity.variant.clone(),
            progress: *lock(&self.progress),
            ending,
        }
    }
}

impl Key {
    /// Removes all values of which clients and upstreams can send many.
    fn reduce(mut self) -> Self {
        self.method = http::Method::from_bytes(OTHER_METHOD).unwrap_or_default();
        self.path = Name::new("/").unwrap_or(self.path);
        (self.model, self.tenant, self.variant) = (None, None, None);
        if let Some((status, _)) = &mut self.progress.response {
            *status = *status / 100 * 100;
        }
        self
    }
}

impl MutedResults {
    pub(super) fn count(&mut self, request: &MutedRequest, at: MonotonicInstant, ending: Ending) {
        let Self(results) = self;
        let mut key = request.key(ending);
        if results.len() >= MAX_RESULTS && !results.contains_key(&key) {
            key = key.reduce();
        }
        let totals = match results.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Totals {
                route: Arc::clone(&request.head.route),
                requests: 0,
                duration: Duration::ZERO,
                request_bytes: 0,
                response_bytes: 0,
                wall: request.head.wall,
                ended: at,
            }),
        };
        totals.requests += 1;
        totals.duration += at.since(request.accepted);
        totals.request_bytes += request.request_bytes.load(Ordering::Relaxed);
        totals.response_bytes += request.response_bytes.load(Ordering::Relaxed);
        (totals.wall, totals.ended) = (request.head.wall, at);
    }

    pub(super) fn take(&mut self) -> Vec<MutedResult> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let results = std::mem::take(&mut self.0).into_iter();
        results.map(|(key, totals)| MutedResult { key, totals }).collect()
    }
}

impl MutedResult {
    /// Returns the events of the next one of these requests. `None` if all have been returned. Each request gets the mean
    /// duration and the mean sizes of all.
    pub(crate) fn next_request(&mut self) -> Option<EventsOfResult> {
        let Self { key, totals } = self;
        let left = u32::try_from(totals.requests).unwrap_or(u32::MAX);
        let duration = totals.duration.checked_div(left)?;
        let request_bytes = totals.request_bytes.checked_div(totals.requests)?;
        let response_bytes = totals.response_bytes.checked_div(totals.requests)?;
        totals.requests -= 1;
        totals.duration = totals.duration.saturating_sub(duration);
        totals.request_bytes -= request_bytes;
        totals.response_bytes -= response_bytes;
        let (accepted, ended) = (totals.ended.saturating_sub(duration), totals.ended);
        let Progress { is_admitted, is_sent, is_uploaded, response } = key.progress;
        let head = ObserverEvent::RequestHead(Box::new(request_head(key, totals)));
        let gap = |direction, bytes| {
            Some((ended, ObserverEvent::Gap { direction, bytes })).filter(|_| bytes > 0)
        };
        let reached = |is_reached, event| Some((accepted, event)).filter(|_| is_reached);
        Some([
            Some((accepted, head)),
            reached(is_admitted, ObserverEvent::Admitted),
            reached(is_sent, ObserverEvent::RequestHeadSent),
            gap(Direction::Request, request_bytes),
            reached(is_uploaded, ObserverEvent::RequestBodySent),
            response.map(|response| (ended, response_head(response, key.version))),
            gap(Direction::Response, response_bytes),
            Some((ended, ObserverEvent::End(key.ending))),
        ])
    }
}

fn request_head(key: &Key, totals: &Totals) -> RequestHead {
    RequestHead {
        wall: totals.wall,
        method: key.method.clone(),
        path: key.path.clone(),
        whole_path: None,
        model: key.model.clone(),
        host: None,
        version: key.version,
        scheme: key.scheme,
        headers: Headers::default(),
        length: None,
        client: None,
        connection: None,
        route: Arc::clone(&totals.route),
        trace: TraceContext::default(),
        conversation: None,
        identity: CallerIdentity {
            tenant: key.tenant.clone(),
            variant: key.variant.clone(),
            ..CallerIdentity::default()
        },
        session_rule: SessionRule::default(),
        body_wait: Arc::<BodyWaitState>::default(),
    }
}

fn response_head((status, from_proxy): (u16, bool), version: http::Version) -> ObserverEvent {
    let headers = Headers::default();
    ObserverEvent::ResponseHead(Box::new(ResponseHead {
        status,
        version,
        headers,
        length: None,
        from_proxy,
    }))
}
