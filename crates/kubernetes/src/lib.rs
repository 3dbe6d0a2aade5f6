//! Kubernetes integration of tokengauge: sidecar injection, as a command for manifests and as an admission webhook.
//!
//! [`inject`] plans the changes to an object as a JSON Patch (RFC 6902). The [`webhook`] sends the patch to the API
//! server. [`manifests`] applies it to the text of manifest files with [`yaml`], which keeps comments, order and quotes.

pub mod inject;
pub mod manifests;
pub mod webhook;
pub mod yaml;
