//! Tests the connections to the collector: a path that fails silently, and renewed certificates.

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

/// Starts telemetry that exports spans with the client certificate in `folder`.
fn start_with_client_certificate(
    receiver: &Receiver,
    folder: &std::path::Path,
    protocol: &str,
) -> Telemetry {
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let mut config = config(
        receiver.address,
        &[
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", &file("ca.pem")),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", &file("client-key.pem")),
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", &file("client.pem")),
            ("OTEL_METRICS_EXPORTER", "none"),
            ("OTEL_BSP_SCHEDULE_DELAY", "10"),
        ],
    );
    let url = config.traces.endpoint.take().unwrap();
    config.traces.endpoint = Some(url.replace("http://127.0.0.1", "https://localhost"));
    start(config).0
}

#[test]
fn a_renewed_client_certificate_is_used_after_a_reload() {
    for protocol in ["http/protobuf", "grpc"] {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path());
        let receiver = Receiver::with(Behaviour::Answer, Some(authority.server(folder.path())));
        let first = authority.renew_client(folder.path());
        let telemetry = start_with_client_certificate(&receiver, folder.path(), protocol);
        let export = || {
            telemetry.record(&testing::streamed());
            receiver.next().peer
        };
        assert_eq!(export().certificate.as_ref(), Some(&first), "{protocol}");

        let second = authority.renew_client(folder.path());
        let peer = export();
        assert_eq!((peer.connection, peer.certificate), (0, Some(first.clone())), "{protocol}");
        telemetry.reload_certificates();
        let peer = export();
        assert_eq!((peer.connection, peer.certificate), (1, Some(second.clone())), "{protocol}");

        std::fs::write(folder.path().join("client-key.pem"), "").unwrap();
        telemetry.reload_certificates();
        let peer = export();
        assert_eq!((peer.connection, peer.certificate), (1, Some(second)), "{protocol}");
        assert!(telemetry.shutdown(DEADLINE));
    }
}

#[test]
fn a_renewed_authority_is_trusted_after_a_reload() {
    for protocol in ["http/protobuf", "grpc"] {
        let [folder, new] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        Authority::new(folder.path()).server(folder.path());
        let server = Authority::new(new.path()).server(new.path());
        let receiver = Receiver::with(Behaviour::Answer, Some(server));
        let telemetry = start_with_client_certificate(&receiver, folder.path(), protocol);
        for file in ["ca.pem", "client.pem", "client-key.pem"] {
            std::fs::copy(new.path().join(file), folder.path().join(file)).unwrap();
        }
        telemetry.reload_certificates();
        telemetry.record(&testing::streamed());
        assert!(receiver.next().path.to_lowercase().contains("trace"), "{protocol}");
        assert!(telemetry.shutdown(DEADLINE), "{protocol}");
    }
}
