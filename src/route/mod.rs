//! Host and path → target, compiled once, matched without allocation.

use std::sync::Arc;

use crate::label::Label;
use crate::wire::RouteFacts;

/// One route. The first of the longest matching prefixes wins; a route with a host before one without.
#[derive(Clone, Debug)]
pub struct Config {
    pub facts: Arc<RouteFacts>,
    /// `Host` without its port, in lower case; `*.example.com` stands for any subdomain. `None` is any.
    pub host: Option<String>,
    /// A prefix of the path that ends at a `/` or at the path's end; empty is any.
    pub prefix: String,
    /// Whether `prefix` is taken off before the path is sent on.
    pub strip: bool,
    /// The name of the upstream.
    pub upstream: Label,
}
