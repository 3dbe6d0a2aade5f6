//! The program: reads the command line and does what it says. Everything else is in the library.

use std::process::ExitCode;

use clap::Parser;
use tokengauge::cli::{self, Cli};

fn main() -> ExitCode {
    cli::main(Cli::parse())
}
