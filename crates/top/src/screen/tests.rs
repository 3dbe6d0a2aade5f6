use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;

use super::*;
use crate::overview::Source;
use crate::testing::{NOW, document, source, unreachable};

const SIZES: [(u16, u16); 2] = [(80, 24), (160, 50)];

fn one() -> Vec<Source> {
    vec![source("127.0.0.1:4001", document("gateway-7d4b9", &[0.3, 0.4, 4.2], 1))]
}

fn several() -> Vec<Source> {
    let fast = vec![0.3; 20];
    let slow = vec![0.8; 20];
    vec![
        source("10.0.0.1:4001", document("pod-1", &fast, 0)),
        source("10.0.0.2:4001", document("pod-2", &fast, 0)),
        source("10.0.0.3:4001", document("pod-3", &slow, 0)),
        unreachable("10.0.0.4:4001"),
    ]
}

fn drawn(sources: &[Source], ui: &Ui, (columns, lines): (u16, u16)) -> String {
    let overview = Overview::merge(sources, 0);
    let context = Context {
        now_unix_ms: NOW,
        has_several_processes: sources.len() > 1,
        ..Context::default()
    };
    let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
    let show = |frame: &mut ratatui::Frame<'_>| {
        let area = frame.area();
        draw(frame.buffer_mut(), area, &overview, ui, &context);
    };
    terminal.draw(show).unwrap();
    text(terminal.backend().buffer())
}

#[test]
fn draws_each_view_at_both_sizes() {
    for view in View::ALL {
        for size in SIZES {
            let name = format!("{}_{}x{}", view.title(), size.0, size.1);
            insta::assert_snapshot!(name, drawn(&one(), &Ui::new(view), size));
        }
    }
}

#[test]
fn draws_several_processes_at_both_sizes() {
    for view in [View::Now, View::Slos, View::Streams] {
        for size in SIZES {
            let name = format!("several_{}_{}x{}", view.title(), size.0, size.1);
            insta::assert_snapshot!(name, drawn(&several(), &Ui::new(view), size));
        }
    }
}

#[test]
fn draws_the_help() {
    let ui = Ui { has_help: true, ..Ui::default() };
    insta::assert_snapshot!(drawn(&one(), &ui, SIZES[0]));
}

#[test]
fn prints_a_view_as_plain_text() {
    let context = Context { now_unix_ms: NOW, has_several_processes: true, ..Context::default() };
    let overview = Overview::merge(&several(), 3);
    insta::assert_snapshot!(plain_text(&overview, View::Now, 100, &context));
    let nothing = Overview::merge(&[unreachable("10.0.0.4:4001")], 0);
    insta::assert_snapshot!(plain_text(&nothing, View::Now, 80, &context));
}

#[test]
fn filters_and_sorts_rows() {
    let mut ui = Ui { filter: "STALL".to_owned(), ..Ui::new(View::Streams) };
    let text = drawn(&one(), &ui, SIZES[0]);
    assert!(text.contains("stalled") && !text.contains("client is slow"), "{text}");
    ui.filter = "nothing like this".to_owned();
    assert!(drawn(&one(), &ui, SIZES[0]).contains("no row matches the filter"));
    // The third column is the age.
    let first_row = |ui: &Ui| drawn(&one(), ui, SIZES[0]).lines().nth(4).unwrap().to_owned();
    let sorted = Ui { sort: Some(2), ..Ui::new(View::Streams) };
    assert!(first_row(&sorted).contains("41.0 s"), "{}", first_row(&sorted));
    let reversed = Ui { is_reversed: true, ..sorted };
    assert!(first_row(&reversed).contains("400 ms"), "{}", first_row(&reversed));
}

#[test]
fn scrolls_to_the_last_row_and_not_further() {
    let mut many = document("a", &[], 0);
    let streams = (0..100).map(|nth| json!({"request_number": nth, "model": format!("m-{nth:03}"), "age_seconds": 1000 - nth}));
    many["streams"] = streams.collect();
    let sources = [source("127.0.0.1:1", many)];
    let ui = Ui { scroll: usize::MAX / 2, ..Ui::new(View::Streams) };
    let text = drawn(&sources, &ui, SIZES[0]);
    assert!(text.contains("m-099") && text.contains("of 100"), "{text}");
    assert!(!text.contains("m-000"), "{text}");
}

#[test]
fn undefined_is_never_zero() {
    let sources = [source("127.0.0.1:1", json!({}))];
    let now = drawn(&sources, &Ui::default(), SIZES[1]);
    let figures = now.lines().skip_while(|line| !line.starts_with("Requests")).take(9);
    for line in figures {
        assert!(line.contains('–') && !line.contains(" 0"), "{line}");
    }
}

/// Names from requests are untrusted: no name may break a line, move a column or send an escape sequence.
#[test]
fn hostile_names_are_text() {
    let names = [
        "\x1b[2J\x1b]0;x\x07",
        "a\r\nb\u{85}c\u{2028}d",
        "模型名称非常长的名字和更多的文字",
        "\u{202e}evil\u{200f}",
        "👩‍👩‍👧‍👦 e\u{301}\u{301}\u{301}",
        "\u{200b}\u{feff}\u{0}\u{7f}\u{9b}31m",
    ];
    let long = "x\x1b[31m".repeat(1_700);
    for name in names.into_iter().chain([long.as_str()]) {
        let mut hostile = document("plain", &[0.3; 20], 1).to_string();
        for known in [
            "gpt-4o",
            "openai",
            "team-b",
            "01J-agent",
            "plain",
            "claude-code/2.1",
            "USD",
            "rate_limited",
            "availability",
            "LLMTTFTDegraded",
            "anthropic",
        ] {
            let escaped = serde_json::to_string(name).unwrap();
            hostile = hostile.replace(known, escaped.trim_matches('"'));
        }
        let document: serde_json::Value = serde_json::from_str(&hostile).unwrap();
        let sources = [
            source("10.0.0.1:1", document.clone()),
            source("10.0.0.2:1", document),
            unreachable("10.0.0.3:1"),
        ];
        for view in View::ALL {
            for (columns, lines) in [(80, 24), (160, 50), (20, 5), (1, 1)] {
                let text = drawn(&sources, &Ui::new(view), (columns, lines));
                assert!(text.lines().count() <= usize::from(lines), "{text}");
                for line in text.lines() {
                    assert!(!line.contains(char::is_control), "{line:?}");
                    assert!(width(line) <= usize::from(columns), "{columns}: {line:?}");
                }
            }
        }
        let overview = Overview::merge(&sources, 0);
        let block = crate::lines::block(&overview, NOW);
        assert!(
            block.lines().all(|line| !line.contains(char::is_control) && line.starts_with("t=")),
            "{block:?}"
        );
    }
}

#[test]
fn colours_change_no_text() {
    let overview = Overview::merge(&several(), 0);
    for view in View::ALL {
        let render = |has_colours| {
            let context = Context {
                now_unix_ms: NOW,
                has_colours,
                has_several_processes: true,
                ..Context::default()
            };
            let area = Rect::new(0, 0, 120, 40);
            let mut buffer = Buffer::empty(area);
            draw(&mut buffer, area, &overview, &Ui::new(view), &context);
            buffer
        };
        let (with, without) = (render(true), render(false));
        assert_eq!(text(&with), text(&without));
        let coloured = |buffer: &Buffer| {
            buffer.content.iter().any(|cell| cell.fg != ratatui::style::Color::Reset)
        };
        assert!(!coloured(&without));
        assert!(coloured(&with) || view == View::Models || view == View::Sessions);
    }
}
