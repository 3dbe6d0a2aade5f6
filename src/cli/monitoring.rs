//! `tokengauge alerts` and `tokengauge dashboards`: write generated files to a folder, or check that a folder contains
//! exactly these files.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};

use crate::config::{self, ReferencedFiles};
use tokengauge_monitoring::alerts::span::{Divisor, Span};
use tokengauge_monitoring::alerts::values::{RunbookUrl, Values};
use tokengauge_monitoring::alerts::{self, document};
use tokengauge_monitoring::{Files, dashboards};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --out and --check, all rules are printed as one file for Prometheus.
The defaults, with their reasons, are in alerts/values.yaml in the sources of tokengauge.
Exit status: 0 on success, 1 on errors or if the folder differs.")]
pub struct AlertsArgs {
    /// Read thresholds that differ from the defaults (YAML)
    #[arg(long, value_name = "FILE")]
    values: Option<PathBuf>,

    /// Generate rules for the windows of the SLOs in this configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Set the address of the runbooks in annotations; {alert} is the name of the alert, at the end by default
    #[arg(long, value_name = "URL")]
    runbook_url: Option<String>,

    /// Set the address of Grafana in annotations
    #[arg(long, value_name = "URL")]
    grafana_url: Option<String>,

    /// Write the rule files to this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Check the rule files in this folder: report stale, missing and stray files
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    check: Option<PathBuf>,

