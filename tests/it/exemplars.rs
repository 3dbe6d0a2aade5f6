//! Tests that each exemplar in the program's metrics refers to a span that the collector has received.

use std::collections::BTreeSet;

use crate::support::collector::Collector;
use crate::support::process::{CALL, DONE, Process, open};
use crate::support::{Backend, within};

const ASKING: &str = "Accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n";

/// Returns the trace and span ids of the exemplars at the buckets of the time to first token.
fn exemplars(page: &str) -> BTreeSet<(String, String)> {
    let buckets = page
        .lines()
        .filter(|line| line.starts_with("tokengauge_time_to_first_token_seconds_bucket{"));
    let labels = buckets.filter_map(|line| Some(line.split_once(" # {")?.1));
    let ids = labels.map(|labels| {
        let quoted: Vec<_> = labels.split('"').collect();
        assert_eq!((quoted[0], quoted[2]), ("trace_id=", ",span_id="));
        (quoted[1].to_owned(), quoted[3].to_owned())
    });
    ids.collect()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn an_exemplar_refers_to_an_exported_span() {
    let backend = Backend::start().await;
    let collector = Collector::start().await;
    let upstream = format!("http://{}", backend.address);
    let endpoint = format!("http://{}", collector.address);
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
    ];
    let mut process = Process::start(&["--upstream", &upstream], &environment).await;
    let (mut client, mut at_upstream) = open(&process, &backend, CALL).await;
    let (_, page) = process.page_with("/metrics", ASKING).await;
    assert_eq!(exemplars(&page), BTreeSet::new(), "an open stream has no exemplar");
    at_upstream.write(DONE).await;
    client.read_exactly(DONE.len()).await;
    let finished = ["tokengauge_requests_finished_total{"];
    within("the exchange's end", async { while process.count(&finished).await == 0 {} }).await;

    let (head, page) = process.page_with("/metrics", ASKING).await;
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"));
    assert!(page.ends_with("# EOF\n"));
    let (head, text) = process.page("/metrics").await;
    assert!(head.contains("content-type: text/plain; version=0.0.4"));
    assert!(!text.contains("trace_id"), "the text format has no exemplars");

    process.signal("TERM");
    assert_eq!(process.ended().await.code(), Some(0));
    let client_spans = collector.spans().into_iter().filter(|span| span.kind == 3);
    let sent: BTreeSet<_> = client_spans
        .map(|span| (hexadecimal(&span.trace_id), hexadecimal(&span.span_id)))
        .collect();
    assert_eq!(sent.len(), 1);
    assert_eq!(exemplars(&page), sent);
}
