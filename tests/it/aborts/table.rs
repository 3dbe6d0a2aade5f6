//! Reads the table of `docs/reference/outcomes.md`: the facts that are reported for an exchange that ends early, by
//! moment and cause.
//!
//! The tests over sockets and the tests with fixed timestamps both use these rows.

/// One row of the table. A field is `None` if the page has a dash.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cell {
    pub when: &'static str,
    pub what: &'static str,
    pub facts: Facts,
}

/// The reported facts, in the notation of spans and metrics.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Facts {
    pub status: Option<String>,
    pub outcome: String,
    pub error_source: String,
    pub error: Option<String>,
    /// The stage in which the exchange ended.
    pub stage: String,
    /// Output tokens that tokengauge counted.
    pub tokens: Option<String>,
    /// Output tokens that the provider reported.
    pub usage: Option<String>,
    pub complete: Option<String>,
    pub finish: Option<String>,
    pub spans: usize,
}

const PAGE: &str = include_str!("../../../docs/reference/outcomes.md");

/// Returns every row of the page's first table, in order.
pub fn cells() -> Vec<Cell> {
    let table = PAGE.lines().skip_while(|line| !line.starts_with('|'));
    // The first two lines are the names of the columns and the delimiter.
    table.take_while(|line| line.starts_with('|')).skip(2).map(cell).collect()
}

fn cell(row: &'static str) -> Cell {
    let columns: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
    let [
        when,
        what,
        status,
        outcome,
        error_source,
        error,
        stage,
        tokens,
        usage,
        complete,
        finish,
        spans,
    ] = columns.as_slice()
    else {
        panic!("wrong number of columns: {row}");
    };
    let some = |text: &str| (text != "–").then(|| text.to_owned());
    Cell {
        when,
        what,
        facts: Facts {
            status: some(status),
            outcome: (*outcome).to_owned(),
            error_source: (*error_source).to_owned(),
            error: some(error),
            stage: (*stage).to_owned(),
            tokens: some(tokens),
            usage: some(usage),
            complete: some(complete),
            finish: some(finish),
            spans: spans.parse().expect("a number of spans"),
        },
    }
}
