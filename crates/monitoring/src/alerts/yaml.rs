//! Writes rule groups as readable YAML. PromQL keeps its line breaks, long texts are wrapped, and quotes are used only
//! where required.

use crate::alerts::rule::{Alert, Group, Recording, Rule};
use crate::alerts::values::Links;

/// Maximum column of wrapped text. A single longer word may exceed this column.
const WIDTH: usize = 120;

/// Writes `groups:` and its content, indented by `depth` levels.
pub(super) fn groups<'g>(
    groups: impl IntoIterator<Item = &'g Group>,
    links: &Links,
    depth: usize,
) -> String {
    let mut out = Writer::default();
    out.line(depth, "groups:");
    for group in groups {
        out.line(depth + 1, &format!("- name: {}", scalar(&group.name)));
        out.line(depth + 2, &format!("interval: {}", group.interval));
        out.line(depth + 2, "rules:");
        for rule in &group.rules {
            match rule {
                Rule::Record(recording) => out.recording(depth + 3, recording),
                Rule::Alert(alert) => out.alert(depth + 3, alert, links),
            }
        }
    }
    out.text
}

#[derive(Default)]
struct Writer {
    text: String,
}

impl Writer {
    fn line(&mut self, depth: usize, line: &str) {
        self.text.push_str(&"  ".repeat(depth));
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn recording(&mut self, depth: usize, recording: &Recording) {
        self.line(depth, &format!("- record: {}", scalar(&recording.record)));
        self.block(depth + 1, "expr", &recording.expr);
        if !recording.labels.is_empty() {
            self.line(depth + 1, "labels:");
        }
        for (name, value) in &recording.labels {
            self.line(depth + 2, &format!("{name}: {}", scalar(value)));
        }
    }

    fn alert(&mut self, depth: usize, alert: &Alert, links: &Links) {
        self.line(depth, &format!("- alert: {}", alert.name));
        self.block(depth + 1, "expr", &alert.expr);
        for (key, span) in [("for", alert.pending_for), ("keep_firing_for", alert.keep_firing_for)]
        {
            if let Some(span) = span {
                self.line(depth + 1, &format!("{key}: {span}"));
            }
        }
        self.line(depth + 1, "labels:");
        self.line(depth + 2, &format!("severity: {}", alert.severity.as_str()));
        self.line(depth + 1, "annotations:");
        self.folded(depth + 2, "summary", &alert.summary);
        self.folded(depth + 2, "description", &alert.description);
        let runbook = links.runbooks.for_alert(&alert.name);
        self.line(depth + 2, &format!("runbook_url: {}", scalar(&runbook)));
        let dashboard = format!("{}/d/{}", links.grafana, alert.dashboard);
        self.line(depth + 2, &format!("dashboard_url: {}", scalar(&dashboard)));
    }

    /// Writes a literal block, which keeps line breaks.
    fn block(&mut self, depth: usize, key: &str, text: &str) {
        self.line(depth, &format!("{key}: |"));
        for line in text.lines() {
            self.line(depth + 1, line);
        }
    }

    /// Writes a single-line text. A text that is too long is wrapped between words, and YAML joins the lines with
    /// single spaces.
    fn folded(&mut self, depth: usize, key: &str, text: &str) {
        let whole = format!("{key}: {}", scalar(text));
        if 2 * depth + whole.len() <= WIDTH {
            self.line(depth, &whole);
            return;
        }
        self.line(depth, &format!("{key}: >-"));
        let mut line = String::new();
        for word in words(text) {
            if !line.is_empty() && 2 * (depth + 1) + line.len() + 1 + word.len() > WIDTH {
                self.line(depth + 1, &line);
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(&word);
        }
        self.line(depth + 1, &line);
    }
}

/// Splits a text into words. A template between `{{` and `}}` is one word, so that it is never wrapped.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for part in text.split(' ') {
        let open = |word: &&mut String| word.matches("{{").count() > word.matches("}}").count();
        match words.last_mut().filter(open) {
            Some(word) => {
                word.push(' ');
                word.push_str(part);
            }
            None => words.push(part.to_owned()),
        }
    }
    words
}

/// Writes a single-line scalar. Adds quotes only if YAML would parse the unquoted text differently.
fn scalar(text: &str) -> String {
    if is_plain(text) {
        return text.to_owned();
    }
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn is_plain(text: &str) -> bool {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic());
    let word = !matches!(
        text.to_ascii_lowercase().as_str(),
        "null" | "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n"
    );
    let ends = text.ends_with([':', ' ']);
    starts && word && !ends && !text.contains(": ") && !text.contains(" #") && !text.contains('\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_only_where_necessary() {
        for (text, expected) in [
            ("slo:sli_error:ratio_rate5m", "slo:sli_error:ratio_rate5m"),
            ("https://a.b/c", "https://a.b/c"),
            ("{{ $labels.job }} is gone", "\"{{ $labels.job }} is gone\""),
            ("Gone: all of it", "\"Gone: all of it\""),
            ("a \"b\" c", "a \"b\" c"),
            ("5m", "\"5m\""),
            ("on", "\"on\""),
            ("", "\"\""),
            ("\\d \"x\"", "\"\\\\d \\\"x\\\"\""),
        ] {
            assert_eq!(scalar(text), expected);
        }
    }

    #[test]
    fn folded_text_reads_back_unchanged() {
        let words = "{{ $labels.job }}: ".to_owned() + &"a few words, # and more: ".repeat(20);
        let mut out = Writer::default();
        out.folded(2, "description", words.trim());
        assert!(out.text.lines().count() > 3);
        assert!(out.text.lines().all(|line| line.len() <= WIDTH), "{}", out.text);
        let read: serde_json::Value = serde_saphyr::from_str(&out.text).unwrap();
        assert_eq!(read["description"], words.trim());
    }
}
