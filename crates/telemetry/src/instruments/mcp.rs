//! Records the operations and the sessions of the Model Context Protocol.

use opentelemetry::KeyValue;

use super::Instruments;
use crate::attributes::{label, pair, route_attributes, sorted, word};
use crate::catalog::attributes::{self as key, MCP_METHODS, MCP_VERSIONS, known_word};
use crate::catalog::semconv;
use crate::instruments::result::UpstreamLabels;
use crate::series_limits::{OverflowStep, SeriesGroup};
use crate::span::protocol_version;
use tokengauge_measure::record::{Mcp, McpOperation, McpSession, Record};
use tokengauge_types::event::RouteFacts;
use tokengauge_types::label::{CardinalityLimiter, Dimension, Label, Name, OTHER};

/// The end of an operation or of a session, as labels.
#[derive(Clone, Copy, Debug, Hash)]
struct Facts<'a> {
    method: Option<&'static str>,
    version: Option<&'static str>,
    tool: Option<&'a Label>,
    prompt: Option<&'a Label>,
    error: Option<&'a Label>,
    code: Option<&'a Label>,
}

impl Instruments {
    /// Records the operations of a finished request.
    pub(super) fn record_mcp(&self, record: &Record, mcp: &Mcp, limiter: &CardinalityLimiter) {
        for operation in &mcp.operations {
            self.record_mcp_operation(record, mcp, operation, limiter);
        }
    }

    fn record_mcp_operation(
        &self,
        record: &Record,
        mcp: &Mcp,
        operation: &McpOperation,
        limiter: &CardinalityLimiter,
    ) {
        let admit = |dimension, name: Option<&Name>| Some(limiter.admit(dimension, name?));
        // A server rejects unknown names, and rejected names must not fill the limit.
        let is_accepted = operation.error_code.is_none() && record.error_type.is_none();
        let named = |name: Option<&Name>| match name {
            Some(name) if !is_accepted => {
                let known = limiter.get(Dimension::Tool, name);
                Some(known.unwrap_or_else(|| Label::from_trusted(OTHER)))
            }
            name => admit(Dimension::Tool, name),
        };
        let (tool, prompt) = (named(operation.tool()), named(operation.prompt()));
        let code = operation.error_code.and_then(|code| Name::new(&code.to_string()));
        let code = admit(Dimension::ErrorType, code.as_ref());
        let method = operation.message.method.as_ref();
        let method = method.map(|method| known_word(MCP_METHODS, method.as_str()));
        let http_error = record.error_type.as_ref();
        let [client, server] = [operation.client_error(), operation.server_error()]
            .map(|error| admit(Dimension::ErrorType, error.as_ref().or(http_error)));
        let facts = Facts {
            method,
            version: version(mcp.protocol_version.as_ref()),
            tool: tool.as_ref(),
            prompt: prompt.as_ref(),
            error: client.as_ref(),
            code: code.as_ref(),
        };
        let labels = self.mcp_labels(&record.route, &facts);
        let timestamps = &record.timestamps;
        if let Some(duration) = operation.duration(timestamps.sent, timestamps) {
            let base = mcp_attributes(&labels, &facts, true);
            self.table.record(&semconv::MCP_CLIENT_OPERATION, &base, &[], duration);
        }
        if let Some(duration) = operation.duration(Some(timestamps.accept), timestamps) {
            let facts = Facts { error: server.as_ref(), ..facts };
            let mut base = mcp_attributes(&labels, &facts, false);
            base.push(word(key::PROTOCOL_VERSION, protocol_version(record.http.version)));
            self.table.record(&semconv::MCP_SERVER_OPERATION, &sorted(base), &[], duration);
        }
    }

    /// Records the end of a session.
    pub fn record_mcp_session(&self, session: &McpSession, limiter: &CardinalityLimiter) {
        let error = session.error_type.as_ref();
        let error = error.map(|error| limiter.admit(Dimension::ErrorType, error));
        let facts = Facts {
            method: None,
            version: version(session.protocol_version.as_ref()),
            tool: None,
            prompt: None,
            error: error.as_ref(),
            code: None,
        };
        let labels = self.mcp_labels(&session.route, &facts);
        for (metric, is_client) in
            [(&semconv::MCP_CLIENT_SESSION, true), (&semconv::MCP_SERVER_SESSION, false)]
        {
            let base = mcp_attributes(&labels, &facts, is_client);
            self.table.record(metric, &base, &[], session.duration);
        }
    }

    /// Returns the labels with which a combination is admitted, for the metrics of client and server together.
    fn mcp_labels(&self, route: &RouteFacts, facts: &Facts<'_>) -> (UpstreamLabels, OverflowStep) {
        let upstream = UpstreamLabels::from_route(route);
        self.series_limiter.replace_with_other(&upstream, SeriesGroup::Mcp, facts)
    }
}

/// Returns the attributes of a series. Tool and prompt become `other` together with the model of other metrics.
fn mcp_attributes(
    (upstream, step): &(UpstreamLabels, OverflowStep),
    facts: &Facts<'_>,
    is_client: bool,
) -> Vec<KeyValue> {
    let mut attributes = route_attributes(&upstream.route_key);
    attributes.push(word(key::NETWORK_PROTOCOL, "http"));
    if let Some(method) = facts.method {
        attributes.push(word(key::MCP_METHOD, method));
        attributes.push(word(key::NETWORK_TRANSPORT, "tcp"));
    }
    if let Some(version) = facts.version {
        attributes.push(word(key::MCP_PROTOCOL_VERSION, version));
    }
    if is_client {
        attributes.push(label(key::SERVER_ADDRESS, &upstream.server_address));
        attributes.push(pair(key::SERVER_PORT, i64::from(upstream.server_port)));
    }
    let is_full = matches!(step, OverflowStep::Model | OverflowStep::Route);
    let other = Label::from_trusted(OTHER);
    for (key, name) in [(key::TOOL_NAME, facts.tool), (key::PROMPT_NAME, facts.prompt)] {
        attributes.extend(name.map(|name| label(key, if is_full { &other } else { name })));
    }
    let errors = [(key::ERROR_TYPE, facts.error), (key::RPC_STATUS, facts.code)];
    attributes.extend(errors.into_iter().filter_map(|(key, name)| Some(label(key, name?))));
    sorted(attributes)
}

fn version(name: Option<&Name>) -> Option<&'static str> {
    name.map(|version| known_word(MCP_VERSIONS, version.as_str()))
}
