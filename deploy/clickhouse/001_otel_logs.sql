-- The table into which the Collector's clickhouseexporter inserts, with the columns that the exporter creates
-- (contrib v0.159.0), except its columns for Kubernetes and its indexes. The engine Null stores nothing: the views of the
-- next files pick the requests.
CREATE DATABASE IF NOT EXISTS tokengauge;

CREATE TABLE IF NOT EXISTS tokengauge.otel_logs
(
    Timestamp DateTime64(9),
    TraceId String,
    SpanId String,
    TraceFlags UInt8,
    SeverityText LowCardinality(String),
    SeverityNumber UInt8,
    ServiceName LowCardinality(String),
    Body String,
    ResourceSchemaUrl LowCardinality(String),
    ResourceAttributes Map(LowCardinality(String), String),
    ScopeSchemaUrl LowCardinality(String),
    ScopeName String,
    ScopeVersion LowCardinality(String),
    ScopeAttributes Map(LowCardinality(String), String),
    LogAttributes Map(LowCardinality(String), String),
    EventName String
)
ENGINE = Null;
