//! `check` and `schema`: what a configuration file may say, and whether one does.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::{fail, print};
use crate::config;

#[derive(Args, Debug)]
#[command(after_help = "\
Prints one error a line as FILE:LINE:COLUMN: KEY: what is wrong; what to do
Flags and TOKENGAUGE_* variables play no part: the file is checked alone.
Exit status: 0 if the file is right, 1 if it is not.")]
pub struct CheckArgs {
    /// The configuration file (YAML)
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print the resolved configuration, defaults included and secrets redacted
    #[arg(long)]
    print: bool,
}

pub(super) fn check(args: &CheckArgs) -> ExitCode {
    match config::check(&args.file) {
        Ok(config) if args.print => print(config.to_yaml().trim_end()),
        Ok(_) => print(format_args!("{}: all right", args.file.display())),
        Err(errors) => fail(errors),
    }
}

pub(super) fn schema() -> ExitCode {
    print(format_args!("{:#}", config::schema().as_value()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(name: &str, print: bool) -> String {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name);
        format!("{:?}", check(&CheckArgs { file, print }))
    }

    #[test]
    fn the_exit_status_says_whether_the_file_is_right() {
        let [success, failure] =
            [ExitCode::SUCCESS, ExitCode::FAILURE].map(|code| format!("{code:?}"));
        assert_eq!(exit("examples/minimal.yaml", false), success);
        assert_eq!(exit("examples/minimal.yaml", true), success);
        assert_eq!(exit("Cargo.toml", false), failure);
        assert_eq!(exit("examples/none.yaml", true), failure);
    }
}
