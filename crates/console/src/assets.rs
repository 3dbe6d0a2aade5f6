//! The files of the web console.

/// A file of the web console.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// Path below `/console/`.
    pub path: &'static str,
    pub content_type: &'static str,
    /// Value of the header `ETag`, with quotes.
    pub etag: &'static str,
    pub content: &'static [u8],
}

/// All files, sorted by path. Empty without the feature `web`.
pub const ASSETS: &[Asset] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// Returns the file at `path`.
pub fn asset(path: &str) -> Option<&'static Asset> {
    let place = ASSETS.binary_search_by(|asset| asset.path.cmp(path)).ok()?;
    ASSETS.get(place)
}

#[cfg(all(test, feature = "web"))]
mod tests {
    use super::*;

    #[test]
    fn finds_every_file_and_no_other() {
        for file in ASSETS {
            assert_eq!(asset(file.path).unwrap().content, file.content);
            assert!(file.etag.len() == 18 && file.etag.starts_with('"'));
        }
        let page = asset("index.html").unwrap();
        assert_eq!(page.content_type, "text/html; charset=utf-8");
        for path in ["", "/index.html", "../Cargo.toml", "index.html/", "INDEX.HTML"] {
            assert!(asset(path).is_none(), "{path}");
        }
    }
}
