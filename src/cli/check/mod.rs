//! `tokengauge check` validates a configuration file.

mod servers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;

use crate::config::value::{ByteSize, DurationValue};
use crate::config::{self, Config, ConfigErrors, Proxies, ReferencedFiles};
use crate::forward::identity::{IdentityConfig, IdentitySource, SessionConfig};
use tokengauge_measure::cost::{Budget, BudgetLimit, Costs};
use tokengauge_measure::slo::Objective;
use tokengauge_telemetry::{ExpectedTraffic, PageEstimate, TelemetryConfig, estimate, request_log};

#[derive(Args, Debug)]
#[command(after_help = concat!("\
Prints one error or warning per line as FILE:LINE:COLUMN: KEY: error; hint
Reads the certificates, keys, tokens, prices, tokenizers and baselines that the file names.
All keys: ", config::configuration_page!(), "
TOKENGAUGE_* and OTEL_* variables are ignored: only the file is checked.
Exit status: 0 if the file is valid and, with --connect, every server was reached; 1 otherwise."))]
pub struct CheckArgs {
    /// Check this configuration file (YAML); - is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print the resolved configuration, defaults included and secrets redacted
    #[arg(long)]
    print: bool,

    /// Do not read the files that FILE names, on a machine that does not have them
    #[arg(long)]
    no_files: bool,

    /// Also open a connection to each upstream and to the OTLP collector: name lookup, TCP and TLS. No request is sent
    #[arg(long, conflicts_with_all = ["print", "no_files"])]
    connect: bool,

    /// Models on each route, for the estimate of series and bytes of /metrics
    #[arg(long, value_name = "N", default_value_t = 1)]
    models: u16,

    /// Tenants of each model, for the estimate. Ignored without identity.tenant
    #[arg(long, value_name = "N", default_value_t = 1)]
    tenants: u16,

    /// Variants of each tenant, for the estimate. Ignored without identity.variant
    #[arg(long, value_name = "N", default_value_t = 1)]
    variants: u16,
}

/// Checks the file and prints the result. `environment` looks up the variables of HTTP proxies.
pub(super) fn run(
    args: &CheckArgs,
    environment: fn(&str) -> Option<String>,
) -> anyhow::Result<ExitCode> {
    let (config, text) = check(args).map_err(|errors| anyhow!(errors.with_documentation()))?;
    if !args.connect {
        return Ok(super::print(text));
    }
    let proxies = Proxies::read(&environment)?;
    let attempts = super::run::runtime()?.block_on(servers::connect(&config, &proxies));
    let lines: String = attempts.lines.iter().map(|line| format!("  {line}\n")).collect();
    if super::print(text + &lines) == ExitCode::FAILURE {
        return Ok(ExitCode::FAILURE);
    }
    if attempts.failed > 0 {
        super::write_stderr(format!(
            "{} of {} servers not reached",
            attempts.failed,
            attempts.lines.len()
        ));
    }
    Ok(attempts.exit_code())
}

/// Returns the configuration and the output about it.
fn check(args: &CheckArgs) -> Result<(Config, String), ConfigErrors> {
    let files = if args.no_files { ReferencedFiles::Skip } else { ReferencedFiles::Verify };
    let config = config::check(&args.file, files)?;
    let warnings = config.warnings.iter().map(ToString::to_string);
    let warnings = warnings.chain(windows_without_rules(&config, &args.file));
    let text = if args.print {
        // Comments, so that the output is still YAML.
        let warnings: String = warnings.map(|warning| format!("# {warning}\n")).collect();
        warnings + &config.yaml
    } else {
        let warnings: String = warnings.map(|warning| format!("{warning}\n")).collect();
        format!(
            "{warnings}{}: valid\n{}{}",
            args.file.display(),
            summary(&config),
            page_size(&config, args)
        )
    };
    Ok((config, text))
}

/// Window of the error budgets for which the rules in `alerts/` are generated.
const WINDOW_OF_RULES: Duration = Duration::from_secs(30 * 86_400);

/// Returns a warning for each window of SLOs for which the rules in `alerts/` have no error budget.
fn windows_without_rules(config: &Config, file: &Path) -> Vec<String> {
    let mut windows: BTreeMap<Duration, Vec<&str>> = BTreeMap::new();
    for slo in config.slos.iter().filter(|slo| slo.window != WINDOW_OF_RULES) {
        windows.entry(slo.window).or_default().push(slo.name.as_str());
    }
    let file = file.display();
    let warning = |(window, names): (Duration, Vec<&str>)| {
        format!(
            "{file}: slos: the rules in alerts/ have no error budget over {} ({}); generate rules \
             with `tokengauge alerts --config {file} --out DIR`, and let Prometheus keep its data \
             for longer than this window",
            DurationValue(window),
            names.join(", ")
        )
    };
    windows.into_iter().map(warning).collect()
}

