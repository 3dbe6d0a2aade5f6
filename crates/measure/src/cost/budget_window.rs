//! The time over which a budget of cost or tokens counts.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tokengauge_types::bounded::{DAY, HOUR, Time};
use tokengauge_types::serde_as_str;
use tokengauge_types::value::{DurationValue, ValueError};

/// A rolling window, or the calendar month in UTC, as invoices have it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BudgetWindow {
    Rolling(Time<HOUR, { 90 * DAY }, { 30 * DAY }>),
    Month,
}

impl BudgetWindow {
    /// Mean length of a month of the Gregorian calendar: a twelfth of 365.2425 days. No rolling window has this length,
    /// so that rules can tell both apart.
    pub const MEAN_MONTH: Duration = Duration::from_secs(2_629_746);

    pub fn length(self) -> Duration {
        match self {
            Self::Rolling(window) => window.get(),
            Self::Month => Self::MEAN_MONTH,
        }
    }
}

impl Default for BudgetWindow {
    fn default() -> Self {
        Self::Rolling(Time::default())
    }
}

impl FromStr for BudgetWindow {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        const REMEDY: &str = "write `month`, or a time from 1h to 90d, such as 30d";
        if text == "month" {
            return Ok(Self::Month);
        }
        let window = text.parse::<DurationValue>().map_err(|error| error.what().to_owned());
        let window = window.map_err(|what| ValueError::new(what, REMEDY))?;
        let out_of_range = |_| ValueError::new(format!("{window} is out of range"), REMEDY);
        Time::new(window).map(Self::Rolling).map_err(out_of_range)
    }
}

impl fmt::Display for BudgetWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rolling(window) => DurationValue(window.get()).fmt(f),
            Self::Month => f.write_str("month"),
        }
    }
}

serde_as_str!(BudgetWindow, {
    "type": "string",
    "format": "time or `month`",
    "pattern": "^(month|[0-9]+(ms|s|m|h|d))$",
    "x-range": "`1h` to `90d`",
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_a_month_or_a_time_in_range() {
        for text in ["month", "1h", "30d", "90d"] {
            assert_eq!(text.parse::<BudgetWindow>().unwrap().to_string(), text);
        }
        assert_eq!(BudgetWindow::default().to_string(), "30d");
        for wrong in ["59m", "91d", "week", "Month", "30"] {
            let error = wrong.parse::<BudgetWindow>().unwrap_err();
            assert!(error.to_string().contains("write `month`, or a time"), "{error}");
        }
    }
}
