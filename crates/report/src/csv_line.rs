//! Writes one line of CSV (RFC 4180).

/// Quotes a text if necessary. Spreadsheets execute a cell that starts with one of these characters as a formula, and
/// clients choose the names of tenants and models. Such a text therefore gets an apostrophe.
pub fn text(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = format!("{}{text}", if is_formula { "'" } else { "" });
    if text.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text
}

/// Returns a line with the cells, which are quoted already.
pub fn row(cells: &[String]) -> String {
    cells.join(",") + "\r\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_texts_and_defuses_formulas() {
        for (written, cell) in [
            ("team a", "team a"),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("=1+1", "'=1+1"),
            ("@x,y", "\"'@x,y\""),
        ] {
            assert_eq!(text(written), cell);
        }
    }
}
