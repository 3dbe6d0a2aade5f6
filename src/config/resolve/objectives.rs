//! Objectives: those of the file, or the defaults.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{check_name, length_within};
use crate::config::problem::{Mark, Problems, suggestion};
use crate::config::raw;
use crate::config::read::{Field, Given};
use crate::config::value::{Length, Threshold};
use crate::label::Label;
use crate::slo::{Indicator, Objective, Scope};

/// What the arithmetic of budgets covers.
const WINDOWS: RangeInclusive<Duration> =
    Duration::from_secs(3_600)..=Duration::from_secs(90 * 86_400);

/// A month less its odd days: the window that the usual burn-rate factors (14.4, 6, 3, 1) are made for.
const WINDOW: Duration = Duration::from_secs(30 * 86_400);

/// Promises for chat that mean something on the first day; who knows better writes their own.
///
/// - Availability 99.5 %: 3 h 36 min of full outage in 30 days, room enough for one bad afternoon of a vendor.
/// - First token within 2 s for 95 %: loose on purpose, since nothing is known yet of models and prompts; a chat that is
///   meant to feel immediate wants 500 ms.
/// - 15 tokens per second and more for 95 %: three times as fast as people read, so that nobody waits for the text.
/// - Over within 60 s for 95 %: where nginx and common load balancers give up on an answer that is not streamed.
pub(super) fn defaults() -> Vec<Objective> {
    let promises = [
        ("availability", Indicator::Availability, 0.995),
        (
            "ttft",
            Indicator::TimeToFirstToken(Duration::from_secs(2)),
            0.95,
        ),
        ("output_rate", Indicator::OutputRate(15.0), 0.95),
        (
            "duration",
            Indicator::Duration(Duration::from_secs(60)),
            0.95,
        ),
    ];
    let objective = |(name, indicator, target)| Objective {
        name: Label::known(name),
        indicator,
        target,
        window: WINDOW,
        scope: Scope::default(),
    };
    promises.map(objective).into()
}

pub(super) fn resolve(
    written: Field<Vec<Field<raw::Objective>>>,
    routes: &[String],
    problems: &mut Problems,
) -> Vec<Objective> {
    let Field::Given(written) = written else {
        return defaults();
    };
    let mut names: Vec<String> = Vec::new();
    let mut objectives = Vec::new();
    for written in written.value.into_iter().filter_map(Field::given) {
        if let Field::Given(name) = &written.value.name {
            check_name(&name.value, name.mark, problems);
            if names.contains(&name.value) {
                let message = format!(
                    "a second objective is called \"{}\"; give this one another name",
                    name.value
                );
                problems.at(name.mark, message);
            }
            names.push(name.value.clone());
        }
        objectives.extend(objective(written, routes, problems));
    }
    objectives
}

fn objective(
    written: Given<raw::Objective>,
    routes: &[String],
    problems: &mut Problems,
) -> Option<Objective> {
    let Given { value, mark } = written;
    let name = value
        .name
        .required(problems, mark, "name", "give it one, such as chat-ttft");
    let target = value.target.required(
        problems,
        mark,
        "target",
        "write the share that shall be good, such as 99.5%",
    );
    let remedy = "write one of availability, ttft, output_rate, duration";
    let kind = value
        .indicator
        .required(problems, mark, "indicator", remedy);
    let indicator = kind.and_then(|kind| indicator(kind.value, value.threshold, mark, problems));
    let window = length_within(value.window, WINDOWS, problems).unwrap_or(WINDOW);
    let scope = scope(value.scope, routes, problems);
    Some(Objective {
        name: Label::known(&name?.value),
        indicator: indicator?,
        target: target?.value.0,
        window,
        scope,
    })
}

fn indicator(
    kind: raw::Indicator,
    threshold: Field<Threshold>,
    objective: Mark,
    problems: &mut Problems,
) -> Option<Indicator> {
    let time = "write the longest good time, such as 2s";
    let rate = "write the lowest good rate in tokens per second, such as 15";
    let remedy = match kind {
        raw::Indicator::Availability => {
            if let Field::Given(threshold) = threshold {
                problems.at(
                    threshold.mark,
                    "availability has no threshold; remove this key",
                );
            }
            return Some(Indicator::Availability);
        }
        raw::Indicator::Ttft | raw::Indicator::Duration => time,
        raw::Indicator::OutputRate => rate,
    };
    let Given {
        value: Threshold(text),
        mark,
    } = threshold.required(problems, objective, "threshold", remedy)?;
    let read = match kind {
        raw::Indicator::Ttft => read_time(&text).map(Indicator::TimeToFirstToken),
        raw::Indicator::Duration => read_time(&text).map(Indicator::Duration),
        raw::Indicator::OutputRate => read_rate(&text).map(Indicator::OutputRate),
        raw::Indicator::Availability => None,
    };
    if read.is_none() {
        problems.at(
            mark,
            format!("\"{text}\" is no threshold of this indicator; {remedy}"),
        );
    }
    read
}

fn read_time(text: &str) -> Option<Duration> {
    let Length(time) = text.parse().ok()?;
    (!time.is_zero()).then_some(time)
}

fn read_rate(text: &str) -> Option<f64> {
    let rate: f64 = text.parse().ok()?;
    (rate > 0.0 && rate.is_finite()).then_some(rate)
}

fn scope(written: Field<raw::Scope>, routes: &[String], problems: &mut Problems) -> Scope {
    let written = written.value().unwrap_or_default();
    let route = written.route.given().map(|Given { value, mark }| {
        if !routes.contains(&value) {
            let near = suggestion(&value, routes.iter().map(String::as_str));
            problems.at(mark, format!("there is no route \"{value}\"; {near}"));
        }
        Label::known(&value)
    });
    let model = written.model.given().map(|Given { value, mark }| {
        if value.is_empty() {
            problems.at(
                mark,
                "this is no pattern; write a model's name, with * for any text, or remove the key",
            );
        }
        value
    });
    Scope { route, model }
}
