//! Tests faults of the collector.

use std::fs;

use crate::support::certificate::Certificate;
use crate::support::collector::Collector;
use crate::support::process::{CALL, DONE, Process, open};
use crate::support::{Backend, within};

/// Performs one call that succeeds.
async fn call(process: &Process, backend: &Backend) {
    let (mut client, mut upstream) = open(process, backend, CALL).await;
    upstream.write(DONE).await;
    client.read_until(DONE).await;
}

#[tokio::test]
async fn an_expired_certificate_of_the_collector_is_logged_once_and_drops_are_counted() {
    let [expired, valid] = [Certificate::expired(), Certificate::new()];
    let folder = tempfile::tempdir().unwrap();
    let trusted = folder.path().join("ca.pem");
    let both = [&expired, &valid].map(|certificate| fs::read(certificate.file()).unwrap());
    fs::write(&trusted, both.concat()).unwrap();
    let collector = Collector::start().await;
    collector.present(&expired);
    let backend = Backend::start().await;
    let process = Process::start(
        &["--upstream", &format!("http://{}", backend.address)],
        &[
            (
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                &format!("https://localhost:{}", collector.address.port()),
            ),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", trusted.to_str().unwrap()),
            ("OTEL_METRICS_EXPORTER", "none"),
            ("OTEL_BSP_SCHEDULE_DELAY", "10"),
        ],
    )
    .await;
    // Each call has a span of the request and one of the model.
    for lost in [2, 4] {
        call(&process, &backend).await;
        within("dropped spans", async {
            while process.count(&["self_export_dropped_total", "\"traces\""]).await < lost {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    let failed = "OTLP export failed";
    let log = process.logged(&[failed, "traces", "certificate expired"]).await;
    assert_eq!(log.matches(failed).count(), 1, "{log}");
    assert!(collector.bytes().is_empty());

    collector.present(&valid);
    call(&process, &backend).await;
    process.logged(&["OTLP export recovered", "traces"]).await;
    within("the spans", async {
        while collector.spans().len() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(collector.spans().len(), 2);
    assert_eq!(process.count(&["self_export_dropped_total", "\"traces\""]).await, 4);
}
