//! The binary. Parses the command line and runs the subcommand; everything else is in the library.

use std::process::ExitCode;

use tokengauge::cli;

fn main() -> ExitCode {
    cli::main(cli::parse())
}
