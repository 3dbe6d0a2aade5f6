//! Reads the tables of `docs/reference/outages.md`, and writes the same cells from `/metrics`.

const PAGE: &str = include_str!("../../../docs/reference/outages.md");

/// A row about calls.
pub struct Row {
    pub breaks: &'static str,
    pub stream: bool,
    columns: Vec<&'static str>,
    /// All cells but the first and the last one, which has the alerts.
    pub cells: Vec<String>,
}

impl Row {
    pub fn cell(&self, column: &str) -> &str {
        let at = self.columns.iter().position(|name| *name == column).unwrap();
        &self.cells[at]
    }
}

/// Returns all rows about calls, with and without a stream.
pub fn rows() -> Vec<Row> {
    [("## Streams", true), ("## Calls without a stream", false)]
        .into_iter()
        .flat_map(|(title, stream)| table(title, stream))
        .collect()
}

fn table(title: &str, stream: bool) -> Vec<Row> {
    let (_, rest) = PAGE.split_once(&format!("\n{title}\n")).unwrap();
    let mut lines = rest.lines().skip_while(|line| !line.starts_with('|'));
    let names = cells(lines.next().unwrap());
    // The second line is the delimiter.
    let lines = lines.take_while(|line| line.starts_with('|')).skip(1);
    lines
        .map(|line| {
            let cells = cells(line);
            let last = names.len() - 1;
            Row {
                breaks: cells[0],
                stream,
                columns: names[1..last].to_vec(),
                cells: cells[1..last].iter().map(|cell| (*cell).to_owned()).collect(),
            }
        })
        .collect()
}

fn cells(line: &'static str) -> Vec<&'static str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

/// Returns the cells of the row as `/metrics` has them after one call.
pub fn line(row: &Row, metrics: &str) -> Vec<String> {
    let finished = moved(metrics, "tokengauge_requests_finished_total");
    let [finished] = finished.as_slice() else { panic!("{}: {finished:?}", row.breaks) };
    let or_dash = |key| label(finished, key).unwrap_or("–").to_owned();
    let cell = |column: &&str| match *column {
        "status" => or_dash("http_response_status_code"),
        "outcome" => or_dash("tokengauge_outcome"),
        "error source" => or_dash("tokengauge_error_source"),
        "error.type" => or_dash("error_type"),
        "tokens" => tokens(metrics).to_owned(),
        sli => result(metrics, sli).to_owned(),
    };
    row.columns.iter().map(cell).collect()
}

fn tokens(metrics: &str) -> &'static str {
    let series = moved(metrics, "tokengauge_tokens_total");
    let has = |kind| series.iter().any(|series| label(series, "gen_ai_token_type") == Some(kind));
    match (has("input"), has("output")) {
        (false, false) => "–",
        (true, false) => "input",
        (true, true) => "both",
        (false, true) => "output",
    }
}

fn result(metrics: &str, slo: &str) -> &'static str {
    let events = moved(metrics, "tokengauge_slo_events_total");
    let of_slo = |series: &&&str| label(series, "tokengauge_slo") == Some(slo);
    let results: Vec<_> =
        events.iter().filter(of_slo).map(|series| label(series, "tokengauge_result")).collect();
    match results.as_slice() {
        [] => "–",
        [Some("good")] => "good",
        [Some("bad")] => "**bad**",
        other => panic!("{slo}: {other:?}"),
    }
}

/// Returns whether a stall was counted.
pub fn has_stalled(metrics: &str) -> bool {
    !moved(metrics, "tokengauge_stream_stalls_total").is_empty()
}

/// Returns the series of `name` that are not 0.
fn moved<'a>(metrics: &'a str, name: &str) -> Vec<&'a str> {
    let is_moved = |line: &&str| line.split('{').next() == Some(name) && !line.ends_with(" 0");
    metrics.lines().filter(is_moved).collect()
}

/// Returns a label, or `None` if it is missing or empty.
fn label<'a>(series: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = series.split_once(&format!("{key}=\""))?;
    rest.split('"').next().filter(|value| !value.is_empty())
}
