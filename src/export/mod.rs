//! What leaves the process: names, metrics, spans, OTLP, Prometheus text.
