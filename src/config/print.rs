//! Prints a resolved configuration as a file that resolves to the same configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::deserialize::Field;
use super::resolve::STDOUT;
use super::resolve::drift::{FIRST, OFF, YESTERDAY};
use super::value::{
    Address, ByteSize, Currency, DurationValue, EngineChoice, ListenAddr, MoneyAmount, Ratio,
    ThresholdValue, TimeLimit,
};
use super::{Admin, Config, ExportOverrides, Secret, raw};
use crate::forward::{self, identity};
use crate::route;
use crate::scrape;
use tokengauge_llm::content::{CapturePolicies, CapturePolicy};
use tokengauge_llm::count::{TokenizerAssignment, Tokenizers};
use tokengauge_measure::cost::{Budget, BudgetLimit};
use tokengauge_measure::drift::{self, Baseline};
use tokengauge_measure::engine::warm;
use tokengauge_measure::slo::{Objective, Scope, Sli};
use tokengauge_telemetry::request_log::{self, Destination};
use tokengauge_types::label::{self, GlobPattern};
use tokengauge_types::url::{PathOrUrl, Url};

impl Config {
    /// The configuration with all defaults, as YAML. Secrets are redacted.
    pub fn to_yaml(&self) -> String {
        // Writing plain structs, maps, strings and numbers cannot fail.
        serde_saphyr::to_string(&self.to_raw()).unwrap_or_default()
    }

    /// The first 16 hexadecimal digits of the SHA-256 of [`to_yaml`](Self::to_yaml). Equal for equal settings.
    pub fn fingerprint(&self) -> String {
        let digest = ring::digest::digest(&ring::digest::SHA256, self.to_yaml().as_bytes());
        let digits = digest.as_ref().iter().take(8);
        digits.map(|byte| format!("{byte:02x}")).collect()
    }

    fn to_raw(&self) -> raw::File {
        let slo_state = |path: &PathBuf| raw::SloState { path: Field::of(path.clone()) };
        raw::File {
            version: Field::of(1),
            listeners: list(&self.listeners, listener),
            admin: Field::of(admin(&self.admin)),
            upstreams: Field::of(
                self.upstreams.iter().map(|config| self.upstream(config)).collect(),
            ),
            routes: list(&self.routes, |config| route(config, &self.contents)),
            objectives: list(&self.objectives, objective),
            slo_state: self.slo_state.as_ref().map(slo_state).into(),
            tokenizers: tokenizers(&self.tokenizers),
            cost: self.cost(),
            identity: identity(&self.identity),
            labels: Field::of(labels(&self.labels)),
            export: Field::of(export(&self.export)),
            limits: Field::of(raw::Limits {
                observer_memory: Field::print(ByteSize(self.observer_memory)),
            }),
            drain: Field::print_duration(self.drain),
            vantage: Field::of(self.vantage),
            trace: Field::of(self.trace),
            propagators: list(&self.propagators, |propagator| *propagator),
            log: Field::of(raw::Log {
                level: Field::of(self.log.level),
                format: Field::of(self.log.format),
            }),
            request_log: self.request_log.as_ref().map(request_log).into(),
            drift: Field::of(drift(&self.drift)),
        }
    }

    fn upstream(&self, config: &forward::Config) -> (String, Field<raw::Upstream>) {
        let timeouts = config.timeouts;
        let scrape = self.scrapes.iter().find(|scrape| scrape.upstream == config.name);
        let warm = self.warm.iter().find(|(name, _)| *name == config.name);
        let upstream = raw::Upstream {
            url: Field::of(url(config)),
            protocol: Field::of(config.protocol),
            keep_host: Field::of(config.keep_host),
            ca_file: config.ca_file.clone().into(),
            timeouts: Field::of(raw::Timeouts {
                connect: Field::of(TimeLimit(timeouts.connect)),
                head: Field::of(TimeLimit(timeouts.head)),
                idle: Field::of(TimeLimit(timeouts.idle)),
                total: Field::of(TimeLimit(timeouts.total)),
            }),
            pool: Field::of(raw::Pool {
                idle: Field::print_duration(config.pool_idle),
                size: Field::print(config.pool_size),
            }),
            metrics: scrape.map(|scrape| metrics(scrape, config)).into(),
            warm: warm.map(|(_, config)| self::warm(config)).into(),
        };
        (config.name.to_string(), Field::of(upstream))
    }

    fn cost(&self) -> Field<raw::Cost> {
        let budgets = &self.costs.budgets;
        let cost = (self.prices.is_some() || !budgets.is_empty()).then(|| raw::Cost {
            prices: self.prices.clone().into(),
            budgets: list(budgets, budget),
        });
        cost.into()
    }
}

fn list<T, R>(items: &[T], print: impl Fn(&T) -> R) -> Field<Vec<Field<R>>> {
    Field::of(items.iter().map(|item| Field::of(print(item))).collect())
}

