//! Shows the views on a terminal, until the user quits.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::overview::Overview;
use crate::screen::{self, Context};
use crate::ui::{Action, Ui, View};
use crate::watch::{Watch, now_unix_ms};
use tokengauge_types::clock;

/// Minimum time between two merges. Processes send an event per second.
const MERGE_INTERVAL: Duration = Duration::from_millis(1_000);

/// Maximum time without a new drawing, so that lengths of states advance.
const DRAW_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum time until a request to stop is noticed.
const STOP_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum time that the thread of the terminal has to end. A paused terminal blocks it.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// How the views look.
#[derive(Clone, Debug, Default)]
pub struct ScreenSettings {
    pub view: View,
    pub has_colours: bool,
    /// Lines about the program that shows the views.
    pub notes: Vec<String>,
}

/// Restores the terminal when it is dropped.
struct RestoreTerminal;

impl Drop for RestoreTerminal {
    fn drop(&mut self) {
        drop(ratatui::try_restore());
    }
}

/// Shows the views until the user quits or `stop` completes. A thread of its own draws, because a paused terminal blocks
/// it.
///
/// # Errors
/// Returns an error if the terminal cannot be used.
pub async fn show(
    watch: Watch,
    settings: ScreenSettings,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let is_stopped = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_stopped);
    let mut thread = tokio::task::spawn_blocking(move || {
        let terminal = ratatui::try_init();
        let _restore = RestoreTerminal;
        run(&watch, &settings, terminal?, &flag)
    });
    tokio::select! {
        ended = &mut thread => ended?,
        () = stop => {
            is_stopped.store(true, Ordering::Relaxed);
            match tokio::time::timeout(END_TIMEOUT, thread).await {
                Ok(ended) => ended?,
                Err(_) => ratatui::try_restore(),
            }
        }
    }
}

fn run(
    watch: &Watch,
    settings: &ScreenSettings,
    mut terminal: DefaultTerminal,
    is_stopped: &AtomicBool,
) -> io::Result<()> {
    let mut ui = Ui::new(settings.view);
    let mut overview = watch.overview();
    let (mut version, mut merged_at) = (watch.version(), clock::now());
    while !is_stopped.load(Ordering::Relaxed) {
        let is_due = clock::now().since(merged_at) >= MERGE_INTERVAL || !overview.has_data();
        if is_due && !ui.is_paused && watch.version() != version {
            (version, merged_at) = (watch.version(), clock::now());
            overview = watch.overview();
        }
        draw(&mut terminal, &overview, &ui, settings)?;
        let drawn_at = clock::now();
        while clock::now().since(drawn_at) < DRAW_INTERVAL && !is_stopped.load(Ordering::Relaxed) {
            if !event::poll(STOP_INTERVAL)? {
                continue;
            }
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match ui.press(key) {
                    Action::Quit => return Ok(()),
                    Action::Continue => break,
                },
                Event::Resize(..) => break,
                Event::Key(_)
                | Event::Mouse(_)
                | Event::Paste(_)
                | Event::FocusGained
                | Event::FocusLost => {}
            }
        }
    }
    Ok(())
}

fn draw(
    terminal: &mut DefaultTerminal,
    overview: &Overview,
    ui: &Ui,
    settings: &ScreenSettings,
) -> io::Result<()> {
    let context = Context {
        now_unix_ms: if ui.is_paused { overview.at_unix_ms } else { None }
            .unwrap_or_else(now_unix_ms),
        has_colours: settings.has_colours,
        has_several_processes: overview.processes.len() > 1,
        notes: settings.notes.clone(),
    };
    terminal.draw(|frame| {
        let area = frame.area();
        screen::draw(frame.buffer_mut(), area, overview, ui, &context);
    })?;
    Ok(())
}
