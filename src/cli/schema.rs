//! `tokengauge schema` prints the JSON Schemas of file formats.

use crate::config;
use tokengauge_console::document;
use tokengauge_telemetry::request_log;

/// The file formats that have a JSON Schema.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum SchemaOf {
    Config,
    RequestLog,
    Report,
    Accept,
    Prices,
    Console,
}

pub(super) fn schema(of: SchemaOf) -> String {
    let schema = match of {
        SchemaOf::Config => config::schema(),
        SchemaOf::RequestLog => request_log::schema(),
        SchemaOf::Report => tokengauge_report::schema(),
        SchemaOf::Accept => config::acceptance_schema(),
        SchemaOf::Prices => config::prices_schema(),
        SchemaOf::Console => document::schema(),
    };
    format!("{:#}", schema.as_value())
}