fn text(value: Option<&impl ToString>) -> Field<String> {
    value.map(ToString::to_string).into()
}

fn listener(listener: &tokengauge_listen::Config) -> raw::Listener {
    let tls = |tls: &tokengauge_listen::Tls| raw::Tls {
        certificate: Field::of(tls.certificate.clone()),
        key: Field::of(tls.key.clone()),
    };
    raw::Listener {
        address: Field::of(Address(listener.address.clone())),
        tls: listener.tls.as_ref().map(tls).into(),
        max_connections: Field::print(listener.max_connections),
        head_timeout: Field::print_duration(listener.head_timeout),
    }
}

fn admin(admin: &Admin) -> raw::Admin {
    raw::Admin {
        address: Field::of(ListenAddr(admin.address)),
        token_file: admin.token_file.clone().into(),
    }
}

fn url(server: &forward::Config) -> Url {
    Url {
        tls: server.tls,
        host: server.host.clone(),
        port: server.port,
        base_path: server.base_path.clone(),
    }
}

fn metrics(scrape: &scrape::Config, upstream: &forward::Config) -> raw::Metrics {
    let url = url(&scrape.to);
    let is_same_server =
        (url.tls, &url.host, url.port) == (upstream.tls, &upstream.host, upstream.port);
    raw::Metrics {
        url: Field::of(if is_same_server && !url.base_path.is_empty() {
            PathOrUrl::Path(url.base_path)
        } else {
            PathOrUrl::Url(url)
        }),
        engine: Field::of(EngineChoice(scrape.engine)),
        interval: Field::print_duration(scrape.interval),
        timeout: Field::print_duration(scrape.timeout),
    }
}

fn warm(config: &warm::Config) -> raw::Warm {
    let warm::Config { idle, exchanges, young, load } = config;
    raw::Warm {
        idle: Field::print_duration(*idle),
        exchanges: Field::print(*exchanges),
        young: Field::print_duration(*young),
        load: Field::print_duration(*load),
    }
}

fn route(route: &route::Config, contents: &CapturePolicies) -> raw::Route {
    let facts = &route.facts;
    let prefix = Some(&route.prefix).filter(|prefix| !prefix.is_empty());
    let conditions = (route.host.is_some() || prefix.is_some())
        .then(|| raw::Match { host: route.host.clone().into(), prefix: prefix.cloned().into() });
    raw::Route {
        name: Field::of(facts.name.to_string()),
        r#match: conditions.into(),
        upstream: Field::of(route.upstream.to_string()),
        strip: Field::of(route.strip),
        dialect: text(facts.dialect.as_ref()),
        provider: text(facts.provider.as_ref()),
        vantage: Field::of(facts.vantage),
        trace: Field::of(route.trace),
        stall_after: Field::print_duration(facts.stall_after),
        hung_after: Field::print_duration(facts.hung_after),
        admission: route.admission.map(admission).into(),
        content: contents.of(&facts.name).map(|policy| content(policy)).into(),
    }
}

fn admission(limits: route::ConcurrencyLimit) -> raw::Admission {
    let route::ConcurrencyLimit { max_in_flight, max_queue: queue, queue_timeout: wait } = limits;
    raw::Admission {
        max_in_flight: Field::print(max_in_flight),
        queue: Field::print(queue),
        wait: Field::print_duration(wait),
    }
}

fn content(policy: &CapturePolicy) -> raw::Content {
    raw::Content {
        capture: Field::of(true),
        max_bytes: Field::print(ByteSize(policy.max_bytes)),
        redact: list(policy.redact.entries(), String::clone),
    }
}

fn objective(objective: &Objective) -> raw::Objective {
    let indicator = objective.indicator;
    let time = indicator.longest().map(|time| ThresholdValue(DurationValue(time).to_string()));
    let rate = indicator.lowest().map(|rate| ThresholdValue(rate.to_string()));
    let (indicator, min_streams) = match indicator {
        Sli::Availability => (raw::Indicator::Availability, None),
        Sli::TimeToFirstToken(_) => (raw::Indicator::Ttft, None),
        Sli::FirstVisible(_) => (raw::Indicator::FirstVisible, None),
        Sli::OutputRate(_) => (raw::Indicator::OutputRate, None),
        Sli::TotalRate(_) => (raw::Indicator::TotalRate, None),
        Sli::StallFree => (raw::Indicator::StallFree, None),
        Sli::InterToken(_) => (raw::Indicator::InterToken, None),
        Sli::Duration(_) => (raw::Indicator::Duration, None),
        Sli::TokensAboveRate(_) => (raw::Indicator::TokensAboveRate, None),
        Sli::SystemRate { min_streams, .. } => (raw::Indicator::SystemRate, Some(min_streams)),
    };
    let counting = &objective.counting;
    raw::Objective {
        // The objectives of a preset are printed instead.
        preset: Field::Absent,
        name: Field::of(objective.name.to_string()),
        indicator: Field::of(indicator),
        threshold: time.or(rate).into(),
        min_streams: min_streams.map_or(Field::Absent, Field::print),
        min_output_tokens: counting.min_output_tokens.map_or(Field::Absent, Field::print),
        target: Field::of(Ratio(objective.target)),
        window: Field::print_duration(objective.window),
        warmup: Field::print_duration(counting.warmup),
        exclude: list(&counting.exclude, |exclusion| *exclusion),
        scope: scope(&objective.scope),
    }
}

