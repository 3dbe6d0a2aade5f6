//! `cargo xtask dist`: builds the files of a release, as the workflow `release` publishes them.

use std::process::ExitCode;

use clap::Parser;

mod dist;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
enum Task {
    /// Build archives, packages, SBOMs, the chart, the Homebrew formula and SHA256SUMS
    Dist(dist::Args),
}

#[expect(clippy::print_stderr, reason = "the program is a command of developers")]
fn main() -> ExitCode {
    let Task::Dist(args) = Task::parse();
    match dist::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
