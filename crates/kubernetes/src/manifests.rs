//! Adds sidecars to manifest files or removes them. The files keep their comments and layout.

use json_patch::Patch;
use serde_json::Value;

use crate::inject::{
    self, Change, ClusterObject, InjectionContext, NoChange, Outcome, Settings, SkipReason,
};
use crate::yaml::{self, Document};
use tokengauge_types::error::WithCauses;

/// A manifest file in YAML or JSON, with one or several documents.
#[derive(Debug)]
pub struct ManifestFile {
    /// The file name that messages show.
    pub name: String,
    pub text: String,
}

/// The operation to apply to the objects of the files.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    Inject {
        settings: &'a Settings,
        /// `kind/name` of the objects that get a sidecar. An empty list selects all objects.
        only: &'a [String],
    },
    Uninject,
}

/// The combined result for all files.
#[derive(Debug, Default)]
pub struct ChangedManifests {
    /// All files with their changes, joined as one YAML stream. Do not use this text if `refused` is not 0.
    pub text: String,
    /// Messages for the user: one line for each change, skipped object, error and lost comment.
    pub messages: Vec<String>,
    pub has_changes: bool,
    /// Number of objects that `inject` refused and of documents that could not be changed.
    pub refused: usize,
    /// Names of the objects whose sidecar probably gets no requests.
    pub unused: Vec<String>,
    /// Objects that were read from a cluster. These objects were changed, or they were skipped because a controller
    /// would overwrite the change.
    cluster_objects: Vec<ClusterObject>,
}

/// Applies an operation to all objects of the files. Objects in different files can refer to each other.
///
/// # Errors
/// Returns a message if a file cannot be parsed, or if `only` names an object that does not exist.
pub fn change_manifests(
    files: &[ManifestFile],
    operation: Operation<'_>,
) -> Result<ChangedManifests, String> {
    let documents = files.iter().map(ManifestFile::documents).collect::<Result<Vec<_>, _>>()?;
    let objects: Vec<&Value> = documents
        .iter()
        .flatten()
        .flat_map(|document| inject::document_objects(document.value()))
        .map(|(_, object)| object)
        .collect();
    let settings_and_context = match operation {
        Operation::Inject { settings, only } => {
            check_selection(&objects, only)?;
            Some((settings, InjectionContext::new(&objects, settings, only)))
        }
        Operation::Uninject => None,
    };
    let mut changed = ChangedManifests::default();
    for (file, documents) in files.iter().zip(&documents) {
        changed.separate_from(&file.text);
        let mut line = 1;
        for document in documents {
            let change = |object: &Value| match &settings_and_context {
                Some((settings, context)) => inject::inject(object, context, settings),
                None => inject::uninject(object),
            };
            changed.change_document(&file.name, line, document, change);
            line += document.text().matches('\n').count();
        }
    }
    if changed.refused == 0 {
        let command = if settings_and_context.is_some() { "inject" } else { "uninject" };
        let instructions = inject::reapply_instructions(&changed.cluster_objects, command);
        changed.messages.extend(instructions);
    }
    if !changed.unused.is_empty() {
        let names = changed.unused.join(", ");
        changed.messages.push(format!(
            "no container sends calls to the sidecar of {names}; the messages above say why"
        ));
    }
    if changed.messages.is_empty() && !changed.has_changes {
        changed.messages.push("nothing to change: no object in the input runs pods".to_owned());
    }
    Ok(changed)
}

fn check_selection(objects: &[&Value], only: &[String]) -> Result<(), String> {
    let names: Vec<String> = objects.iter().map(|object| inject::object_name(object)).collect();
    match only.iter().find(|name| !names.contains(name)) {
        Some(missing) => Err(format!(
            "--only {missing}: the input has no such object; it has {}",
            names.join(", ")
        )),
        None => Ok(()),
    }
}

impl ManifestFile {
    fn documents(&self) -> Result<Vec<Document<'_>>, String> {
        yaml::parse_documents(&self.text).map_err(|error| {
            let hint = if self.text.contains("{{") {
                "; the file looks like a template: pass the output of `helm template` instead"
            } else {
                ""
            };
            format!("{}: {error}{hint}", self.name)
        })
    }
}

impl ChangedManifests {
    /// Adds a document separator (`---` or `...`) before the next file if the YAML syntax requires one.
    fn separate_from(&mut self, next: &str) {
        if self.text.is_empty() {
            return;
        }
        if !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        if next.starts_with('%') {
            // Directives such as `%YAML` are allowed only after the end of a document, marked by `...`.
            self.text.push_str("...\n");
        } else if !next.starts_with("---") {
            self.text.push_str("---\n");
        }
    }

    /// Changes the objects of a document and appends the document to `text`. The document starts in `line` of `file`.
    fn change_document(
        &mut self,
        file: &str,
        line: usize,
        document: &Document<'_>,
        change: impl Fn(&Value) -> Outcome,
    ) {
        let first_line = line + leading_lines(document.text());
        let mut patch = Patch(Vec::new());
        for (pointer, object) in inject::document_objects(document.value()) {
            let prefix = format!("{file}:{first_line}: {}", inject::object_name(object));
            match change(object) {
                Ok(change) => {
                    if change.has_unused_sidecar() {
                        self.unused.push(inject::object_name(object));
                    }
                    let Change { patch: object_patch, notes, .. } = change;
                    patch.0.extend(inject::prefix_patch(object_patch, &pointer).0);
                    self.cluster_objects.extend(ClusterObject::from_object(object));
                    let messages = notes.iter().map(|note| format!("{prefix}: {}", note.text));
                    self.messages.extend(messages);
                }
                Err(NoChange::Skipped(SkipReason::Controlled)) => {
                    self.cluster_objects.extend(ClusterObject::from_object(object));
                }
                Err(NoChange::Skipped(reason)) => {
                    if reason.is_reported() {
                        self.messages.push(format!("{prefix}: skipped: {reason}"));
                    }
                }
                Err(NoChange::Refused(error)) => {
                    self.refused += 1;
                    self.messages.push(format!("{prefix}: refused: {error}"));
                }
            }
        }
        if patch.0.is_empty() {
            self.text.push_str(document.text());
            return;
        }
        match document.apply(&patch) {
            Ok(patched) => {
                self.has_changes = true;
                self.text.push_str(&patched.text);
                for loss in &patched.losses {
                    self.messages.push(format!("{file}:{}: lost: {loss}", line + loss.line - 1));
                }
            }
            Err(error) => {
                self.refused += 1;
                self.messages.push(format!("{file}:{first_line}: refused: {}", WithCauses(&error)));
            }
        }
    }
}

/// Counts the lines before the content of a document: markers, directives, comments and blank lines.
fn leading_lines(text: &str) -> usize {
    let has_no_content = |line: &&str| {
        let line = line.trim();
        line.is_empty() || line == "---" || line.starts_with(['#', '%'])
    };
    text.lines().take_while(has_no_content).count()
}
