//! The latest conversations.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::document::{Money, Request, Session, SessionRequest, Text};

/// Maximum number of sessions. A session takes up to 6 KiB, so all take 0.6 MiB.
pub const MAX_SESSIONS: usize = 100;

/// Maximum number of calls of one session that are kept.
pub const MAX_CALLS: usize = 50;

/// The latest sessions by id. The session whose last call is oldest makes room for a new one.
#[derive(Debug, Default)]
pub struct Sessions {
    by_id: FxHashMap<Text, RecordedSession>,
    /// Whether any request had a session.
    any: bool,
}

#[derive(Debug)]
struct RecordedSession {
    session: Session,
    calls: VecDeque<SessionRequest>,
    cost: SessionCost,
    document: Option<Arc<Session>>,
}

/// The cost of a session, if all its calls have the same currency.
#[derive(Debug, Default)]
enum SessionCost {
    #[default]
    None,
    Sum(Money),
    SeveralCurrencies,
}

impl Sessions {
    pub const fn any(&self) -> bool {
        self.any
    }

    /// Adds a finished call to its session.
    pub fn record(&mut self, request: &Request) {
        let Some(id) = &request.session else { return };
        self.any = true;
        if !self.by_id.contains_key(id) && self.by_id.len() >= MAX_SESSIONS {
            let last = |(_, it): &(&Text, &RecordedSession)| it.session.last_unix_ms;
            let oldest = self.by_id.iter().min_by_key(last).map(|(id, _)| Arc::clone(id));
            oldest.map(|id| self.by_id.remove(&id));
        }
        let session =
            self.by_id.entry(Arc::clone(id)).or_insert_with(|| RecordedSession::new(id, request));
        session.record(request);
    }

    /// Returns the sessions, the one with the latest call first.
    pub fn documents(&mut self) -> Vec<Arc<Session>> {
        let mut all: Vec<_> = self.by_id.values_mut().map(RecordedSession::document).collect();
        all.sort_by(|a, b| b.last_unix_ms.cmp(&a.last_unix_ms).then_with(|| a.id.cmp(&b.id)));
        all
    }
}

impl RecordedSession {
    fn new(id: &Text, request: &Request) -> Self {
        let session = Session {
            id: Arc::clone(id),
            first_unix_ms: request.started_unix_ms,
            ..Session::default()
        };
        let (calls, cost) = (VecDeque::new(), SessionCost::None);
        Self { session, calls, cost, document: None }
    }

    fn record(&mut self, request: &Request) {
        self.document = None;
        let session = &mut self.session;
        let tokens = &request.tokens;
        session.calls += 1;
        if let Some(input) = &tokens.input {
            *session.input_tokens.get_or_insert(0) += input.count;
        }
        if let Some(cached) = &tokens.cached_input {
            *session.cached_input_tokens.get_or_insert(0) += cached.count;
        }
        session.output_tokens += tokens.output.as_ref().map_or(0, |output| output.count);
        session.agent = request.agent.clone().or_else(|| session.agent.take());
        session.source = request.session_source.clone().or_else(|| session.source.take());
        session.tenant = request.tenant.clone().or_else(|| session.tenant.take());
        session.first_unix_ms = session.first_unix_ms.min(request.started_unix_ms);
        session.last_unix_ms = session.last_unix_ms.max(request.ended_unix_ms);
        if let Some(cost) = &request.cost {
            self.cost.add(cost.amount, &cost.currency);
        }
        if self.calls.len() >= MAX_CALLS {
            self.calls.pop_front();
        }
        self.calls.push_back(SessionRequest {
            id: request.id,
            started_unix_ms: request.started_unix_ms,
            end_seconds: request.duration_seconds.unwrap_or(0.0),
            outcome: Arc::clone(&request.outcome),
            model: Arc::clone(&request.model),
        });
    }

    fn document(&mut self) -> Arc<Session> {
        let Self { session, calls, cost, document } = self;
        let document = document.get_or_insert_with(|| {
            let cost = match cost {
                SessionCost::Sum(money) => Some(money.clone()),
                SessionCost::None | SessionCost::SeveralCurrencies => None,
            };
            let requests = calls.iter().cloned().collect();
            Arc::new(Session { cost, requests, ..session.clone() })
        });
        Arc::clone(document)
    }
}

impl SessionCost {
    fn add(&mut self, amount: f64, currency: &Text) {
        match self {
            Self::None => *self = Self::Sum(Money { amount, currency: Arc::clone(currency) }),
            Self::Sum(sum) if sum.currency == *currency => sum.amount += amount,
            Self::Sum(_) => *self = Self::SeveralCurrencies,
            Self::SeveralCurrencies => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{PricedCost, TokenCount, Tokens};

    fn call(session: &str, id: u64, currency: &str) -> Request {
        let count = |count| Some(TokenCount { count, source: "reported".into() });
        Request {
            id,
            session: Some(session.into()),
            started_unix_ms: 1_000 * id,
            ended_unix_ms: 1_000 * id + 500,
            tokens: Tokens { input: count(10), output: count(3), ..Tokens::default() },
            cost: Some(PricedCost {
                amount: 0.5,
                currency: currency.into(),
                source: "computed".into(),
            }),
            ..Request::default()
        }
    }

    #[test]
    fn adds_up_the_calls_of_a_session() {
        let mut sessions = Sessions::default();
        sessions.record(&Request::default());
        assert!(!sessions.any() && sessions.documents().is_empty());
        let agent = Some("claude-cli/2.1".into());
        sessions.record(&Request { agent, ..call("a", 1, "USD") });
        sessions.record(&call("a", 2, "USD"));
        let all = sessions.documents();
        let session = &all[0];
        assert_eq!((session.calls, session.output_tokens, session.input_tokens), (2, 6, Some(20)));
        assert_eq!(session.cached_input_tokens, None, "not reported");
        assert_eq!(session.agent.as_deref(), Some("claude-cli/2.1"));
        assert!((session.cost.as_ref().unwrap().amount - 1.0).abs() < 1e-9);
        assert_eq!((session.first_unix_ms, session.last_unix_ms), (1_000, 2_500));
        sessions.record(&call("a", 3, "EUR"));
        assert_eq!(sessions.documents()[0].cost, None, "two currencies have no sum");
    }

    #[test]
    fn keeps_the_latest_sessions_and_calls() {
        let mut sessions = Sessions::default();
        for id in 0..3 * MAX_SESSIONS as u64 {
            sessions.record(&call(&id.to_string(), id, "USD"));
        }
        let all = sessions.documents();
        assert_eq!((all.len(), &*all[0].id, &*all[99].id), (MAX_SESSIONS, "299", "200"));
        for id in 300..400 {
            sessions.record(&call("250", id, "USD"));
        }
        let session = Arc::clone(&sessions.documents()[0]);
        assert_eq!((session.calls, session.requests.len()), (101, MAX_CALLS));
        assert_eq!(session.requests[0].id, 350);
    }
}