/// Returns a summary of the configuration for the output of `check`.
fn summary(config: &Config) -> String {
    let mut lines = Vec::new();
    for listener in &config.listeners {
        let tls = if listener.tls.is_some() { " with TLS" } else { "" };
        lines.push(format!(
            "listens on {}{tls}, for at most {} connections and {} requests",
            listener.address, listener.max_connections, listener.max_requests
        ));
    }
    lines.push(format!("admin port {}, metrics at /metrics", config.file.admin.address));
    for route in &config.routes {
        let facts = &route.facts;
        let host = route.host.as_deref().unwrap_or("any host");
        let prefix = if route.prefix.is_empty() { "/" } else { &route.prefix };
        let upstream =
            format!("{} ({}:{})", route.upstream, facts.server_address, facts.server_port);
        let limit = route.admission.map(|limit| {
            format!(
                ", at most {} requests in flight and {} queued for up to {:?}",
                limit.max_in_flight, limit.max_queue, limit.queue_timeout
            )
        });
        let limit = limit.unwrap_or_default();
        let observed = if route.observed { "" } else { ", not observed" };
        lines.push(format!(
            "route {}: {host}, {prefix} → upstream {upstream}{limit}{observed}",
            facts.name
        ));
    }
    let slos: Vec<String> = config.slos.iter().map(slo).collect();
    lines.push(format!("{} SLOs: {}", slos.len(), slos.join(", ")));
    if let Some(path) = config.slo_state() {
        lines.push(format!("state of SLOs: {}", path.display()));
    }
    lines.push(identity(&config.identity));
    lines.push(prices(config));
    lines.extend(config.costs.budgets.iter().map(budget));
    lines.push(format!(
        "limits: {} of memory for observation, {:?} for open streams at shutdown",
        ByteSize(config.file.limits.observer_memory.get()),
        config.file.shutdown_grace_period.get()
    ));
    lines.push(match &config.file.otlp.endpoint {
        Some(endpoint) => format!("telemetry: OTLP to {endpoint}, and /metrics of the admin port"),
        None => {
            "telemetry: /metrics of the admin port; OTLP only if OTEL_EXPORTER_OTLP_ENDPOINT is set"
                .to_owned()
        }
    });
    lines.push(match config.request_log.as_ref().map(|log| &log.destination) {
        Some(request_log::Destination::File(path)) => format!("request log: {}", path.display()),
        Some(request_log::Destination::Stdout) => "request log: standard output".to_owned(),
        None => "request log: off".to_owned(),
    });
    lines.iter().map(|line| format!("  {line}\n")).collect()
}

/// Returns an SLO with its target and window, such as `availability 99.5% in 30d`.
fn slo(slo: &Objective) -> String {
    format!("{} {}% in {}", slo.name, percent(slo.target), DurationValue(slo.window))
}

/// Returns a ratio as a percentage without digits of the float's error.
fn percent(ratio: f64) -> f64 {
    (ratio * 1e8).round() / 1e6
}

/// Returns the estimated size of the page `/metrics`, in lines of the summary.
fn page_size(config: &Config, args: &CheckArgs) -> String {
    let profile = config.file.telemetry.profile;
    let limits = &config.file.cardinality_limits;
    let values = |is_identified: bool, count: u16, limit: usize| {
        if is_identified { usize::from(count).min(limit) } else { 0 }
    };
    let IdentityConfig { tenant, variant, .. } = &config.identity;
    let routes: Vec<_> = config.routes.iter().map(|route| Arc::clone(&route.facts)).collect();
    let traffic = ExpectedTraffic {
        routes: &routes,
        upstreams: config.file.upstreams.iter().count(),
        objectives: config.slos.len(),
        budgets: config.costs.budgets.len(),
        models: usize::from(args.models).min(limits.models.get()),
        tenants: values(tenant.is_some(), args.tenants, limits.tenants.get()),
        variants: values(variant.is_some(), args.variants, limits.variants.get()),
        length_buckets: limits.length_buckets,
        has_prices: config.file.cost.prices.iter().next().is_some(),
    };
    let telemetry = TelemetryConfig {
        gen_ai: config.file.otlp.genai_names.unwrap_or_default(),
        profile,
        ..TelemetryConfig::default()
    };
    let size = |traffic: &ExpectedTraffic<'_>| {
        let PageEstimate { series, bytes } = estimate(telemetry.selection(), traffic);
        format!("about {series} series, {} kB", bytes / 1_000)
    };
    let without = ExpectedTraffic { models: 0, ..traffic };
    let mut load = format!("{} routes × {} models", routes.len(), traffic.models);
    for (name, count) in [("tenants", traffic.tenants), ("variants", traffic.variants)] {
        if count > 0 {
            load = format!("{load} × {count} {name}");
        }
    }
    format!(
        "  /metrics, profile {}: {} before the first call; {} after streams of {load}\n",
        profile.as_str(),
        size(&without),
        size(&traffic),
    )
}

