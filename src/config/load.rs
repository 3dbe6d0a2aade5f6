//! Loads the configuration, and generates the JSON Schemas.

use std::path::Path;

use schemars::transform::{RecursiveTransform, Transform};
use schemars::{Schema, schema_for};
use serde_json::Value;

use super::deserialize;
use super::errors::{ConfigErrors, ErrorCollector, Position};
use super::resolve::resolve;
use super::section::cost::PriceFile;
use super::section::{File, Layers, ReferencedFiles};
use super::{Config, Environment, RunArgs, file, referenced_files, relative_paths, yaml};
use tokengauge_llm::count::Tokenizers;
use tokengauge_types::bounded::{DEFAULT_IF_SET, RANGE};

/// Loads the configuration from flags, environment variables and the file that a flag names.
///
/// # Errors
/// Returns all errors in flags, variables and the file.
pub fn load(args: &RunArgs, environment: Environment<'_>) -> Result<Config, ConfigErrors> {
    let text = args.config.as_deref().map(file::read).transpose()?;
    load_text(text.as_deref(), args, environment, &Tokenizers::default())
}

/// Does the same as [`load`] with the given `text` of the file. Tokenizers that are already loaded are reused.
pub(super) fn load_text(
    text: Option<&str>,
    args: &RunArgs,
    environment: Environment<'_>,
    tokenizers: &Tokenizers,
) -> Result<Config, ConfigErrors> {
    let environment = |name: &str| environment(name).and_then(super::non_empty);
    let layers =
        Layers { args, environment: &environment, files: ReferencedFiles::Load, tokenizers };
    resolve_text(text, layers)
}

/// Validates `file`, or standard input for the path `-`, and the `files` that it names. Ignores flags and the
/// environment.
///
/// # Errors
/// Returns all errors of the file.
pub fn check(file: &Path, files: ReferencedFiles) -> Result<Config, ConfigErrors> {
    let text = file::read_or_stdin(file)?;
    let args = RunArgs { config: Some(file.to_owned()), ..RunArgs::default() };
    let layers =
        Layers { args: &args, environment: &|_| None, files, tokenizers: &Tokenizers::default() };
    resolve_text(Some(&text), layers)
}

fn resolve_text(text: Option<&str>, layers: Layers<'_>) -> Result<Config, ConfigErrors> {
    let path = layers.args.config.as_deref().unwrap_or(Path::new(""));
    let mut errors = ErrorCollector::for_file(path);
    let file = match text {
        None => None,
        Some(text) => match parse(text, &mut errors) {
            Some(mut file) => {
                let folder = path.parent().unwrap_or(Path::new(""));
                relative_paths::resolve(&mut file, folder);
                Some(file)
            }
            // Returns early, because all further errors would be consequences of this error.
            None => return Err(errors.into_errors()),
        },
    };
    let mut config = resolve(file, layers, &mut errors);
    if layers.files == ReferencedFiles::Verify {
        referenced_files::verify(&config, &mut errors);
    }
    config.warnings = errors.take_warnings();
    errors.into_result(config)
}

/// Parses the configuration file. Reports an error if the file is empty.
fn parse(text: &str, errors: &mut ErrorCollector) -> Option<File> {
    let errors_before = errors.count();
    let file = yaml::parse(text, errors).and_then(|root| deserialize::from_node(&root, errors));
    if file.is_none() && errors.count() == errors_before {
        let message = "the file is empty; write at least \
                       `upstreams: {openai: {url: https://api.openai.com}}`";
        errors.add_at(Position::START, String::new(), message);
    }
    file
}

/// The JSON Schema of the configuration file.
pub fn schema() -> Schema {
    tidy(schema_for!(File), "tokengauge configuration")
}

/// The JSON Schema of the price file.
pub fn prices_schema() -> Schema {
    tidy(schema_for!(PriceFile), "tokengauge prices")
}

/// Sets the title, and removes what only the reference page shows, links, and defaults of whole sections.
pub(super) fn tidy(mut schema: Schema, title: &str) -> Schema {
    schema.insert("title".to_owned(), title.into());
    RecursiveTransform(remove_null).transform(&mut schema);
    let mut without_details = RecursiveTransform(|schema: &mut Schema| {
        if schema.get("default").is_some_and(|value| value.is_null() || value.is_object()) {
            schema.remove("default");
        }
        for detail in ["format", RANGE, DEFAULT_IF_SET] {
            schema.remove(detail);
        }
        if let Some(Value::String(text)) = schema.get_mut("description") {
            *text = without_links(text);
        }
    });
    without_details.transform(&mut schema);
    schema
}

/// Removes `null` from the types of an optional value, because it means the same as no key.
pub(super) fn remove_null(schema: &mut Schema) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    let is_null = |schema: &Value| schema.get("type").is_some_and(|name| name == "null");
    if let Some(Value::Array(any)) = schema.get_mut("anyOf")
        && let Some(index) = any.iter().position(is_null)
    {
        any.remove(index);
        if let [Value::Object(only)] = any.as_mut_slice() {
            let only = std::mem::take(only);
            schema.remove("anyOf");
            only.into_iter().for_each(|(key, value)| drop(schema.insert(key, value)));
        }
    }
}

/// Returns one line of text, with the labels of Markdown links instead of the links.
fn without_links(text: &str) -> String {
    let mut plain = text.replace('\n', " ");
    while let Some((before, after)) = plain.split_once("](")
        && let Some((start, label)) = before.rsplit_once('[')
        && let Some((_, end)) = after.split_once(')')
    {
        plain = format!("{start}{label}{end}");
    }
    plain
}
