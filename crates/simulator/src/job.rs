//! One request on its way to its answer.

use std::sync::Arc;

use bytes::Bytes;
use fastrand::Rng;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

use crate::answer::{Answer, Faults, Stream, Whole};
use crate::engine::Engine;
use crate::ledger::Tally;
use crate::pace::{Fate, Overrides, Pace, Work};
use crate::profile::UsagePolicy;
use crate::request::{Api, Refused, Request};
use crate::script::{Script, Wish};
use crate::voice::Voice;
use crate::{CREATED, embed};
use tokengauge_types::clock;

/// One request that is going to be answered.
pub struct Job {
    pub api: Api,
    pub request: Request,
    pub model: String,
    pub engine: Arc<Engine>,
    pub overrides: Overrides,
    pub fate: Fate,
    pub random: Rng,
    pub id: u64,
}

impl Job {
    pub async fn run(self, tally: Tally) -> Response<Answer> {
        if let Some(status) = self.fate.status {
            return refuse(Refused::new(status, "the simulation was told to fail", None), tally);
        }
        let allowance = match self.engine.admit(clock::now()) {
            Ok(allowance) => allowance,
            Err(spent) => {
                let refused = Refused::new(429, "too many requests in a minute", None);
                return spent.told(refuse(refused, tally));
            }
        };
        let answer = self.answer(tally).await;
        match allowance {
            Some(allowance) => allowance.told(answer),
            None => answer,
        }
    }

    async fn answer(mut self, mut tally: Tally) -> Response<Answer> {
        let wish = Wish {
            api: self.api,
            tokens: self.overrides.tokens,
            tokens_per_chunk: self.overrides.chunk_tokens,
        };
        let mut script = if self.api == Api::Embeddings {
            Script::prompt_only(&self.request)
        } else {
            Script::write(&self.engine.profile, &self.request, wish, &mut self.random)
        };
        let work = Work { prompt_tokens: script.prompt_tokens, hidden: script.hidden };
        let control = (&self.overrides, self.fate);
        let mut pace =
            Pace::start(self.engine.enter().await, control, work, self.random.fork(), clock::now());
        let voice = self.voice();
        if self.request.streams() && self.api != Api::Embeddings {
            tally.entry.head = Some(clock::now());
            let faults = Faults { cut: self.fate.cut, ping: self.engine.profile.ping };
            let stream = Stream::new(script, voice, pace, faults, tally);
            return respond(
                StatusCode::OK,
                "text/event-stream; charset=utf-8",
                Answer::Stream(Box::new(stream)),
            );
        }
        // From here the client may leave while the answer is being made: then hyper drops all of this, and the tally
        // says so.
        let due = pace.next(script.shown_steps());
        tokio::time::sleep(due.since(clock::now())).await;
        drop(pace);
        script.send_all();
        let body = self.whole(&script, &voice, &mut tally);
        tally.entry.head = Some(clock::now());
        let whole = Whole::generated(body, script.sent_tokens(), tally);
        json(StatusCode::OK, if self.fate.cut.is_some() { whole.cut() } else { whole })
    }

    fn whole(&self, script: &Script, voice: &Voice, tally: &mut Tally) -> Bytes {
        let usage = script.usage();
        if self.api == Api::Embeddings {
            tally.entry.reported = Some(usage);
            return embed::answer(&self.request, &self.model, usage.input);
        }
        let told = self.engine.profile.usage != UsagePolicy::Never;
        tally.entry.reported = told.then_some(usage);
        voice.whole(script, tally.entry.reported)
    }

    fn voice(&self) -> Voice {
        let prefix = match self.api {
            Api::Chat | Api::Embeddings => "chatcmpl",
            Api::Completion => "cmpl",
        };
        Voice {
            api: self.api,
            id: format!("{prefix}-{:016x}", self.id),
            created: CREATED,
            model: self.model.clone(),
            null_usage: self.request.wants_usage()
                && self.engine.profile.usage != UsagePolicy::Never,
        }
    }
}

pub fn refuse(refused: Refused, mut tally: Tally) -> Response<Answer> {
    let status = StatusCode::from_u16(refused.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    tally.entry.head = Some(clock::now());
    let mut response = json(status, Whole::failed(refused.body, status.as_u16(), tally));
    if status == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

pub fn json(status: StatusCode, whole: Whole) -> Response<Answer> {
    respond(status, "application/json", Answer::Whole(Box::new(whole)))
}

/// What vLLM says to a probe: an empty 200.
pub fn healthy() -> Response<Answer> {
    Response::new(Answer::Whole(Box::new(Whole::plain(Bytes::new()))))
}

/// A metrics page in Prometheus' text format.
pub fn metrics(page: String) -> Response<Answer> {
    let whole = Whole::plain(page.into());
    respond(
        StatusCode::OK,
        "text/plain; version=0.0.4; charset=utf-8",
        Answer::Whole(Box::new(whole)),
    )
}

fn respond(status: StatusCode, content_type: &'static str, answer: Answer) -> Response<Answer> {
    let mut response = Response::new(answer);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
