//! Generated files, and the folder that they are written to or held against.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

/// Generated files by name, without folders.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Files(BTreeMap<String, String>);

/// How a folder differs from what is generated.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Difference {
    /// It is generated, and the folder does not have it.
    Missing(String),
    /// The folder has another text, from this line on (the first is 1).
    Stale(String, usize),
    /// The folder has it, and it is not generated.
    Stray(String),
}

impl Files {
    /// Adds a file, in place of one of the same name.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) {
        self.0.insert(name.into(), text.into());
    }

    /// Names and texts, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// Writes all of them, and makes the folder where it is not there.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        for (name, text) in self.iter() {
            fs::write(folder.join(name), text)?;
        }
        Ok(())
    }

    /// How `folder` differs; nothing where it is as if it had just been written. `generated` says by its name whether a
    /// file that lies there should be one of these: the others in a folder that is shared are left alone.
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
            // Then everything is missing, and that has been said.
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

/// The first line in which two texts differ.
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
    fn what_was_written_does_not_differ() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("not/there/yet");
        files().write(&inner).unwrap();
        assert_eq!(files().differences(&inner, |_| true).unwrap(), []);
    }

    #[test]
    fn each_way_to_differ_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        fs::write(at.join("a.json"), "1\n3\n").unwrap();
        fs::write(at.join("c.json"), "").unwrap();
        fs::write(at.join("README.md"), "").unwrap();
        let told: Vec<String> = files()
            .differences(at, |name| name.ends_with(".json"))
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            told,
            ["a.json:2: stale", "b.json: missing", "c.json: stray: nothing generates it"]
        );
    }

    #[test]
    fn a_text_that_goes_on_differs_where_the_other_ends() {
        for (there, line) in [("1\n2\n3\n", 3), ("1\n2", 3), ("", 1), ("1\n2 \n", 2)] {
            assert_eq!(differs_at(there, "1\n2\n"), line, "{there:?}");
        }
    }

    #[test]
    fn a_folder_that_is_not_there_misses_everything() {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = folder.path().join("nowhere");
        let missing = files().differences(&nowhere, |_| true).unwrap();
        assert_eq!(missing.len(), 2);
    }
}
