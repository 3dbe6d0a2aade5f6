//! The help: keys, words and units.

use super::Context;
use super::canvas::{Canvas, Tone};

const HELP: [&str; 18] = [
    "1 to 5, Tab, ← →    choose a view",
    "j k, ↓ ↑, PgUp PgDn scroll; g first row, G last row",
    "s S                 sort by the next or the previous column; r reverses",
    "/                   show only rows with this text; Esc removes the filter",
    "p                   pause and continue",
    "q, Ctrl-C           quit",
    "",
    "Figures are those of the last 60 seconds; – is an undefined value, not 0.",
    "TTFT  time to first token        ITL  inter-token latency",
    "queue  requests that wait for their first token",
    "stalled  streams without a token for longer than the stall threshold",
    "stages  a tenth of the time each: q queued here, c connect, u upload,",
    "        w wait for the first token, r reasoning, d decode, t tail",
    "burn rate  1 × spends the error budget exactly within its window",
    "Several processes: counts and rates are sums; percentiles come from merged",
    "histograms. A process deviates if it has 20 requests, as two others have, and",
    "twice the TTFT p95, half the output rate, or twice the failed share (by 5 %).",
    "",
];

pub fn draw(canvas: &mut Canvas<'_>, context: &Context) {
    for line in HELP {
        canvas.text(line);
    }
    for note in &context.notes {
        canvas.line([(note.clone(), Tone::Faint)]);
    }
}
