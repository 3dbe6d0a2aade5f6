//! The provider of a call, from the configuration, the host, the response headers or the API.

use tokengauge_llm::dialect::{self, Api};
use tokengauge_types::event::{Headers, RouteFacts};
use tokengauge_types::label::Label;

/// Sets the provider of a route from the response headers, if neither its configuration nor its host shows the
/// provider.
pub(super) fn learn(route: &RouteFacts, headers: &Headers) {
    if known(route).is_none()
        && let Some(provider) = dialect::provider_by_headers(headers)
    {
        route.learned_provider.by_headers.get_or_init(|| provider);
    }
}

/// Returns the provider of a call: the configured provider, or else the provider of the host, of the response headers
/// or of the API.
pub(super) fn find(api: Api, route: &RouteFacts) -> Label {
    known(route).cloned().unwrap_or_else(|| Label::known(api.provider()))
}

fn known(route: &RouteFacts) -> Option<&Label> {
    let learned = &route.learned_provider;
    let by_host = || dialect::provider_by_host(route.server_address.as_str());
    let configured = route.provider.as_ref();
    configured
        .or_else(|| learned.by_host.get_or_init(by_host).as_ref())
        .or_else(|| learned.by_headers.get())
}
