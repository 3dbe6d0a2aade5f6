//! Measures the cost of observing one exchange after the channel: applying its events, recording its metrics and
//! encoding its spans. Uses neither sockets nor threads. The response has 100 tokens, either as one JSON body or as a
//! stream of 100 chunks.

mod stage;

use criterion::{Criterion, criterion_group, criterion_main};

use stage::{STREAM_REQUEST, Stage, WHOLE_REQUEST};

fn exchange(criterion: &mut Criterion) {
    for (name, request, kind, answer) in [
        ("json", WHOLE_REQUEST, "application/json", stage::whole()),
        ("stream", STREAM_REQUEST, "text/event-stream", stage::stream()),
    ] {
        let mut group = criterion.benchmark_group(name);
        for (observed, mut stage) in [
            ("metrics", Stage::new(false)),
            ("metrics and spans", Stage::new(true)),
            ("metrics, spans and content", Stage::new(true).with_content_capture()),
        ] {
            group.bench_function(observed, |bencher| {
                bencher.iter(|| stage.exchange(request, kind, &answer));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, exchange);
criterion_main!(benches);
