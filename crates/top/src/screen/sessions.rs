//! The view Sessions: conversations of agents, the latest first.

use super::Context;
use super::canvas::{Canvas, plain};
use super::models::name;
use super::table::{self, Column, Key, Width};
use crate::format::{UNDEFINED, amount, count, percent, seconds, span};
use crate::overview::{Overview, Session};
use crate::ui::Ui;

pub fn draw(canvas: &mut Canvas<'_>, overview: &Overview, ui: &Ui, context: &Context) {
    if overview.sessions.is_empty() && overview.sessions_known == Some(false) {
        canvas.text("The requests have no session. Coding agents send one; for other clients,");
        return canvas.text("name a header in identity.session.headers of the configuration.");
    }
    table::draw(canvas, &COLUMNS, &overview.sessions, ui, context);
}

const COLUMNS: [Column<Session>; 10] = [
    Column {
        title: "SESSION",
        width: Width::Text(16, 40),
        rank: 1,
        cell: |it, _| plain(it.id.as_str()),
        key: |it| Key::Text(Some(it.id.to_string())),
    },
    Column {
        title: "AGENT",
        width: Width::Text(10, 24),
        rank: 4,
        cell: |it, _| plain(name(it.agent.as_ref())),
        key: |it| Key::Text(it.agent.as_ref().map(ToString::to_string)),
    },
    Column {
        title: "TENANT",
        width: Width::Text(8, 20),
        rank: 5,
        cell: |it, _| plain(name(it.tenant.as_ref())),
        key: |it| Key::Text(it.tenant.as_ref().map(ToString::to_string)),
    },
    Column {
        title: "CALLS",
        width: Width::Number(6),
        rank: 1,
        cell: |it, _| plain(count(Some(it.calls))),
        key: |it| Key::Number(Some(it.calls as f64)),
    },
    Column {
        title: "INPUT",
        width: Width::Number(7),
        rank: 2,
        cell: |it, _| plain(count(it.input_tokens)),
        key: |it| Key::Number(it.input_tokens.map(|it| it as f64)),
    },
    Column {
        title: "CACHED",
        width: Width::Number(8),
        rank: 3,
        cell: |it, _| plain(percent(it.cached_share())),
        key: |it| Key::Number(it.cached_share()),
    },
    Column {
        title: "OUTPUT",
        width: Width::Number(7),
        rank: 2,
        cell: |it, _| plain(count(it.output_tokens)),
        key: |it| Key::Number(it.output_tokens.map(|it| it as f64)),
    },
    Column {
        title: "COST",
        width: Width::Number(12),
        rank: 2,
        cell: |it, _| plain(cost(it)),
        key: |it| Key::Number(it.cost.first().map(|cost| cost.amount)),
    },
    Column {
        title: "DURATION",
        width: Width::Number(8),
        rank: 3,
        cell: |it, _| plain(seconds(it.duration_seconds())),
        key: |it| Key::Number(it.duration_seconds()),
    },
    Column {
        title: "LAST CALL",
        width: Width::Number(10),
        rank: 1,
        cell: |it, context| plain(ago(it.last_unix_ms, context)),
        key: |it| Key::Number(it.last_unix_ms.map(|it| it as f64)),
    },
];

fn cost(session: &Session) -> String {
    let costs = session.cost.iter();
    let costs: Vec<String> =
        costs.map(|cost| format!("{} {}", amount(cost.amount), cost.currency)).collect();
    if costs.is_empty() { UNDEFINED.to_owned() } else { costs.join(" + ") }
}

fn ago(at_unix_ms: Option<u64>, context: &Context) -> String {
    at_unix_ms.map_or(UNDEFINED.to_owned(), |at| {
        format!("{} ago", span(context.now_unix_ms.saturating_sub(at) as f64 / 1e3))
    })
}
