//! The structs of the configuration file for the program's log and the request log.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bounded::{BoundedInt, BoundedSize};
use super::deserialize::Field;
use super::{LogFormat, LogLevel};

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Log {
    /// The least severe level that is logged.
    pub(super) level: Field<LogLevel>,
    /// The format of a line.
    pub(super) format: Field<LogFormat>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["path"]))]
pub(super) struct RequestLog {
    /// A file, or stdout.
    pub(super) path: Field<PathBuf>,
    /// File rotation.
    pub(super) rotate: Field<Rotation>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Rotation {
    /// Rotates a file when it reaches this size.
    // Files below 1 MiB rotate faster than anything can read them. 1 TiB limits nothing.
    pub(super) size: Field<BoundedSize<{ 1 << 20 }, { 1 << 40 }>>,
    /// Number of rotated files to keep. path.1 is the newest.
    pub(super) max_files: Field<BoundedInt<0, 1_000>>,
}
