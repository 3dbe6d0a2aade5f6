//! Reading the layers, and writing down what the file may say.

use std::path::Path;

use schemars::transform::{Transform, transform_subschemas};
use schemars::{Schema, schema_for};

use super::deserialize::{self, Spanned};
use super::errors::{ConfigErrors, ErrorCollector, Position};
use super::resolve::{Layers, resolve};
use super::{Config, Environment, RunArgs, file, prices, raw, yaml};
use tokengauge_llm::count::Tokenisers;

/// The configuration that `args`, the environment and the file that `args` names amount to.
pub fn load(args: &RunArgs, environment: Environment<'_>) -> Result<Config, ConfigErrors> {
    let text = args.config.as_deref().map(file::read).transpose()?;
    load_text(text.as_deref(), args, environment, &Tokenisers::default())
}

/// [`load`], with the text of the file, and the tokenisers that were read before.
pub(super) fn load_text(
    text: Option<&str>,
    args: &RunArgs,
    environment: Environment<'_>,
    tokenizers: &Tokenisers,
) -> Result<Config, ConfigErrors> {
    let layers = Layers { args, environment, read_secrets: true, tokenizers };
    assemble(text, layers)
}

/// The configuration that `file` alone amounts to, without reading the files of secrets that it names.
pub fn check(file: &Path) -> Result<Config, ConfigErrors> {
    let text = file::read(file)?;
    let args = RunArgs { config: Some(file.to_owned()), ..RunArgs::default() };
    let layers = Layers {
        args: &args,
        environment: &|_| None,
        read_secrets: false,
        tokenizers: &Tokenisers::default(),
    };
    assemble(Some(&text), layers)
}

fn assemble(text: Option<&str>, layers: Layers<'_>) -> Result<Config, ConfigErrors> {
    let mut errors =
        ErrorCollector::of_file(layers.args.config.as_deref().unwrap_or(Path::new("")));
    let file = match text {
        None => None,
        Some(text) => match parse(text, &mut errors) {
            Some(file) => Some(file),
            // Why there is none has been told, and all else would only follow from it.
            None => return Err(errors.into_errors()),
        },
    };
    let config = resolve(file, layers, &mut errors);
    errors.into_result(config)
}

/// What the file says; where it says nothing at all, that is told.
fn parse(text: &str, errors: &mut ErrorCollector) -> Option<Spanned<raw::File>> {
    let before = errors.count();
    let root = yaml::parse(text, errors);
    let file = root.and_then(|root| deserialize::from_node(&root, errors).spanned());
    if file.is_none() && errors.count() == before {
        let message = "the file is empty; write at least `version: 1` and `upstreams: {openai: {url: https://api.openai.com}}`";
        errors.in_file(Position::START, String::new(), message);
    }
    file
}

/// The JSON Schema of the file.
pub fn schema() -> Schema {
    tidy(schema_for!(raw::File), "tokengauge configuration")
}

/// The JSON Schema of the file of prices.
pub fn prices_schema() -> Schema {
    tidy(schema_for!(prices::File), "tokengauge prices")
}

fn tidy(mut schema: Schema, title: &str) -> Schema {
    schema.insert("title".to_owned(), title.into());
    Tidy.transform(&mut schema);
    schema
}

/// Takes away what describes the Rust types and not the file: absent keys are written as `null` by nobody.
struct Tidy;

impl Transform for Tidy {
    fn transform(&mut self, schema: &mut Schema) {
        if schema.get("default").is_some_and(|default| default.is_null()) {
            schema.remove("default");
        }
        schema.remove("format");
        transform_subschemas(self, schema);
    }
}
