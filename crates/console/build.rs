//! Lists the files of the web console in `web/`, so that the program embeds them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Extensions of the files that the console serves, and their content types.
const TYPES: [(&str, &str); 8] = [
    ("html", "text/html; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("json", "application/json"),
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("txt", "text/plain; charset=utf-8"),
];

#[expect(clippy::disallowed_methods, reason = "cargo passes its settings in the environment")]
fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=web");
    let mut files = Vec::new();
    if env::var_os("CARGO_FEATURE_WEB").is_some() {
        list(Path::new("web"), &mut files)?;
    }
    files.sort();
    let mut list = String::from("&[\n");
    for file in files {
        let Some(kind) = content_type(&file) else { continue };
        let content = fs::read(&file)?;
        let path = fs::canonicalize(&file)?;
        let name = file.strip_prefix("web").unwrap_or(&file).display().to_string();
        let tag = format!("\"{:016x}\"", fnv1a(&content));
        let written = writeln!(
            list,
            "Asset {{ path: {name:?}, content_type: {kind:?}, etag: {tag:?}, content: include_bytes!({path:?}) }},"
        );
        written.map_err(io::Error::other)?;
    }
    list.push(']');
    let out = env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    fs::write(out.join("assets.rs"), list)
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn content_type(file: &Path) -> Option<&'static str> {
    let extension = file.extension()?.to_str()?;
    TYPES.iter().find(|(known, _)| *known == extension).map(|(_, kind)| *kind)
}

/// Returns a hash that changes with the content, for the header `ETag`.
fn fnv1a(content: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    content.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
