//! `tokengauge alerts`: writes Prometheus' rules, or holds a folder against them.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::config;
use tokengauge_monitoring::Files;
use tokengauge_monitoring::alerts::span::Divisor;
use tokengauge_monitoring::alerts::{self, document};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --out and --check all rules go to standard output, as one file that Prometheus reads.
The defaults, with the reason for each, are alerts/values.yaml in tokengauge's sources.
Exit status: 0 if all went well, 1 if not, or if the folder differs.")]
pub struct Args {
    /// What differs from the default thresholds (YAML)
    #[arg(long, value_name = "FILE")]
    values: Option<PathBuf>,

    /// Write the files of rules to this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Check that this folder has them: say what is stale, missing or stray
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    check: Option<PathBuf>,

    /// Divide every duration, and nothing else, by this: to rehearse in minutes what takes days
    #[arg(long, value_name = "N")]
    divide_durations: Option<NonZeroU32>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<String> {
    let values = config::alert_values(args.values.as_deref())?;
    let mut rules = alerts::rules(&values);
    if let Some(by) = args.divide_durations {
        rules = alerts::divided(rules, Divisor(by));
    }
    let files = alerts::files(&rules, &values.links);
    match (&args.out, &args.check) {
        (Some(folder), _) => {
            files.write(folder).with_context(|| folder.display().to_string())?;
            let count = files.iter().count();
            Ok(format!("{}: {count} files of rules", folder.display()))
        }
        (None, Some(folder)) => check(&files, folder),
        (None, None) => {
            let groups = rules.iter().flat_map(|rules| &rules.groups);
            Ok(document(groups, &values.links))
        }
    }
}

fn check(files: &Files, folder: &Path) -> anyhow::Result<String> {
    let differences = files
        .differences(folder, alerts::is_generated)
        .with_context(|| folder.display().to_string())?;
    if differences.is_empty() {
        return Ok(format!("{}: up to date", folder.display()));
    }
    let told: Vec<String> = differences.iter().map(ToString::to_string).collect();
    bail!("{}\nTo write them anew: tokengauge alerts --out {}", told.join("\n"), folder.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> Args {
        Args { values: None, out: None, check: None, divide_durations: None }
    }

    #[test]
    fn what_is_written_is_up_to_date_until_it_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let at = || Some(folder.path().to_owned());
        let checked = || run(&Args { check: at(), ..args() });
        assert!(checked().unwrap_err().to_string().contains("slo.rules.yaml: missing"));
        run(&Args { out: at(), ..args() }).unwrap();
        std::fs::write(folder.path().join("values.yaml"), "").unwrap();
        checked().unwrap();
        std::fs::write(folder.path().join("slo.rules.yaml"), "groups: []\n").unwrap();
        std::fs::write(folder.path().join("old.rules.yaml"), "").unwrap();
        let told = checked().unwrap_err().to_string();
        assert!(told.contains("slo.rules.yaml:1: stale"), "{told}");
        assert!(told.contains("old.rules.yaml: stray"), "{told}");
    }

    #[test]
    fn the_repository_has_what_the_defaults_make() {
        let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("alerts");
        run(&Args { check: Some(check), ..args() }).unwrap();
    }
}