    /// Divide all durations by this number, to test rules for days within minutes
    #[arg(long, value_name = "N")]
    divide_durations: Option<NonZeroU32>,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct DashboardsArgs {
    /// Write the dashboards to this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Check the dashboards in this folder: report stale, missing and stray files, and panels without a unit, a title, a
    /// description or a metric
    #[arg(long, value_name = "DIR")]
    check: Option<PathBuf>,
}

pub(super) fn alerts(args: &AlertsArgs) -> anyhow::Result<String> {
    let values = values(args)?;
    let mut rules = alerts::rules(&values);
    if let Some(by) = args.divide_durations {
        rules = alerts::divided(rules, Divisor(by));
    }
    let files = alerts::files(&rules, &values.links);
    match (&args.out, &args.check) {
        (Some(folder), _) => write(&files, folder, "rule files"),
        (None, Some(folder)) => {
            check(&differences(&files, folder, alerts::is_generated)?, folder, "alerts")
        }
        (None, None) => {
            let groups = rules.iter().flat_map(|rules| &rules.groups);
            Ok(document(groups, &values.links))
        }
    }
}

/// Reads the values file, and replaces what the flags set.
fn values(args: &AlertsArgs) -> anyhow::Result<Values> {
    let mut values = config::alert_values(args.values.as_deref())?;
    if let Some(file) = &args.config {
        let config = config::check(file, ReferencedFiles::Skip)?;
        let mut windows: Vec<Duration> = config.slos.iter().map(|slo| slo.window).collect();
        windows.sort_unstable();
        windows.dedup();
        values.slo.windows =
            windows.into_iter().map(|window| Span::seconds(window.as_secs())).collect();
    }
    if let Some(url) = &args.runbook_url {
        values.links.runbooks =
            RunbookUrl::from_base(url).map_err(|error| anyhow!("--runbook-url: {error}"))?;
    }
    if let Some(url) = &args.grafana_url {
        values.links.grafana = url.parse().map_err(|error| anyhow!("--grafana-url: {error}"))?;
    }
    Ok(values)
}

pub(super) fn dashboards(args: &DashboardsArgs) -> anyhow::Result<String> {
    let files = dashboards::files();
    match (&args.out, &args.check) {
        (Some(folder), _) => write(&files, folder, "dashboards"),
        (None, Some(folder)) => {
            let mut problems = differences(&files, folder, |name| name.ends_with(".json"))?;
            for dashboard in dashboards::all() {
                let faults = dashboards::faults::faults(&dashboard.json()).into_iter();
                problems.extend(faults.map(|fault| format!("{}: {fault}", dashboard.uid)));
            }
            check(&problems, folder, "dashboards")
        }
        (None, None) => bail!("either --out or --check is required"),
    }
}

fn write(files: &Files, folder: &Path, what: &str) -> anyhow::Result<String> {
    files.write(folder).with_context(|| folder.display().to_string())?;
    Ok(format!("{}: {} {what}", folder.display(), files.iter().count()))
}

fn differences(
    files: &Files,
    folder: &Path,
    is_generated: impl Fn(&str) -> bool,
) -> anyhow::Result<Vec<String>> {
    let differences = files.differences(folder, is_generated);
    let differences = differences.with_context(|| folder.display().to_string())?;
    Ok(differences.iter().map(ToString::to_string).collect())
}

fn check(problems: &[String], folder: &Path, command: &str) -> anyhow::Result<String> {
    let folder = folder.display();
    if problems.is_empty() {
        return Ok(format!("{folder}: up to date"));
    }
    bail!("{}\nTo regenerate: tokengauge {command} --out {folder}", problems.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alerts_args() -> AlertsArgs {
        AlertsArgs {
            values: None,
            config: None,
            runbook_url: None,
            grafana_url: None,
            out: None,
            check: None,
            divide_durations: None,
        }
    }

    #[test]
    fn written_rules_are_up_to_date_until_modified() {
        let folder = tempfile::tempdir().unwrap();
        let path = || Some(folder.path().to_owned());
        let checked = || alerts(&AlertsArgs { check: path(), ..alerts_args() });
        assert!(checked().unwrap_err().to_string().contains("slo.rules.yaml: missing"));
        alerts(&AlertsArgs { out: path(), ..alerts_args() }).unwrap();
        std::fs::write(folder.path().join("values.yaml"), "").unwrap();
        checked().unwrap();
        std::fs::write(folder.path().join("slo.rules.yaml"), "groups: []\n").unwrap();
        std::fs::write(folder.path().join("old.rules.yaml"), "").unwrap();
        let message = checked().unwrap_err().to_string();
        assert!(message.contains("slo.rules.yaml:1: stale"), "{message}");
        assert!(message.contains("old.rules.yaml: stray"), "{message}");
    }

    #[test]
    fn rules_have_the_windows_of_the_configuration_and_the_links_of_the_flags() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("c.yaml");
        let slo = |name, window| {
            format!("{{name: {name}, sli: availability, target: 99%, window: {window}}}")
        };
        let slos = [slo("a", "7d"), slo("b", "90d"), slo("c", "1d"), slo("d", "7d")].join(", ");
        let text = format!("version: 1\nupstreams: {{a: {{url: 'http://a'}}}}\nslos: [{slos}]\n");
        std::fs::write(&file, text).unwrap();
        let rules = alerts(&AlertsArgs {
            config: Some(file),
            runbook_url: Some("https://runbooks.example.com/llm/".to_owned()),
            grafana_url: Some("https://grafana.example.com".to_owned()),
            ..alerts_args()
        })
        .unwrap();
        let count = |part: &str| rules.matches(part).count();
        assert_eq!(count("record: slo:period_burn_rate:ratio"), 3);
        assert_eq!(count("record: slo:sli_error:ratio_rate1d"), 1);
        assert_eq!(count("record: slo:sli_error:ratio_rate7d"), 1);
        assert_eq!(count("record: slo:sli_error:ratio_rate90d"), 1);
        assert_eq!(count("record: slo:sli_error:ratio_rate30d"), 0, "no SLO has this window");
        assert!(rules.contains("== 7776000"), "{rules}");
        assert!(rules.contains("https://runbooks.example.com/llm/LLMProviderDown\n"));
        assert!(rules.contains("https://grafana.example.com/d/tokengauge-slo\n"));
        assert!(!rules.contains("localhost"));
        let wrong = AlertsArgs { grafana_url: Some("a b".to_owned()), ..alerts_args() };
        let message = alerts(&wrong).unwrap_err().to_string();
        assert!(message.starts_with("--grafana-url: \"a b\""), "{message}");
    }

    #[test]
    fn rules_of_the_repository_are_up_to_date() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("alerts");
        alerts(&AlertsArgs { check: Some(folder), ..alerts_args() }).unwrap();
    }

    #[test]
    fn written_dashboards_are_up_to_date_until_modified() {
        let folder = tempfile::tempdir().unwrap();
        let path = || Some(folder.path().to_owned());
        let checked = || dashboards(&DashboardsArgs { out: None, check: path() });
        assert!(checked().is_err());
        dashboards(&DashboardsArgs { out: path(), check: None }).unwrap();
        checked().unwrap();
        std::fs::write(folder.path().join("tokengauge-overview.json"), "{}").unwrap();
        std::fs::write(folder.path().join("mine.json"), "{}").unwrap();
        let message = checked().unwrap_err().to_string();
        assert!(message.contains("tokengauge-overview.json:1: stale"), "{message}");
        assert!(message.contains("mine.json: stray"), "{message}");
    }
}
