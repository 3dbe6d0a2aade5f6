//! Generated files, and a comparison of these files with the folder in which they are stored.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

/// Text of the generated files by file name. File names contain no folders.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Files(BTreeMap<String, String>);

/// A difference between a folder and the generated files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Difference {
    /// The file is generated but missing in the folder.
    Missing(String),
    /// The text of the file in the folder differs from the generated text. The number is the first line that differs,
    /// starting at 1.
    Stale(String, usize),
    /// The file is in the folder but is no longer generated.
    Stray(String),
}

impl Files {
    /// Adds a file. Replaces an existing file of the same name.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) {
        self.0.insert(name.into(), text.into());
    }

    /// Returns names and texts, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// Writes all files to `folder`. Creates the folder if it is missing.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        for (name, text) in self.iter() {
            fs::write(folder.join(name), text)?;
        }
        Ok(())
    }

    /// Returns the differences between `folder` and the generated files, or an empty list if there are none.
    /// `generated` returns whether a file name belongs to the generated set. Other files in the folder are ignored.
    pub fn differences(
        &self,
        folder: &Path,
        generated: impl Fn(&str) -> bool,
    ) -> io::Result<Vec<Difference>> {
        let mut found = Vec::new();
        for (name, text) in self.iter() {
            match fs::read_to_string(folder.join(name)) {
                Ok(there) if there == text => {}
                Ok(there) => found.push(Difference::Stale(name.into(), differs_at(&there, text))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    found.push(Difference::Missing(name.into()));
                }
                Err(error) => return Err(error),
            }
        }
        found.extend(self.strays(folder, generated)?);
        Ok(found)
    }

    fn strays(
        &self,
        folder: &Path,
        generated: impl Fn(&str) -> bool,
    ) -> io::Result<Vec<Difference>> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            // The folder is missing. Every file is already reported as missing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type()?.is_file() && generated(&name) && !self.0.contains_key(&name) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names.into_iter().map(Difference::Stray).collect())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(name) => write!(f, "{name}: missing"),
            Self::Stale(name, line) => write!(f, "{name}:{line}: stale"),
            Self::Stray(name) => write!(f, "{name}: stray: nothing generates it"),
        }
    }
}

/// Returns the 1-based number of the first line in which two texts differ.
fn differs_at(left: &str, right: &str) -> usize {
    let same =
        left.split('\n').zip(right.split('\n')).take_while(|(left, right)| left == right).count();
    same + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Files {
        let mut files = Files::default();
        files.add("a.json", "1\n2\n");
        files.add("b.json", "3\n");
        files
    }

    #[test]
    fn written_files_do_not_differ() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("not/there/yet");
        files().write(&inner).unwrap();
        assert_eq!(files().differences(&inner, |_| true).unwrap(), []);
    }

    #[test]
    fn reports_each_kind_of_difference() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        fs::write(at.join("a.json"), "1\n3\n").unwrap();
        fs::write(at.join("c.json"), "").unwrap();
        fs::write(at.join("README.md"), "").unwrap();
        let differences: Vec<String> = files()
            .differences(at, |name| name.ends_with(".json"))
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            differences,
            ["a.json:2: stale", "b.json: missing", "c.json: stray: nothing generates it"]
        );
    }

    #[test]
    fn a_longer_text_differs_where_the_other_ends() {
        for (there, line) in [("1\n2\n3\n", 3), ("1\n2", 3), ("", 1), ("1\n2 \n", 2)] {
            assert_eq!(differs_at(there, "1\n2\n"), line, "{there:?}");
        }
    }

    #[test]
    fn in_a_missing_folder_all_files_are_missing() {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = folder.path().join("nowhere");
        let missing = files().differences(&nowhere, |_| true).unwrap();
        assert_eq!(missing.len(), 2);
    }
}
