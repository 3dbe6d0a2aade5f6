//! Outbound mode: environment variables point the application's SDKs to the sidecar.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::annotations::SidecarConfig;
use super::context::InjectionContext;
use super::edit::{Edit, Position};
use super::note::ChangeNote;
use super::outcome::InjectError;
use super::pod;
use super::providers::{self, BaseUrl};
use super::sidecar::PodContext;

/// Sets the variables in the application's containers, and returns the facts about the pod that the sidecar needs.
pub(super) fn set_base_urls(
    edit: &mut Edit,
    config: &SidecarConfig,
    namespace: Option<&str>,
    context: &InjectionContext,
    notes: &mut Vec<ChangeNote>,
) -> Result<PodContext, InjectError> {
    let lists: &[&str] = if config.native {
        &["/spec/initContainers", "/spec/containers"]
    } else {
        // Init containers end before a plain sidecar container starts.
        &["/spec/containers"]
    };
    check_container_names(edit, config, lists)?;
    let provider = config.settings.provider.as_ref().map(|name| name.as_str().to_owned());
    let config_map =
        config.settings.config.as_ref().filter(|_| config.settings.upstream.is_empty());
    if let Some(name) = config_map {
        notes.push(ChangeNote::ConfigMapRouting { config: name.to_string(), upstream: None });
    } else {
        let (base_urls, unknown) =
            providers::base_urls(&config.settings.upstream, provider.as_deref(), config.listen);
        notes.extend(unknown.into_iter().map(|upstream| ChangeNote::NoVariable { upstream }));
        let application = Application { config, namespace, context, base_urls };
        for list in lists {
            for index in 0..edit.list(list).len() {
                application.set_variables(edit, &format!("{list}/{index}"), notes)?;
            }
        }
    }
    Ok(PodContext {
        upstream: config_map.is_none().then(|| providers::upstream_flag(&config.settings.upstream)),
        provider,
        declares_listen_port: false,
        grace_period: pod::grace_period(edit),
        owner: Vec::new(),
    })
}

fn check_container_names(
    edit: &Edit,
    config: &SidecarConfig,
    lists: &[&str],
) -> Result<(), InjectError> {
    let choices: Vec<String> =
        lists.iter().flat_map(|list| edit.list(list)).map(pod::name).collect();
    let unknown = config.containers.iter().flatten().find(|name| !choices.contains(name));
    match unknown {
        Some(name) => Err(InjectError::NoSuchContainer { name: name.clone(), choices }),
        None => Ok(()),
    }
}

/// Variables that a container sets, with their values where the manifest has them.
type Variables = BTreeMap<String, Option<String>>;

/// The application of a pod, and the variables that its containers need.
struct Application<'a> {
    config: &'a SidecarConfig,
    namespace: Option<&'a str>,
    context: &'a InjectionContext,
    base_urls: Vec<BaseUrl>,
}

impl Application<'_> {
    /// Sets the variables in the container at `pointer` that the container does not set itself.
    fn set_variables(
        &self,
        edit: &mut Edit,
        pointer: &str,
        notes: &mut Vec<ChangeNote>,
    ) -> Result<(), InjectError> {
        let value = edit.get(pointer).unwrap_or(&Value::Null);
        let container = pod::name(value);
        let names = self.config.containers.as_ref();
        if names.is_some_and(|names| !names.contains(&container)) {
            return Ok(());
        }
        let (mut existing, unknown_source) = self.variables_from_sources(value);
        // If the user names the container, the new variables may override variables of an unknown source.
        if let Some(source) = unknown_source.filter(|_| names.is_none()) {
            notes.push(ChangeNote::UnknownEnvFrom { container, source });
            return Ok(());
        }
        for item in value.get("env").and_then(Value::as_array).into_iter().flatten() {
            let text = item.get("value").and_then(Value::as_str);
            existing.insert(pod::name(item), text.map(str::to_owned));
        }
        let base_urls: Vec<&BaseUrl> = self
            .base_urls
            .iter()
            .filter(|base_url| is_unset(base_url, &container, &existing, notes))
            .collect();
        if base_urls.is_empty() {
            return Ok(());
        }
        let proxy = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]
            .into_iter()
            .find(|name| existing.contains_key(*name));
        if let Some(proxy) = proxy {
            let name = proxy.to_owned();
            notes.push(ChangeNote::HttpProxy { container: container.clone(), name });
        }
        let names = base_urls.iter().map(|base_url| base_url.variable.name).collect();
        let variable = |base_url: &&BaseUrl| json!({ "name": base_url.variable.name, "value": base_url.value });
        let env = base_urls.iter().map(variable).collect();
        edit.insert(&format!("{pointer}/env"), Position::Last, env)?;
        notes.push(ChangeNote::VariablesSet { container, names });
        Ok(())
    }

    /// Returns the variables from `envFrom`, and the first ConfigMap or Secret that is not in the input.
    fn variables_from_sources(&self, container: &Value) -> (Variables, Option<String>) {
        let mut variables = Variables::new();
        let mut unknown_source = None;
        for source in container.get("envFrom").and_then(Value::as_array).into_iter().flatten() {
            let prefix = source.get("prefix").and_then(Value::as_str).unwrap_or_default();
            for (key, kind) in [("configMapRef", "ConfigMap"), ("secretRef", "Secret")] {
                let Some(name) = source.get(key).map(pod::name) else {
                    continue;
                };
                match self.context.variables(kind, &name, self.namespace) {
                    Some(keys) => {
                        variables.extend(keys.iter().map(|key| (format!("{prefix}{key}"), None)));
                    }
                    None => {
                        unknown_source = unknown_source.or_else(|| Some(format!("{kind} {name}")));
                    }
                }
            }
        }
        (variables, unknown_source)
    }
}

/// Returns whether the container sets the variable under none of its names. Reports why a variable is not set.
fn is_unset(
    base_url: &BaseUrl,
    container: &str,
    existing: &Variables,
    notes: &mut Vec<ChangeNote>,
) -> bool {
    let variable = base_url.variable;
    let mut names = [variable.name].into_iter().chain(variable.aliases.iter().copied());
    if let Some((name, value)) = names.find_map(|name| Some((name, existing.get(name)?))) {
        if value.as_ref() != Some(&base_url.value) {
            notes.push(ChangeNote::VariableKept {
                container: container.to_owned(),
                name,
                value: value.clone(),
                prefix: base_url.prefix,
            });
        }
        return false;
    }
    let azure = existing
        .keys()
        .find(|name| name.starts_with("AZURE_OPENAI_") || *name == "OPENAI_API_VERSION");
    match azure {
        Some(azure) if variable.name == "OPENAI_BASE_URL" => {
            let name = azure.clone();
            notes.push(ChangeNote::AzureOpenAi { container: container.to_owned(), name });
            false
        }
        Some(_) | None => true,
    }
}
