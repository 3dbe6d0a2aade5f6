//! Writes the packed tables that `src/count` embeds: the vocabulary and the split automaton of each encoding.
//!
//! The build derives both from tiktoken-rs and the published split patterns of the encodings. No vocabulary is
//! vendored, and the build downloads nothing. `src/count/layout.rs` defines the layout.

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::DeflateEncoder;
use tiktoken_rs::CoreBPE;

#[path = "build/automaton.rs"]
mod automaton;
#[path = "src/count/layout.rs"]
#[expect(dead_code, reason = "what reads the tables is for the program")]
mod layout;
#[path = "build/patterns.rs"]
mod patterns;
#[path = "build/vocabulary.rs"]
mod vocabulary;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=src/count/layout.rs");
    let folder = output_folder()?;
    write_encoding(&folder.join("o200k_base"), &tiktoken_rs::o200k_base()?, &patterns::o200k())?;
    write_encoding(&folder.join("cl100k_base"), &tiktoken_rs::cl100k_base()?, &patterns::cl100k())?;
    write_encoding(&folder.join("p50k_base"), &tiktoken_rs::p50k_base()?, &patterns::p50k())
}

#[expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script through the environment where to write"
)]
fn output_folder() -> Result<PathBuf, Box<dyn Error>> {
    Ok(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?.into())
}

fn write_encoding(
    path: &Path,
    tokenizer: &CoreBPE,
    patterns: &[String; 3],
) -> Result<(), Box<dyn Error>> {
    let tokens = vocabulary::read(tokenizer)?;
    let automaton = automaton::build(patterns)?;
    let lengths: Result<Vec<u8>, _> = tokens.iter().map(|token| token.len().try_into()).collect();
    let steps: Vec<[u8; 2]> = automaton.steps.iter().map(|step| step.to_bytes()).collect();
    let packed = layout::Packed {
        lengths: lengths?,
        tokens: tokens.concat(),
        classes: automaton.classes,
        steps: steps.into_flattened(),
    };
    let mut file = DeflateEncoder::new(File::create(path)?, Compression::best());
    packed.write(&mut file)?;
    file.finish()?;
    Ok(())
}
