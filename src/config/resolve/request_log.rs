//! The request log: where to, and when a file is put aside.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::within;
use crate::config::deserialize::{Field, Spanned};
use crate::config::errors::ErrorCollector;
use crate::config::raw;
use crate::config::value::Size;
use tokengauge_telemetry::request_log::{Config, Destination, Rotation};

/// The word for standard output; a file of that name is `./stdout`.
pub(in crate::config) const STDOUT: &str = "stdout";

/// Below a megabyte files come and go faster than anything reads them; layers a terabyte nothing is bounded.
const SIZES: RangeInclusive<Size> = Size(1 << 20)..=Size(1 << 40);

/// More are more than a glance at the folder can take in.
const KEPT: RangeInclusive<usize> = 0..=1_000;

pub(super) fn resolve(
    written: Field<raw::RequestLog>,
    errors: &mut ErrorCollector,
) -> Option<Config> {
    let Spanned { value, node } = written.spanned()?;
    let remedy = "write the path of a file, or stdout";
    let path = value.path.required(errors, node, "path", remedy)?.value;
    let usual = Rotation::default();
    let rotate = value.rotate.value().unwrap_or_default();
    let size = within(rotate.size, SIZES, errors);
    Some(Config {
        place: place(path),
        rotate: Rotation {
            size: size.map_or(usual.size, |size| size.0 as u64),
            keep: within(rotate.keep, KEPT, errors).unwrap_or(usual.keep),
        },
    })
}

fn place(path: PathBuf) -> Destination {
    if path.as_os_str() == STDOUT { Destination::Stdout } else { Destination::File(path) }
}
