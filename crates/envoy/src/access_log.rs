//! Envoy's gRPC access log, which reports how each request ended.

use std::sync::Arc;
use std::time::Duration;

use crate::counts::Counts;
use crate::flags::{ending, ending_of_details, flags_of_log};
use crate::open_exchanges::OpenExchanges;
use crate::proto::{AccessLogCommon, HttpAccessLogEntry, StreamAccessLogsMessage};
use tokengauge_types::clock::MonotonicInstant;

/// Reads one stream of access log entries.
#[derive(Debug)]
pub struct AccessLog {
    pub open: Arc<OpenExchanges>,
    pub counts: Arc<Counts>,
}

impl AccessLog {
    pub fn apply(&self, at: MonotonicInstant, message: StreamAccessLogsMessage) {
        for entry in message.http_logs.into_iter().flat_map(|logs| logs.log_entry) {
            self.apply_entry(at, &entry);
        }
    }

    fn apply_entry(&self, at: MonotonicInstant, entry: &HttpAccessLogEntry) {
        let Some(common) = &entry.common_properties else { return };
        let id = entry.request.as_ref().map_or("", |request| request.request_id.as_str());
        if common.intermediate_log_entry || id.is_empty() {
            return;
        }
        let Some(exchange) = self.open.take(id) else {
            return Counts::count(&self.counts.unobserved_requests);
        };
        let details = entry.response.as_ref().map_or("", |it| it.response_code_details.as_str());
        let has_head = exchange.observer.has_head();
        let ending = ending(flags_of_log(&common.response_flags), has_head)
            .or_else(|| ending_of_details(details));
        // Without a flag, the response was complete, and its `ext_proc` stream says so.
        if let Some(ending) = ending.filter(|_| !exchange.observer.is_ended()) {
            exchange.end_by_log(at, ending, duration(common));
        }
    }
}

fn duration(common: &AccessLogCommon) -> Option<Duration> {
    Duration::try_from(common.duration?).ok()
}
