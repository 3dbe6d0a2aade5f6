//! `tokengauge dashboards`: writes Grafana's dashboards, or holds a folder against them.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use tokengauge_monitoring::{Files, dashboards};

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct Args {
    /// Write them to this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Check that this folder has them: say what is stale, missing or stray, and which panel lacks a unit, a title, a
    /// description or a metric
    #[arg(long, value_name = "DIR")]
    check: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<String> {
    let files = dashboards::files();
    if let Some(folder) = &args.out {
        write(&files, folder)
    } else if let Some(folder) = &args.check {
        check(&files, folder)
    } else {
        bail!("either --out or --check")
    }
}

fn write(files: &Files, folder: &Path) -> anyhow::Result<String> {
    files.write(folder).with_context(|| folder.display().to_string())?;
    Ok(format!("{}: {} dashboards", folder.display(), files.iter().count()))
}

fn check(files: &Files, folder: &Path) -> anyhow::Result<String> {
    let mut wrong: Vec<String> = files
        .differences(folder, |name| name.ends_with(".json"))
        .with_context(|| folder.display().to_string())?
        .iter()
        .map(ToString::to_string)
        .collect();
    for dashboard in dashboards::all() {
        let faults = dashboards::faults::faults(&dashboard.json());
        wrong.extend(faults.into_iter().map(|fault| format!("{}: {fault}", dashboard.uid())));
    }
    if wrong.is_empty() {
        Ok(format!("{}: up to date", folder.display()))
    } else {
        bail!(
            "{}\nTo write them anew: tokengauge dashboards --out {}",
            wrong.join("\n"),
            folder.display()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(out: Option<&Path>, check: Option<&Path>) -> Args {
        Args { out: out.map(Path::to_owned), check: check.map(Path::to_owned) }
    }

    #[test]
    fn what_is_written_is_up_to_date_until_it_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        assert!(run(&args(None, Some(at))).is_err());
        run(&args(Some(at), None)).unwrap();
        run(&args(None, Some(at))).unwrap();
        std::fs::write(at.join("tokengauge-overview.json"), "{}").unwrap();
        std::fs::write(at.join("mine.json"), "{}").unwrap();
        let told = run(&args(None, Some(at))).unwrap_err().to_string();
        assert!(told.contains("tokengauge-overview.json:1: stale"), "{told}");
        assert!(told.contains("mine.json: stray"), "{told}");
    }
}
