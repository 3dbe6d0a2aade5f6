//! The program `tokengauge`. The library parses the command line and runs the subcommand.

use std::process::ExitCode;

use tokengauge::cli;

fn main() -> ExitCode {
    cli::main(cli::parse())
}
