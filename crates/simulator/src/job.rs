//! Executes one request and builds its response.

use std::sync::Arc;

use bytes::Bytes;
use fastrand::Rng;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

use crate::chunk_template::ChunkTemplate;
use crate::engine::Engine;
use crate::ledger::EntryGuard;
use crate::profile::UsagePolicy;
use crate::request::{Api, ApiError, Overrides, Request};
use crate::response_body::{FullBody, ResponseBody, StreamBody};
use crate::schedule::{InjectedFaults, TokenSchedule};
use crate::script::Script;
use crate::{CREATED, embeddings};
use tokengauge_types::clock;

/// A valid request, with all data that the response needs.
pub struct Job {
    pub api: Api,
    pub request: Request,
    pub model: String,
    pub engine: Arc<Engine>,
    pub overrides: Overrides,
    pub faults: InjectedFaults,
    pub random: Rng,
    pub id: u64,
}

impl Job {
    pub async fn run(self, guard: EntryGuard) -> Response<ResponseBody> {
        if let Some(status) = self.faults.status {
            return error_response(ApiError::new(status, "simulated failure", None), guard);
        }
        let (limit, mut response) = match self.engine.admit(clock::now()) {
            Ok(limit) => (limit, self.response(guard).await),
            Err(limit) => {
                let error = ApiError::new(429, "request rate limit exceeded", None);
                (Some(limit), error_response(error, guard))
            }
        };
        if let Some(limit) = limit {
            limit.add_to(response.headers_mut());
        }
        response
    }

    async fn response(mut self, mut guard: EntryGuard) -> Response<ResponseBody> {
        let mut script = if self.api == Api::Embeddings {
            Script::prompt_only(&self.request)
        } else {
            let settings = (self.api, &self.overrides);
            Script::generate(&self.engine.profile, &self.request, settings, &mut self.random)
        };
        let mut schedule = TokenSchedule::start(
            self.engine.take_slot().await,
            (&self.overrides, self.faults),
            &script,
            self.random.fork(),
            clock::now(),
        );
        let template = self.template();
        if self.request.streams() && self.api != Api::Embeddings {
            guard.entry.head = Some(clock::now());
            let faults = (self.faults.cut, self.engine.profile.ping);
            let stream = StreamBody::new(script, template, schedule, faults, guard);
            let body = ResponseBody::StreamBody(Box::new(stream));
            return respond(StatusCode::OK, "text/event-stream; charset=utf-8", body);
        }
        // If the client disconnects during generation, hyper drops this future. The guard then records the disconnect
        // in the ledger.
        let due = schedule.next(script.shown_steps());
        tokio::time::sleep(due.since(clock::now())).await;
        drop(schedule);
        script.send_all();
        let body = self.body(&script, &template, &mut guard);
        guard.entry.head = Some(clock::now());
        let body = FullBody::generated(body, script.sent_tokens(), guard);
        json(StatusCode::OK, if self.faults.cut.is_some() { body.cut() } else { body })
    }

    fn body(&self, script: &Script, template: &ChunkTemplate, guard: &mut EntryGuard) -> Bytes {
        let usage = script.usage();
        if self.api == Api::Embeddings {
            guard.entry.reported = Some(usage);
            return embeddings::response(&self.request, &self.model, usage.input);
        }
        let reports_usage = self.engine.profile.usage != UsagePolicy::Never;
        guard.entry.reported = reports_usage.then_some(usage);
        template.full_body(script, guard.entry.reported)
    }

    fn template(&self) -> ChunkTemplate {
        let prefix = match self.api {
            Api::Chat | Api::Embeddings => "chatcmpl",
            Api::Completion => "cmpl",
        };
        ChunkTemplate {
            api: self.api,
            id: format!("{prefix}-{:016x}", self.id),
            created: CREATED,
            model: self.model.clone(),
            null_usage: self.request.wants_usage()
                && self.engine.profile.usage != UsagePolicy::Never,
        }
    }
}

pub fn error_response(error: ApiError, mut guard: EntryGuard) -> Response<ResponseBody> {
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    guard.entry.head = Some(clock::now());
    let mut response = json(status, FullBody::failed(error.body, status.as_u16(), guard));
    if status == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

pub fn json(status: StatusCode, body: FullBody) -> Response<ResponseBody> {
    respond(status, "application/json", ResponseBody::FullBody(Box::new(body)))
}

/// Returns a response with a metrics page in the Prometheus text format.
pub fn metrics(page: String) -> Response<ResponseBody> {
    let body = ResponseBody::FullBody(Box::new(FullBody::plain(page.into())));
    respond(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", body)
}

/// Returns an empty response with status 200, like vLLM's health endpoint.
pub fn healthy() -> Response<ResponseBody> {
    Response::new(ResponseBody::FullBody(Box::new(FullBody::plain(Bytes::new()))))
}

fn respond(
    status: StatusCode,
    content_type: &'static str,
    response: ResponseBody,
) -> Response<ResponseBody> {
    let mut response = Response::new(response);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
