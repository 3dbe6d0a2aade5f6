//! Where in a text one document ends and the next begins.

use serde_saphyr::granit_parser::Event;

use super::error::Error;
use super::events::events;

/// The documents' texts; together they are the whole text. What stands before the first belongs to it, and so does to
/// the last what follows it.
pub(super) fn pieces(text: &str) -> Result<Vec<&str>, Error> {
    let mut cuts = vec![0];
    let mut documents = 0_usize;
    let mut behind_end = None;
    for event in events(text, false) {
        let (event, bytes) = event?;
        if matches!(event, Event::DocumentStart(..)) {
            documents += 1;
            if documents > 1 {
                cuts.push(behind_end.take().unwrap_or(bytes.start));
            }
        } else if matches!(event, Event::DocumentEnd) && text.get(bytes.range()) == Some("...") {
            behind_end = Some(line_after(text, bytes.end));
        }
    }
    cuts.push(text.len());
    let pieces = cuts.windows(2).filter_map(|cut| match *cut {
        [from, to] if from < to => text.get(from..to),
        _ => None,
    });
    Ok(pieces.collect())
}

fn line_after(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    rest.find('\n').map_or(text.len(), |end| at + end + 1)
}
