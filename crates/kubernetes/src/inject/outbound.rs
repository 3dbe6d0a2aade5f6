//! Beside an application: its SDKs are led to the sidecar by their own environment variables.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::annotations::Wanted;
use super::edit::Edit;
use super::note::Note;
use super::outcome::Problem;
use super::pod;
use super::services::Around;
use super::sidecar::Place;
use super::vendors::{self, Setting};

/// Gives the application's containers their variables, and says what the sidecar is to do.
pub(super) fn point(
    edit: &mut Edit,
    wanted: &Wanted,
    (namespace, around): (Option<&str>, &Around),
    notes: &mut Vec<Note>,
) -> Result<Place, Problem> {
    let lists: &[&str] = if wanted.native {
        &["/spec/initContainers", "/spec/containers"]
    } else {
        // Before a plain container starts, what initialises the pod has ended.
        &["/spec/containers"]
    };
    check_names(edit, wanted, lists)?;
    let config = wanted.config.as_ref().filter(|_| wanted.upstream.is_empty());
    let provider = wanted.provider.as_ref().map(|name| name.as_str().to_owned());
    if let Some(config) = config {
        notes.push(Note::ConfigRules { config: config.to_string(), upstream: None });
    } else {
        let (settings, unknown) =
            vendors::settings(&wanted.upstream, provider.as_deref(), wanted.listen);
        notes.extend(unknown.into_iter().map(|upstream| Note::NoVariable { upstream }));
        for list in lists {
            for index in 0..edit.list(list).len() {
                let at = format!("{list}/{index}");
                container(edit, &at, (wanted, &settings), (namespace, around), notes)?;
            }
        }
    }
    Ok(Place {
        upstream: config.is_none().then(|| vendors::routes(&wanted.upstream)),
        provider,
        declares_listen: false,
        grace: pod::grace(edit),
        owner: Vec::new(),
    })
}

fn check_names(edit: &Edit, wanted: &Wanted, lists: &[&str]) -> Result<(), Problem> {
    let choices: Vec<String> =
        lists.iter().flat_map(|list| edit.list(list)).map(pod::name).collect();
    let unknown = wanted.containers.iter().flatten().find(|name| !choices.contains(name));
    match unknown {
        Some(name) => Err(Problem::NoSuchContainer { name: name.clone(), choices }),
        None => Ok(()),
    }
}

fn container(
    edit: &mut Edit,
    at: &str,
    (wanted, settings): (&Wanted, &[Setting]),
    (namespace, around): (Option<&str>, &Around),
    notes: &mut Vec<Note>,
) -> Result<(), Problem> {
    let value = edit.get(at).unwrap_or(&Value::Null);
    let name = pod::name(value);
    if wanted.containers.as_ref().is_some_and(|names| !names.contains(&name)) {
        return Ok(());
    }
    let mut set = BTreeMap::new();
    match from_elsewhere(value, namespace, around, &mut set) {
        // Named by the user, who says thereby that ours may go before what stands there.
        Some(source) if wanted.containers.is_none() => {
            notes.push(Note::EnvFrom { container: name, source });
            return Ok(());
        }
        Some(_) | None => {}
    }
    for item in value.get("env").and_then(Value::as_array).into_iter().flatten() {
        set.insert(pod::name(item), item.get("value").and_then(Value::as_str).map(str::to_owned));
    }
    let proxy = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]
        .into_iter()
        .find(|name| set.contains_key(*name));
    let items: Vec<&Setting> =
        settings.iter().filter(|setting| is_free(setting, &name, &set, notes)).collect();
    if items.is_empty() {
        return Ok(());
    }
    if let Some(proxy) = proxy {
        notes.push(Note::HttpProxy { container: name.clone(), name: proxy.to_owned() });
    }
    let names = items.iter().map(|setting| setting.variable.name).collect();
    let env =
        items.iter().map(|it| json!({ "name": it.variable.name, "value": it.value })).collect();
    edit.insert(&format!("{at}/env"), false, env)?;
    notes.push(Note::VariablesSet { container: name, names });
    Ok(())
}

/// What a container sets: each variable, with its value where that stands there.
type Variables = BTreeMap<String, Option<String>>;

/// Whether a variable may be set: nobody has, by whichever name.
fn is_free(setting: &Setting, container: &str, set: &Variables, notes: &mut Vec<Note>) -> bool {
    let variable = setting.variable;
    let names = [variable.name].into_iter().chain(variable.aliases.iter().copied());
    for name in names {
        if let Some(value) = set.get(name) {
            if value.as_ref() != Some(&setting.value) {
                notes.push(Note::VariableKept {
                    container: container.to_owned(),
                    name,
                    value: value.clone(),
                    prefix: setting.prefix,
                });
            }
            return false;
        }
    }
    let azure =
        set.keys().find(|name| name.starts_with("AZURE_OPENAI_") || *name == "OPENAI_API_VERSION");
    match azure {
        Some(azure) if variable.name == "OPENAI_BASE_URL" => {
            notes.push(Note::AzureOpenAi { container: container.to_owned(), name: azure.clone() });
            false
        }
        Some(_) | None => true,
    }
}

/// Collects what ConfigMaps and Secrets of the input set; the first that is not in the input is told.
fn from_elsewhere(
    container: &Value,
    namespace: Option<&str>,
    around: &Around,
    set: &mut Variables,
) -> Option<String> {
    let mut missing = None;
    for source in container.get("envFrom").and_then(Value::as_array).into_iter().flatten() {
        let prefix = source.get("prefix").and_then(Value::as_str).unwrap_or_default();
        for (key, kind) in [("configMapRef", "ConfigMap"), ("secretRef", "Secret")] {
            let Some(name) = source.get(key).map(pod::name) else {
                continue;
            };
            match around.variables(kind, &name, namespace) {
                Some(keys) => {
                    set.extend(keys.into_iter().map(|key| (format!("{prefix}{key}"), None)))
                }
                None => missing = missing.or_else(|| Some(format!("{kind} {name}"))),
            }
        }
    }
    missing
}
