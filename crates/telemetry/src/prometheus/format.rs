//! Selects the format of a scrape from its `Accept` header.

/// Format of the response to a scrape.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// The Prometheus text format, version 0.0.4, which all scrapers can parse.
    Text,
    /// OpenMetrics 1.0, which supports exemplars.
    OpenMetrics,
}

impl Format {
    /// Selects the format for an `Accept` header. OpenMetrics is selected if the header prefers it to plain text or
    /// ranks them equally. Prometheus sends such a header.
    pub fn accepted(accept: &str) -> Self {
        let (mut open, mut plain, mut any) = (None::<u32>, None, None);
        for range in accept.split(',').map(Range::parse) {
            let quality = match (range.kind.as_str(), range.version) {
                ("application/openmetrics-text", None | Some("1.0.0")) => &mut open,
                ("text/plain", None | Some("0.0.4")) => &mut plain,
                ("text/*" | "*/*", _) => &mut any,
                _ => continue,
            };
            *quality = (*quality).max(Some(range.thousandths));
        }
        let plain = plain.or(any);
        if open > Some(0) && open >= plain { Self::OpenMetrics } else { Self::Text }
    }

    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// One entry of an `Accept` header.
struct Range<'a> {
    kind: String,
    version: Option<&'a str>,
    /// Quality (`q`) in thousandths, from 0 to 1,000. A missing or invalid quality counts as 1,000.
    thousandths: u32,
}

impl<'a> Range<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let mut range = Self {
            kind: parts.next().unwrap_or_default().to_ascii_lowercase(),
            version: None,
            thousandths: 1_000,
        };
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            if key.eq_ignore_ascii_case("q") {
                range.thousandths = thousandths(value).unwrap_or(1_000);
            } else if key.eq_ignore_ascii_case("version") {
                range.version = Some(value.trim_matches('"'));
            }
        }
        range
    }
}

/// Parses a quality (`q`), which is `0` or `1` with up to three decimals. Returns thousandths.
fn thousandths(quality: &str) -> Option<u32> {
    let (whole, part) = quality.split_once('.').unwrap_or((quality, ""));
    let whole: u32 = whole.parse().ok().filter(|whole| *whole <= 1)?;
    if part.len() > 3 || !part.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let part: u32 = format!("{part:0<3}").parse().ok()?;
    Some((whole * 1_000 + part).min(1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selects_open_metrics_only_on_request() {
        for (accept, expected) in [
            ("", Format::Text),
            ("*/*", Format::Text),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Format::Text),
            ("text/plain", Format::Text),
            ("application/*", Format::Text),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("Application/OpenMetrics-Text; Version=\"1.0.0\"", Format::OpenMetrics),
            ("application/openmetrics-text;version=2.0.0", Format::Text),
            ("application/openmetrics-text;q=0", Format::Text),
            ("application/openmetrics-text;q=0.0,*/*;q=0", Format::Text),
            ("application/openmetrics-text;q=0.4,text/plain;q=0.5", Format::Text),
            ("application/openmetrics-text;q=0.5,text/plain;q=0.5", Format::OpenMetrics),
            ("text/plain;q=0.3,application/openmetrics-text;q=0.5,*/*", Format::OpenMetrics),
            ("application/openmetrics-text;q=nonsense,text/plain", Format::OpenMetrics),
            // `Accept` header of Prometheus 2.42.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                Format::OpenMetrics,
            ),
            // `Accept` headers of Prometheus 3: the default, and with only the text format configured.
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                Format::OpenMetrics,
            ),
            (
                "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                Format::Text,
            ),
        ] {
            assert_eq!(Format::accepted(accept), expected, "{accept}");
        }
    }

    #[test]
    fn parses_qualities_in_thousandths() {
        for (text, expected) in [
            ("1", Some(1_000)),
            ("0", Some(0)),
            ("0.5", Some(500)),
            ("0.05", Some(50)),
            ("0.125", Some(125)),
            ("1.000", Some(1_000)),
            ("2", None),
            ("0.1234", None),
            ("0.+1", None),
            ("", None),
        ] {
            assert_eq!(thousandths(text), expected, "{text}");
        }
    }
}
