//! The binary. Parses the command line and runs the subcommand; everything else is in the library.

use std::process::ExitCode;

use clap::Parser;
use tokengauge::cli::{self, Cli};

fn main() -> ExitCode {
    cli::main(Cli::parse())
}
