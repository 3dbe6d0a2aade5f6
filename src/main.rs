//! The program `tokengauge`. The library parses the command line and runs the subcommand.

use std::process::ExitCode;

use tokengauge::cli;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    cli::main(cli::parse())
}