fn scope(scope: &Scope) -> Field<raw::Scope> {
    if *scope == Scope::default() {
        return Field::Absent;
    }
    let Scope { route, model, tenant, operation, stream } = scope;
    Field::of(raw::Scope {
        route: text(route.as_ref()),
        model: model.clone().into(),
        tenant: tenant.clone().into(),
        operation: operation.map(|operation| operation.as_str().to_owned()).into(),
        stream: (*stream).into(),
    })
}

fn tokenizers(tokenizers: &Tokenizers) -> Field<BTreeMap<String, Field<PathBuf>>> {
    let entry = |assigned: &TokenizerAssignment| {
        (assigned.models.clone(), Field::of(assigned.file.clone()))
    };
    let entries: BTreeMap<_, _> = tokenizers.assigned().map(entry).collect();
    (!entries.is_empty()).then_some(entries).into()
}

fn budget(budget: &Budget) -> raw::Budget {
    let pattern = |pattern: &Option<GlobPattern>| text(pattern.as_ref());
    let (money, tokens) = match &budget.allowance {
        BudgetLimit::Tokens(tokens) => (Field::Absent, Field::of(whole(*tokens))),
        BudgetLimit::Money { amount, currency } => {
            let money = raw::Money {
                amount: Field::of(MoneyAmount(*amount)),
                currency: Field::of(Currency(currency.to_string())),
            };
            (Field::of(money), Field::Absent)
        }
    };
    raw::Budget {
        name: Field::of(budget.name.to_string()),
        tenant: pattern(&budget.tenant),
        route: text(budget.route.as_ref()),
        model: pattern(&budget.model),
        money,
        tokens,
        window: Field::print_duration(budget.window),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value was read as a whole number"
)]
const fn whole(tokens: f64) -> u64 {
    tokens as u64
}

fn identity(config: &identity::Config) -> Field<raw::Identity> {
    let source = |source: &Option<identity::Source>| -> Field<raw::Source> {
        let source = source.as_ref().map(|source| raw::Source {
            headers: list(&source.headers, ToString::to_string),
            hash: Field::of(source.hash),
        });
        source.into()
    };
    let identity = (*config != identity::Config::default()).then(|| raw::Identity {
        tenant: source(&config.tenant),
        session: source(&config.session),
        variant: source(&config.variant),
    });
    identity.into()
}

fn labels(limits: &label::CardinalityLimits) -> raw::Labels {
    raw::Labels {
        models: Field::print(limits.models),
        providers: Field::print(limits.providers),
        finish_reasons: Field::print(limits.finish_reasons),
        error_types: Field::print(limits.error_types),
        tenants: Field::print(limits.tenants),
        variants: Field::print(limits.variants),
        length_bands: Field::of(limits.length_bands),
    }
}

fn export(export: &ExportOverrides) -> raw::Export {
    let header = |(name, value): &(String, Secret)| {
        (name.clone(), Field::of(raw::HeaderValue(value.clone())))
    };
    let headers = (!export.headers.is_empty()).then(|| export.headers.iter().map(header).collect());
    raw::Export {
        endpoint: export.endpoint.as_ref().and_then(|url| url.parse::<Url>().ok()).into(),
        protocol: export.protocol.into(),
        interval: export.interval.map_or(Field::Absent, Field::print_duration),
        headers: headers.into(),
        genai_names: export.genai_names.into(),
    }
}

fn request_log(config: &request_log::Config) -> raw::RequestLog {
    let path = match &config.destination {
        Destination::Stdout => PathBuf::from(STDOUT),
        Destination::File(path) => path.clone(),
    };
    raw::RequestLog {
        path: Field::of(path),
        rotate: Field::of(raw::Rotation {
            size: Field::print(ByteSize(usize::try_from(config.rotate.size).unwrap_or(usize::MAX))),
            keep: Field::print(config.rotate.keep),
        }),
    }
}

fn drift(config: &drift::Config) -> raw::Drift {
    let baseline = match &config.baseline {
        Baseline::Off => OFF.into(),
        Baseline::First => FIRST.into(),
        Baseline::Yesterday => YESTERDAY.into(),
        Baseline::File { path, .. } => path.clone(),
    };
    raw::Drift { baseline: Field::of(baseline), exchanges: Field::print(config.exchanges) }
}
