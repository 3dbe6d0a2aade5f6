//! Measures the cost of counting a stream: deltas of four characters, with a count after each delta. To get the cost
//! per delta, divide the time by the number of deltas in the benchmark name.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tokengauge_llm::count::{Encoding, TextCounter, TokenCounter, TokenTotals};
use tokengauge_llm::dialect::Part;

const ENGLISH: &str = "The harbour was quiet that morning. Two boats had come in before dawn, low in the water, and their \
    crews were already asleep. \"You'll want to wait for the tide,\" the old man said, pointing at the sand bar with his \
    pipe. Nobody answered him; they'd heard it in 1998, and every year since. Still, the tide was what decided things \
    here: when the market opened, how long the ferry stayed, whether the schoolchildren got home before dark. ";

const CODE: &str = "fn median(values: &mut [f64]) -> Option<f64> {\n    values.sort_by(|a, b| a.total_cmp(b));\n    let \
    middle = values.len() / 2;\n    if values.len() % 2 == 1 {\n        values.get(middle).copied()\n    } else {\n        \
    // Two values share the middle.\n        let lower = values.get(middle.checked_sub(1)?)?;\n        Some((lower + \
    values.get(middle)?) / 2.0)\n    }\n}\n\n";

const CHINESE: &str = "港口那天早晨很安静。两艘船在天亮之前就已经进港，吃水很深，船员们早就睡着了。老人用烟斗指着沙洲说：\
    “你们最好等涨潮再走。”没有人回答他，这句话他们从一九九八年起每年都会听到一次。不过，这里的一切确实都由潮水决定：\
    集市什么时候开门，渡船停留多久，孩子们能不能在天黑之前回到家里。";

fn deltas(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.repeat(5).chars().collect();
    characters.chunks(4).map(String::from_iter).collect()
}

fn count(criterion: &mut Criterion) {
    for (name, text) in [("english", ENGLISH), ("code", CODE), ("chinese", CHINESE)] {
        let deltas = deltas(text);
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(deltas.len() as u64));
        for encoding in Encoding::ALL {
            let id = BenchmarkId::new(encoding.as_str(), deltas.len());
            group.bench_with_input(id, &deltas, |bencher, deltas| {
                bencher.iter(|| follow(encoding, deltas));
            });
        }
        let id = BenchmarkId::new("both", deltas.len());
        group.bench_with_input(id, &deltas, |bencher, deltas| {
            bencher.iter(|| follow_both(deltas));
        });
        group.finish();
    }
}

fn follow(encoding: Encoding, deltas: &[String]) -> u64 {
    let mut encoder = TextCounter::new(encoding);
    for delta in deltas {
        encoder.push(delta);
        black_box(encoder.count());
    }
    encoder.total()
}

fn follow_both(deltas: &[String]) -> TokenTotals {
    let mut counter = TokenCounter::default();
    counter.set_model("gpt-4");
    for delta in deltas {
        black_box(counter.push(0, Part::Text, delta));
    }
    counter.finish()
}

criterion_group!(benches, count);
criterion_main!(benches);