/// Returns the headers that identify tenant, session and variant.
fn identity(identity: &IdentityConfig) -> String {
    let IdentityConfig { tenant, session: SessionConfig { source: session, detect }, variant } =
        identity;
    let sources =
        [("tenant", tenant.as_ref()), ("session", Some(session)), ("variant", variant.as_ref())];
    let mut sources: Vec<String> = sources
        .into_iter()
        .filter_map(|(name, source)| {
            let IdentitySource { headers, hash } = source?;
            let headers: Vec<&str> = headers.iter().map(|header| header.as_str()).collect();
            let hash = if *hash { ", hashed" } else { "" };
            (!headers.is_empty()).then(|| format!("{name} by {}{hash}", headers.join(" or ")))
        })
        .collect();
    if *detect {
        let hash = if session.hash { ", hashed" } else { "" };
        sources.push(format!("sessions of coding agents{hash}"));
    }
    if tenant.is_none() {
        sources.push("nothing per tenant".to_owned());
    }
    format!("identity: {}", sources.join("; "))
}

fn prices(config: &Config) -> String {
    let files: Vec<String> =
        config.file.cost.prices.iter().map(|file| file.value.0.display().to_string()).collect();
    if files.is_empty() {
        return "prices: none, so no cost is recorded".to_owned();
    }
    let Costs { prices, .. } = &config.costs;
    let files = files.join(", ");
    match (prices.models.len(), prices.rentals.len()) {
        (0, 0) => format!("prices: {files}, not read"),
        (models, rentals) => {
            format!("prices: {files}, {models} of models and {rentals} of hardware")
        }
    }
}

