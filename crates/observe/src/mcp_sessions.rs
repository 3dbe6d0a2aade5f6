//! Open sessions of the Model Context Protocol, from the request that initializes them to their end.
//!
//! The client ends a session with DELETE, and the server by answering 404. Clients and servers may also forget a session,
//! so a session without requests ends with its last request.

use std::collections::HashMap;
use std::time::Duration;

use tokengauge_measure::record::{McpSession, Record};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::label::{Label, Name};

/// Maximum number of open sessions. A process serves hundreds of agents. Above it, the session that was idle for the
/// longest time ends.
const MAX_SESSIONS: usize = 1_024;

/// Time without a request after which a session ends.
const IDLE: Duration = Duration::from_secs(30 * 60);

/// Time between two searches for idle sessions.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct McpSessions {
    open: HashMap<(Label, Name), OpenSession>,
    checked: Option<MonotonicInstant>,
}

#[derive(Debug)]
struct OpenSession {
    start: MonotonicInstant,
    last: MonotonicInstant,
    session: McpSession,
}

impl McpSessions {
    /// Applies a finished request. Calls `out` for each session that ended. A session whose start was not observed has
    /// no duration and is ignored.
    pub(super) fn record(
        &mut self,
        at: MonotonicInstant,
        record: &Record,
        out: &mut impl FnMut(McpSession),
    ) {
        self.end_idle(at, out);
        let Some(mcp) = &record.mcp else { return };
        let Some(session) = &mcp.session else { return };
        let key = (record.route.name.clone(), session.clone());
        let is_ok = record.http.status.is_some_and(|status| status < 400);
        let is_initialized = mcp.operations.iter().any(|operation| operation.is("initialize"));
        if is_initialized && is_ok {
            if self.open.len() >= MAX_SESSIONS {
                self.end_oldest(out);
            }
            let start = record.timestamps.accept;
            let session = McpSession::new(record, mcp);
            self.open.insert(key, OpenSession { start, last: at, session });
        } else if record.http.status == Some(404)
            || is_ok && record.http.method == http::Method::DELETE
        {
            let error = record.error_type.clone();
            if let Some(mut open) = self.open.remove(&key) {
                (open.last, open.session.error_type) = (at, error);
                out(open.ended());
            }
        } else if let Some(open) = self.open.get_mut(&key) {
            open.last = at;
        }
    }

    fn end_idle(&mut self, at: MonotonicInstant, out: &mut impl FnMut(McpSession)) {
        let is_due = self.checked.is_none_or(|checked| at.since(checked) >= CHECK_INTERVAL);
        if !is_due || self.open.is_empty() {
            return;
        }
        self.checked = Some(at);
        let idle = self.open.extract_if(|_, open| at.since(open.last) >= IDLE);
        idle.for_each(|(_, open)| out(open.ended()));
    }

    fn end_oldest(&mut self, out: &mut impl FnMut(McpSession)) {
        let oldest = self.open.iter().min_by_key(|(_, open)| open.last);
        let key = oldest.map(|(key, _)| key.clone());
        if let Some(open) = key.and_then(|key| self.open.remove(&key)) {
            out(open.ended());
        }
    }
}

impl OpenSession {
    fn ended(self) -> McpSession {
        McpSession { duration: self.last.since(self.start), ..self.session }
    }
}
