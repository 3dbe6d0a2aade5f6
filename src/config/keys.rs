//! Every key of the file: its default, and whether a reload takes it over. The documentation is checked against this.

use super::Config;

/// One key of the file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Key {
    /// As in error messages; `[]` stands for every entry of a list, `*` for every name.
    pub path: &'static str,
    /// As it would be written; `None` where the key is required, or where nothing is the default.
    pub default: Option<&'static str>,
    /// Whether a change counts from the next reload on; else from the next start.
    pub reloadable: bool,
}

const fn key(path: &'static str, default: Option<&'static str>, reloadable: bool) -> Key {
    Key {
        path,
        default,
        reloadable,
    }
}

/// All keys that hold a value, in the order of the documentation.
pub const KEYS: &[Key] = &[
    key("version", None, true),
    key("listeners[].address", Some("127.0.0.1:4000"), false),
    key("listeners[].tls.certificate", None, false),
    key("listeners[].tls.key", None, false),
    key("listeners[].max_connections", Some("8192"), false),
    key("listeners[].head_timeout", Some("30s"), false),
    key("admin.address", Some("127.0.0.1:4001"), false),
    key("admin.token_file", None, false),
    key("upstreams.*.url", None, true),
    key("upstreams.*.protocol", Some("http1"), true),
    key("upstreams.*.keep_host", Some("false"), true),
    key("upstreams.*.ca_file", None, true),
    key("upstreams.*.timeouts.connect", Some("10s"), true),
    key("upstreams.*.timeouts.head", Some("off"), true),
    key("upstreams.*.timeouts.idle", Some("off"), true),
    key("upstreams.*.timeouts.total", Some("off"), true),
    key("upstreams.*.pool.idle", Some("4s"), true),
    key("upstreams.*.pool.size", Some("1024"), true),
    key("upstreams.*.metrics.url", Some("/metrics"), true),
    key("upstreams.*.metrics.engine", Some("auto"), true),
    key("upstreams.*.metrics.interval", Some("5s"), true),
    key("upstreams.*.metrics.timeout", Some("2s"), true),
    key("upstreams.*.warm.idle", Some("5m"), true),
    key("upstreams.*.warm.exchanges", Some("3"), true),
    key("upstreams.*.warm.young", Some("2m"), true),
    key("upstreams.*.warm.load", Some("500ms"), true),
    key("routes[].name", None, true),
    key("routes[].match.host", None, true),
    key("routes[].match.prefix", None, true),
    key("routes[].upstream", None, true),
    key("routes[].strip", Some("false"), true),
    key("routes[].dialect", None, true),
    key("routes[].provider", None, true),
    key("routes[].vantage", None, true),
    key("routes[].trace", None, true),
    key("routes[].stall_after", Some("2s"), true),
    key("routes[].hung_after", Some("30s"), true),
    key("routes[].admission.max_in_flight", None, true),
    key("routes[].admission.queue", Some("64"), true),
    key("routes[].admission.wait", Some("5s"), true),
    key("routes[].content.capture", None, true),
    key("routes[].content.max_bytes", Some("64KiB"), true),
    key("routes[].content.redact[]", Some("secrets"), true),
    key("objectives[].preset", None, true),
    key("objectives[].name", None, true),
    key("objectives[].indicator", None, true),
    key("objectives[].threshold", None, true),
    key("objectives[].min_streams", None, true),
    key("objectives[].min_output_tokens", None, true),
    key("objectives[].target", None, true),
    key("objectives[].window", Some("30d"), true),
    key("objectives[].warmup", Some("0s"), true),
    key("objectives[].exclude[]", None, true),
    key("objectives[].scope.route", None, true),
    key("objectives[].scope.model", None, true),
    key("objectives[].scope.tenant", None, true),
    key("objectives[].scope.operation", None, true),
    key("objectives[].scope.stream", None, true),
    key("slo_state.path", None, false),
    key("tokenizers.*", None, true),
    key("identity.tenant.headers[]", None, true),
    key("identity.tenant.hash", Some("false"), true),
    key("identity.session.headers[]", None, true),
    key("identity.session.hash", Some("false"), true),
    key("identity.variant.headers[]", None, true),
    key("identity.variant.hash", Some("false"), true),
    key("cost.prices", None, true),
    key("cost.budgets[].name", None, true),
    key("cost.budgets[].tenant", None, true),
    key("cost.budgets[].route", None, true),
    key("cost.budgets[].model", None, true),
    key("cost.budgets[].money.amount", None, true),
    key("cost.budgets[].money.currency", None, true),
    key("cost.budgets[].tokens", None, true),
    key("cost.budgets[].window", Some("30d"), true),
    key("labels.models", Some("100"), false),
    key("labels.providers", Some("32"), false),
    key("labels.finish_reasons", Some("32"), false),
    key("labels.error_types", Some("64"), false),
    key("labels.tenants", Some("100"), false),
    key("labels.variants", Some("16"), false),
    key("labels.length_bands", Some("false"), false),
    key("export.endpoint", None, false),
    key("export.protocol", None, false),
    key("export.interval", None, false),
    key("export.headers.*", None, false),
    key("export.genai_names", None, false),
    key("limits.observer_memory", Some("32MiB"), false),
    key("drain", Some("30s"), true),
    key("vantage", Some("outbound"), true),
    key("trace", Some("passthrough"), true),
    key("propagators[]", None, false),
    key("log.level", Some("info"), false),
    key("log.format", Some("text"), false),
    key("request_log.path", None, true),
    key("request_log.rotate.size", Some("100MiB"), true),
    key("request_log.rotate.keep", Some("5"), true),
    key("drift.baseline", Some("first"), true),
    key("drift.exchanges", Some("1000"), true),
];

/// What a reload from `old` to `new` does not take over: the keys that differ and count only from the next start on.
pub fn differences(old: &Config, new: &Config) -> Vec<&'static str> {
    let parts = [
        ("listeners", old.listeners != new.listeners),
        ("admin", old.admin != new.admin),
        ("slo_state", old.slo_state != new.slo_state),
        ("labels", old.labels != new.labels),
        ("export", old.export != new.export),
        ("limits", old.observer_memory != new.observer_memory),
        ("propagators", old.propagators != new.propagators),
        ("log", old.log != new.log),
    ];
    parts
        .into_iter()
        .filter_map(|(key, differs)| differs.then_some(key))
        .collect()
}
