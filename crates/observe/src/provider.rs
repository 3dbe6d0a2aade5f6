//! Labels of a call: its provider, from the configuration, the host, the response headers or the API, and names from
//! outside.

use tokengauge_llm::dialect::{self, Api};
use tokengauge_types::event::{Headers, RouteFacts};
use tokengauge_types::label::{CardinalityLimiter, Dimension, Label, Name, OTHER};

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
    known(route).cloned().unwrap_or_else(|| Label::from_trusted(api.provider()))
}

/// Returns the label for a name from outside. A name that no response has confirmed gets no new label.
pub(super) fn label(
    limiter: &CardinalityLimiter,
    dimension: Dimension,
    name: &Name,
    is_confirmed: bool,
) -> Label {
    match is_confirmed {
        true => limiter.admit(dimension, name),
        false => limiter.get(dimension, name).unwrap_or_else(|| Label::from_trusted(OTHER)),
    }
}

fn known(route: &RouteFacts) -> Option<&Label> {
    let learned = &route.learned_provider;
    let by_host = || dialect::provider_by_host(route.server_address.as_str());
    let configured = route.provider.as_ref();
    configured
        .or_else(|| learned.by_host.get_or_init(by_host).as_ref())
        .or_else(|| learned.by_headers.get())
}
