//! The terminal view of `tokengauge top`: one or several processes, read from their admin ports and merged.
//!
//! [`Watch`] reads `GET /api/v1/live` of each process, [`Overview`] merges the documents, and [`show`] draws them.

mod address;
mod client;
mod document;
mod format;
mod histogram;
mod lines;
mod overview;
mod screen;
mod terminal;
#[cfg(test)]
mod testing;
mod text;
mod ui;
mod watch;
mod window;

pub use address::{AddressError, AdminUrl};
pub use lines::block as lines;
pub use overview::Overview;
pub use terminal::{ScreenSettings, show};
pub use ui::View;
pub use watch::{Targets, Watch, now_unix_ms, read_once};

/// Renders a view as plain text of `columns` columns.
pub fn plain_text(overview: &Overview, view: View, columns: u16) -> String {
    let context = screen::Context {
        now_unix_ms: now_unix_ms(),
        has_several_processes: overview.processes.len() > 1,
        ..screen::Context::default()
    };
    screen::plain_text(overview, view, columns, &context)
}