fn budget(budget: &Budget) -> String {
    let Budget { name, tenant, route, model, allowance, window } = budget;
    let allowance = match allowance {
        BudgetLimit::Money { amount, currency } => format!("{amount} {currency}"),
        BudgetLimit::Tokens(tokens) => format!("{tokens} tokens"),
    };
    let filters = [
        tenant.as_ref().map(|tenant| format!("tenant {tenant}")),
        route.as_ref().map(|route| format!("route {route}")),
        model.as_ref().map(|model| format!("model {model}")),
    ];
    let filters: Vec<String> = filters.into_iter().flatten().collect();
    let filters = if filters.is_empty() { "all calls".to_owned() } else { filters.join(", ") };
    format!("budget {name}: {allowance} in {window} for {filters}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn args(file: PathBuf, print: bool, no_files: bool) -> CheckArgs {
        let (models, tenants, variants) = (8, 10, 2);
        CheckArgs { file, print, no_files, connect: false, models, tenants, variants }
    }

    /// Returns the numbers of series before the first call and after the expected calls.
    fn series(text: &str) -> [usize; 2] {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("upstreams: {{a: {{url: 'http://a'}}}}\n{text}");
        let message = check_text(folder.path(), &text, false).unwrap();
        let line = message.lines().find(|line| line.contains("/metrics, profile")).unwrap();
        let mut numbers = line.split("about ").skip(1).map(|rest| {
            let number = rest.split(' ').next().unwrap();
            number.parse::<usize>().unwrap()
        });
        [numbers.next().unwrap(), numbers.next().unwrap()]
    }

    #[test]
    fn estimates_the_series_of_the_expected_traffic() {
        let identity = "identity: {tenant: {headers: [x-t]}, variant: {headers: [x-v]}}\n";
        let [before, alone] = series("");
        let [_, full] = series(identity);
        let [_, lean] = series(&format!("{identity}telemetry: {{profile: lean}}\n"));
        let [_, limited] = series(&format!("{identity}cardinality_limits: {{models: 1}}\n"));
        assert!(before > 200 && alone > before + 8 * 700, "{before} {alone}");
        assert!(full > 3 * alone, "tenants and variants multiply: {full} {alone}");
        assert!(lean * 10 < full, "{lean} {full}");
        assert!(limited < full, "{limited} {full}");
    }

    fn checked(name: &str, print: bool) -> Result<String, ConfigErrors> {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name);
        let args = args(file, print, false);
        check(&args).map(|(_, text)| text)
    }

    fn check_text(folder: &Path, text: &str, no_files: bool) -> Result<String, String> {
        let file = folder.join("c.yaml");
        fs::write(&file, text).unwrap();
        let args = args(file, false, no_files);
        check(&args).map(|(_, text)| text).map_err(|errors| errors.to_string())
    }

    #[test]
    fn lists_tenants_prices_and_budgets() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(
            folder.path().join("p.yaml"),
            "currency: USD\nmodels: [{model: gpt, input: 1}]\n",
        )
        .unwrap();
        let text = "upstreams: {a: {url: \"http://a\"}}\n\
                    identity: {tenant: {headers: [x-team, authorization], hash: true}}\n\
                    cost:\n  prices: p.yaml\n  budgets:\n  \
                    - {name: month, tenant: acme, money: {amount: 500, currency: USD}, window: 30d}\n  \
                    - {name: all, tokens: 1000000}\n";
        let message = check_text(folder.path(), text, false).unwrap();
        for line in [
            "\n  identity: tenant by x-team or authorization, hashed; sessions of coding agents\n",
            "p.yaml, 1 of models and 0 of hardware\n",
            "\n  budget month: 500 USD in 30d for tenant acme\n",
            "\n  budget all: 1000000 tokens in 30d for all calls\n",
        ] {
            assert!(message.contains(line), "{line}: {message}");
        }
        let message = check_text(folder.path(), text, true).unwrap();
        assert!(message.contains("p.yaml, not read\n"), "{message}");
        let none = checked("examples/minimal.yaml", false).unwrap();
        assert!(
            none.contains("\n  identity: sessions of coding agents; nothing per tenant\n")
                && none.contains("\n  prices: none, "),
            "{none}"
        );
    }

    #[test]
    fn warns_about_windows_for_which_the_default_rules_have_no_budget() {
        let folder = tempfile::tempdir().unwrap();
        let slo = |name, window| {
            format!("{{name: {name}, sli: availability, target: 99%, window: {window}}}")
        };
        let slos = [slo("a", "7d"), slo("b", "30d"), slo("c", "7d")].join(", ");
        let text = format!("version: 1\nupstreams: {{a: {{url: 'http://a'}}}}\nslos: [{slos}]\n");
        let message = check_text(folder.path(), &text, false).unwrap();
        let warnings: Vec<&str> = message.lines().filter(|it| it.contains(": slos: ")).collect();
        let [warning] = warnings.as_slice() else { panic!("{message}") };
        assert!(warning.contains("no error budget over 7d (a, c); generate rules"), "{warning}");
    }

    #[test]
    fn reports_folders_that_do_not_exist() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display();
        let text = format!(
            "upstreams: {{a: {{url: 'http://a'}}}}\nroutes: [{{upstream: a, observe: false}}]\n\
             slos: [{{name: late, sli: ttft, threshold: 2s, target: 99.9%}}]\n\
             request_log: {{path: {at}/none/r.jsonl}}\nslo_state: {{path: {at}/none/slo.json}}\n"
        );
        let message = check_text(folder.path(), &text, false).unwrap_err();
        for key in ["4:21: request_log.path", "5:19: slo_state.path"] {
            let expected = format!("{key}: the folder {at}/none does not exist; create it");
            assert!(message.contains(&expected), "{expected}: {message}");
        }
        let summary = check_text(folder.path(), &text, true).unwrap();
        for line in [
            "(a:80), not observed\n".to_owned(),
            "\n  1 SLOs: late 99.9% in 30d\n".to_owned(),
            format!("\n  state of SLOs: {at}/none/slo.json\n"),
        ] {
            assert!(summary.contains(&line), "{line}: {summary}");
        }
    }

    #[cfg(feature = "tools")]
    #[test]
    fn the_rules_in_the_repository_have_one_window() {
        let windows = config::alert_values(None).unwrap().slo.windows;
        let length = windows.iter().map(|window| u128::from(window.millis()));
        assert_eq!(length.collect::<Vec<_>>(), [WINDOW_OF_RULES.as_millis()]);
    }

    /// Writes a certificate of the given years and its key.
    fn write_certificate(folder: &Path, name: &str, years: [i32; 2]) {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        [params.not_before, params.not_after] = years.map(|year| rcgen::date_time_ymd(year, 1, 1));
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    /// Files of a certificate, a key, an authority and a token, of which one is wrong, and a part of the error.
    const UNUSABLE: [(&str, &str, &str, &str, &str); 10] = [
        (
            "none.pem",
            "good.key",
            "good.pem",
            "",
            "2:57: listeners[0].tls.certificate: cannot read FOLDER/none.pem",
        ),
        ("good.pem", "none.key", "good.pem", "", "listeners[0].tls.key: cannot read"),
        (
            "good.key",
            "good.pem",
            "good.pem",
            "",
            "tls.certificate: FOLDER/good.key contains a private key but no certificate",
        ),
        ("good.pem", "good.pem", "good.pem", "", "contains a certificate but no private key"),
        (
            "good.pem",
            "other.key",
            "good.pem",
            "",
            "listeners[0].tls.key: the certificate FOLDER/good.pem and the key FOLDER/other.key cannot be used",
        ),
        (
            "old.pem",
            "old.key",
            "good.pem",
            "",
            "tls.certificate: FOLDER/old.pem: expired at 2001-01-01T00:00:00Z; renew it",
        ),
        ("early.pem", "early.key", "good.pem", "", "not valid before 3999-01-01"),
        (
            "good.pem",
            "good.key",
            "good.key",
            "",
            "upstreams.a.ca_file: FOLDER/good.key: the file contains no certificate",
        ),
        (
            "good.pem",
            "good.key",
            "none.pem",
            "",
            "upstreams.a.ca_file: FOLDER/none.pem: cannot read the file",
        ),
        (
            "good.pem",
            "good.key",
            "good.pem",
            "token",
            "admin.token_file: FOLDER/token holds no valid bearer token",
        ),
    ];

    #[test]
    fn reports_files_that_the_proxy_could_not_use() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, years| write_certificate(folder.path(), name, years);
        write("good", [2020, 4000]);
        write("other", [2020, 4000]);
        write("old", [2000, 2001]);
        write("early", [3999, 4000]);
        fs::write(folder.path().join("token"), "two words").unwrap();
        for (certificate, key, ca, token, expected) in UNUSABLE {
            let admin = if token.is_empty() {
                String::new()
            } else {
                format!("admin: {{token_file: {token}}}\n")
            };
            let text = format!(
                "upstreams: {{a: {{url: \"https://a\", ca_file: {ca}}}}}\n\
                 listeners: [{{address: \"127.0.0.1:1\", tls: {{certificate: {certificate}, key: {key}}}}}]\n{admin}"
            );
            let message = check_text(folder.path(), &text, false).unwrap_err();
            let expected = expected.replace("FOLDER", folder.path().to_str().unwrap());
            assert!(message.contains(&expected), "{expected}: {message}");
            assert!(!message.contains("two words") && message.lines().count() == 1, "{message}");
            assert!(check_text(folder.path(), &text, true).is_ok(), "{text}");
        }
        let text = "upstreams: {a: {url: \"https://a\", ca_file: old.pem}}\n";
        let message = check_text(folder.path(), text, false).unwrap();
        assert!(message.contains("old.pem: 1 of 1 certificates have expired\n"), "{message}");
    }

    #[test]
    fn reports_a_valid_file_and_prints_it_on_request() {
        let message = checked("examples/minimal.yaml", false).unwrap();
        assert!(
            message.contains("minimal.yaml: valid\n  listens on 127.0.0.1:4000, for at most 9000 "),
            "{message}"
        );
        assert!(
            message.contains("route openai: any host, / → upstream openai (api.openai.com:443)"),
            "{message}"
        );
        for line in [
            "\n  limits: 96MiB of memory for observation, 30s for open streams at shutdown\n",
            "\n  telemetry: /metrics of the admin port; OTLP only if OTEL_EXPORTER_OTLP_ENDPOINT is set\n",
            "\n  request log: off\n",
        ] {
            assert!(message.contains(line), "{message}");
        }
        let printed = checked("examples/minimal.yaml", true).unwrap();
        assert!(printed.contains("url: https://api.openai.com"), "{printed}");
    }

    #[test]
    fn reports_errors_with_the_file_name() {
        let message = checked("Cargo.toml", true).unwrap_err().to_string();
        assert!(message.contains("Cargo.toml:2:1: not valid YAML"), "{message}");
    }
}
