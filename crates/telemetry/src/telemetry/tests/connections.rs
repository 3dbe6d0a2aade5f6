//! Tests the connections to the collector: a path that fails silently.

use super::*;

/// Returns the number of metric exports with this result.
fn exports(telemetry: &Telemetry, result: &str) -> u64 {
    let text = Format::Text.render(&telemetry.scrape());
    let series = format!(
        "tokengauge_self_export_requests_total{{tokengauge_result=\"{result}\",tokengauge_signal=\"metrics\"}} "
    );
    let line = text.lines().find_map(|line| line.strip_prefix(series.as_str()));
    line.unwrap().parse().unwrap()
}

#[test]
fn exports_leave_a_connection_whose_path_has_failed() {
    for protocol in ["http/protobuf", "grpc"] {
        let receiver = Receiver::start(Behaviour::SilentFirst);
        let (telemetry, _) = start(config(
            receiver.address,
            &[
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
                // Long enough for an export on a busy machine.
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "1000"),
                ("OTEL_METRIC_EXPORT_INTERVAL", "20"),
                ("OTEL_TRACES_EXPORTER", "none"),
            ],
        ));
        let before = clock::now();
        while exports(&telemetry, "ok") == 0 {
            assert!(clock::now() - before < DEADLINE, "{protocol}: no export succeeds");
            std::thread::yield_now();
        }
        let failed = exports(&telemetry, "failed");
        assert!((1..=4).contains(&failed), "{protocol}: {failed}");
        assert!(telemetry.shutdown(DEADLINE), "{protocol}");
    }
}
