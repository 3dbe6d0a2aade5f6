//! Kubernetes integration of tokengauge: injects sidecars into manifests (a command) and into new pods (an
//! admission webhook).
//!
//! [`inject`] plans the changes to an object as a JSON Patch (RFC 6902). The [`webhook`] sends the patch to the
//! API server. [`manifests`] applies the patch to the text of manifest files with [`yaml`], which keeps
//! comments, order and quotes.

pub mod inject;
pub mod manifests;
pub mod webhook;
pub mod yaml;
