//! Grafana dashboards and Prometheus alert rules, generated from the metric catalog.
//!
//! [`dashboards`] defines the panels and their queries, and [`alerts`] defines the rules and their conditions. Each
//! module returns its files as text in [`Files`]. Callers write the files to a folder or compare them with a folder.

pub mod alerts;
pub mod dashboards;
pub mod emitted;
pub mod files;

pub use files::{Difference, Files};

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::Files;

    /// Tests that the files in the repository match the output of the generator.
    #[test]
    fn generated_files_are_up_to_date() {
        let values = crate::alerts::values::defaults();
        let rules = crate::alerts::files(&crate::alerts::rules(&values), &values.links);
        check("dashboards", &crate::dashboards::files(), |name| name.ends_with(".json"));
        check("alerts", &rules, crate::alerts::is_generated);
    }

    fn check(folder: &str, files: &Files, is_generated: fn(&str) -> bool) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
        assert_eq!(files.differences(&folder, is_generated).unwrap(), []);
    }
}
