//! Outbound mode: environment variables point the application's SDKs to the sidecar.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::annotations::SidecarConfig;
use super::context::{InjectionContext, PodSet};
use super::edit::Edit;
use super::kind::{items, text};
use super::outcome::{InjectError, NO_CALLER};
use super::pod;
use super::providers::{self, BaseUrl};
use super::sidecar::PodContext;

/// Sets environment variables in the application's containers so that SDKs call the sidecar. Returns the sidecar
/// settings that depend on the pod.
pub(super) fn set_base_urls(
    edit: &mut Edit,
    config: &SidecarConfig,
    pods: &PodSet,
    context: &InjectionContext,
) -> Result<PodContext, InjectError> {
    let lists: &[&str] = if config.native {
        &["/spec/initContainers", "/spec/containers"]
    } else {
        // Init containers end before a plain (not native) sidecar container starts, so they cannot use the
        // sidecar.
        &["/spec/containers"]
    };
    check_container_names(edit, config, lists)?;
    let provider = config.settings.provider.clone();
    let upstream = &config.settings.upstream;
    let config_map = config.settings.config.as_ref().filter(|_| upstream.is_empty());
    if let Some(name) = config_map {
        edit.note(format!(
            "tokengauge.yaml in ConfigMap {name} defines the upstreams, so containers get no variables"
        ));
    } else {
        let (base_urls, unknown) =
            providers::base_urls(upstream, provider.as_deref(), config.listen);
        for upstream in unknown {
            edit.warn(format!(
                "no SDK environment variable is known for {upstream}; configure the application to call the sidecar"
            ));
        }
        let application = Application { config, pods, context, base_urls };
        let mut has_caller = false;
        for list in lists {
            for index in 0..edit.list(list).len() {
                has_caller |= application.set_variables(edit, &format!("{list}/{index}"))?;
            }
        }
        if !has_caller {
            edit.warn(NO_CALLER);
        }
    }
    let upstream = config_map.is_none().then(|| providers::upstream_flag(upstream));
    Ok(PodContext { upstream, provider, declares_listen_port: false })
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

/// Environment variables of a container. The value is `None` if the manifest lacks it, as for a variable from a
/// Secret.
type Variables = BTreeMap<String, Option<String>>;

/// The application of a pod, and the base URLs that its containers get as environment variables.
struct Application<'a> {
    config: &'a SidecarConfig,
    pods: &'a PodSet,
    context: &'a InjectionContext,
    base_urls: Vec<BaseUrl>,
}

impl Application<'_> {
    /// Sets the base URL variables of the container at `pointer`. Keeps the variables that the container already sets.
    /// Returns whether a variable of the container has the address of the sidecar.
    fn set_variables(&self, edit: &mut Edit, pointer: &str) -> Result<bool, InjectError> {
        let value = edit.get(pointer).unwrap_or(&Value::Null);
        let container = pod::name(value);
        let names = self.config.containers.as_ref();
        if names.is_some_and(|names| !names.contains(&container)) {
            return Ok(false);
        }
        if let Some(agent) = pod::agent(value).filter(|_| names.is_none()) {
            edit.note(format!(
                "container {container} runs {agent}, so it gets no variables; if it calls an LLM, name it in \
                 tokengauge.dev/containers"
            ));
            return Ok(false);
        }
        let (mut existing, unknown_source) = self.variables_from_sources(value);
        for item in items(value, "/env") {
            existing.insert(pod::name(item), text(item, "/value").map(str::to_owned));
        }
        // If the user names the container, the new variables may override existing variables of unknown origin.
        if let Some(source) = unknown_source.filter(|_| names.is_none()) {
            edit.warn(format!(
                "container {container} reads variables from {source}, which is not in this input, so none is set: it \
                 could override one of {source}; to set them anyway, name the container in tokengauge.dev/containers"
            ));
            return Ok(self.has_address(&existing));
        }
        let base_urls: Vec<&BaseUrl> = self
            .base_urls
            .iter()
            .filter(|base_url| is_unset(edit, base_url, &container, &existing))
            .collect();
        if base_urls.is_empty() {
            return Ok(self.has_address(&existing));
        }
        let proxy = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]
            .into_iter()
            .find(|name| existing.contains_key(*name));
        if let Some(name) = proxy {
            edit.warn(format!(
                "container {container} sets {name}; add 127.0.0.1 to its NO_PROXY, or calls bypass the sidecar"
            ));
        }
        let env =
            base_urls.iter().map(|(known, url)| json!({ "name": known.variable, "value": url }));
        edit.insert(&format!("{pointer}/env/-"), env.collect())?;
        let names: Vec<&str> = base_urls.iter().map(|(known, _)| known.variable).collect();
        edit.note(format!("container {container} gets {}", names.join(", ")));
        Ok(true)
    }

    /// Returns whether one of the variables is a URL of the sidecar.
    fn has_address(&self, existing: &Variables) -> bool {
        let port = self.config.listen;
        let addresses = ["127.0.0.1", "localhost"].map(|host| format!("http://{host}:{port}"));
        let is_url = |value: &String| {
            let rest = addresses.iter().find_map(|address| value.strip_prefix(address.as_str()));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        existing.values().flatten().any(is_url)
    }

    /// Returns the variables that `envFrom` sets. Also returns the first ConfigMap or Secret that is missing from the
    /// input, because its variables are unknown.
    fn variables_from_sources(&self, container: &Value) -> (Variables, Option<String>) {
        let mut variables = Variables::new();
        let mut unknown_source = None;
        for source in items(container, "/envFrom") {
            let prefix = text(source, "/prefix").unwrap_or_default();
            for (key, kind) in [("configMapRef", "ConfigMap"), ("secretRef", "Secret")] {
                let Some(name) = source.get(key).map(pod::name) else { continue };
                match self.context.variables(kind, &name, self.pods) {
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

/// Returns whether the container sets neither the variable nor one of its aliases. Adds a warning if an existing value
/// bypasses the sidecar.
fn is_unset(
    edit: &mut Edit,
    (known, url): &BaseUrl,
    container: &str,
    existing: &Variables,
) -> bool {
    let mut names = [known.variable].into_iter().chain(known.aliases.iter().copied());
    if let Some((name, value)) = names.find_map(|name| Some((name, existing.get(name)?))) {
        if value.as_ref() != Some(url) {
            let shown = value.as_ref().map(|value| format!(" ({value})")).unwrap_or_default();
            let url = value.as_deref().filter(|value| value.starts_with("http")).unwrap_or("URL");
            edit.warn(format!(
                "container {container} sets {name} itself{shown}, so these calls bypass the sidecar; to route them, \
                 remove the variable and set tokengauge.dev/upstream: {}={url}",
                known.prefix
            ));
        }
        return false;
    }
    // The Azure client in OpenAI's SDKs also reads `OPENAI_BASE_URL`, and would send its API key to that URL.
    let mut names = existing.keys().filter(|_| known.variable == "OPENAI_BASE_URL");
    let azure =
        names.find(|name| name.starts_with("AZURE_OPENAI_") || *name == "OPENAI_API_VERSION");
    if let Some(azure) = azure {
        edit.warn(format!(
            "container {container} sets {azure}, so OPENAI_BASE_URL is not set: Azure clients read it too and would \
             send their key to the wrong address"
        ));
    }
    azure.is_none()
}
