//! tokengauge as a sidecar in Kubernetes: one transformation of objects, two faces.
//!
//! What is to be changed in an object is planned as a JSON Patch (RFC 6902). The webhook sends that patch to the API
//! server as it is; `tokengauge inject` applies it to the text of manifests, so that comments, order and quotes stay.

pub mod inject;
pub mod webhook;
pub mod yaml;
