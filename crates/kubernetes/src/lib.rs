//! Kubernetes integration of tokengauge: adds sidecars to manifests (a command) and to new pods (an admission
//! webhook).
//!
//! [`inject`] returns the changes to an object as a JSON Patch (RFC 6902). The [`webhook`] sends the patch to the API
//! server. [`manifests`] applies the patch to manifest files. For this purpose, [`yaml`] edits the text and keeps
//! comments, order and quotes.

pub mod inject;
pub mod manifests;
pub mod webhook;
pub mod yaml;
