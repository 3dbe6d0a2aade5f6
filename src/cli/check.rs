//! `check` and `schema`: what a configuration file may say, and whether one does.

use std::path::PathBuf;

use clap::Args;

use crate::config::{self, ConfigErrors};
use tokengauge_telemetry::request_log;

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

/// What a schema is printed of.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum SchemaOf {
    Config,
    RequestLog,
    #[cfg(feature = "desk")]
    Report,
    #[cfg(feature = "desk")]
    Accept,
    Prices,
}

pub(super) fn check(args: &CheckArgs) -> Result<String, ConfigErrors> {
    let config = config::check(&args.file)?;
    Ok(if args.print { config.to_yaml() } else { format!("{}: all right", args.file.display()) })
}

pub(super) fn schema(of: SchemaOf) -> String {
    let schema = match of {
        SchemaOf::Config => config::schema(),
        SchemaOf::RequestLog => request_log::schema(),
        #[cfg(feature = "desk")]
        SchemaOf::Report => tokengauge_report::schema(),
        #[cfg(feature = "desk")]
        SchemaOf::Accept => config::acceptance_schema(),
        SchemaOf::Prices => config::prices_schema(),
    };
    format!("{:#}", schema.as_value())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(name: &str, print: bool) -> Result<String, ConfigErrors> {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name);
        check(&CheckArgs { file, print })
    }

    #[test]
    fn a_right_file_is_said_to_be_right_and_printed_on_request() {
        let said = checked("examples/minimal.yaml", false).unwrap();
        assert!(said.ends_with("minimal.yaml: all right"), "{said}");
        let printed = checked("examples/minimal.yaml", true).unwrap();
        assert!(printed.contains("url: https://api.openai.com"), "{printed}");
    }

    #[test]
    fn a_wrong_file_is_told_with_its_name() {
        let told = checked("Cargo.toml", true).unwrap_err().to_string();
        assert!(told.contains("Cargo.toml:2:1: not valid YAML"), "{told}");
    }
}
