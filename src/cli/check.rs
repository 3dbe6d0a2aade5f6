//! `tokengauge check` validates a configuration file, and `tokengauge schema` prints JSON Schemas.

use std::path::PathBuf;

use clap::Args;

use crate::config::{self, ConfigErrors};
use tokengauge_telemetry::request_log;

#[derive(Args, Debug)]
#[command(after_help = "\
Prints one error or warning per line as FILE:LINE:COLUMN: KEY: error; hint
Flags and TOKENGAUGE_* variables are ignored: only the file is checked.
Exit status: 0 if the file is valid, 1 otherwise.")]
pub struct CheckArgs {
    /// Check this configuration file (YAML)
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print the resolved configuration, defaults included and secrets redacted
    #[arg(long)]
    print: bool,
}

/// The file formats that have a JSON Schema.
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
    if args.print {
        return Ok(config.yaml);
    }
    let warnings: String = config.warnings.iter().map(|warning| format!("{warning}\n")).collect();
    Ok(format!("{warnings}{}: valid", args.file.display()))
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
    fn reports_a_valid_file_and_prints_it_on_request() {
        let message = checked("examples/minimal.yaml", false).unwrap();
        assert!(message.ends_with("minimal.yaml: valid"), "{message}");
        let printed = checked("examples/minimal.yaml", true).unwrap();
        assert!(printed.contains("url: https://api.openai.com"), "{printed}");
    }

    #[test]
    fn reports_errors_with_the_file_name() {
        let message = checked("Cargo.toml", true).unwrap_err().to_string();
        assert!(message.contains("Cargo.toml:2:1: not valid YAML"), "{message}");
    }
}
