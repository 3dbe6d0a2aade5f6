//! A resolved configuration, written as a file that amounts to the same.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::deserialize::Field;
use super::resolve::drift::{FIRST, OFF, YESTERDAY};
use super::resolve::request_log::STDOUT;
use super::value::{Address, Amount, Currency, Length, Limit, Share, Size, Socket, Threshold};
use super::{Config, raw};
use crate::forward::{self, identity};
use crate::route;
use crate::scrape;
use tokengauge_llm::content::{self, Policy};
use tokengauge_llm::count::{Assigned, Tokenisers};
use tokengauge_measure::cost::{Allowance, Budget};
use tokengauge_measure::drift::{self, Baseline};
use tokengauge_measure::engine::warm;
use tokengauge_measure::slo::{Exclusion, Indicator, Objective, Scope};
use tokengauge_telemetry::request_log::{self, Destination};
use tokengauge_types::label::{self, Pattern};
use tokengauge_types::url::{Page, Url};

impl Config {
    /// Everything, defaults included, as YAML; secrets are redacted.
    pub fn to_yaml(&self) -> String {
        // Of plain structs, maps, texts and numbers nothing can fail to be written.
        serde_saphyr::to_string(&self.file()).unwrap_or_default()
    }

    /// 16 hexadecimal digits of the SHA-256 of [`to_yaml`](Self::to_yaml): equal settings have equal ones.
    pub fn fingerprint(&self) -> String {
        let digest = ring::digest::digest(&ring::digest::SHA256, self.to_yaml().as_bytes());
        let digits = digest.as_ref().iter().take(8);
        digits.map(|byte| format!("{byte:02x}")).collect()
    }

    fn file(&self) -> raw::File {
        let upstream = |upstream: &forward::Config| {
            let name = upstream.name.to_string();
            let mut written = self::upstream(upstream);
            let mut scrapes = self.scrapes.iter();
            let scrape = scrapes.find(|scrape| scrape.upstream == upstream.name);
            written.metrics = scrape.map(|scrape| metrics(scrape, upstream)).into();
            let warm = self.warm.iter().find(|(name, _)| *name == upstream.name);
            written.warm = warm.map(|(_, config)| self::warm(config)).into();
            (name, Field::of(written))
        };
        raw::File {
            version: Field::of(1),
            listeners: list(&self.listeners, listener),
            admin: Field::of(raw::Admin {
                address: Field::of(Socket(self.admin.address)),
                token_file: self.admin.token_file.clone().into(),
            }),
            upstreams: Field::of(self.upstreams.iter().map(upstream).collect()),
            routes: list(&self.routes, |config| route(config, &self.contents)),
            objectives: list(&self.objectives, objective),
            slo_state: self
                .slo_state
                .as_ref()
                .map(|path| raw::SloState { path: Field::of(path.clone()) })
                .into(),
            tokenizers: tokenizers(&self.tokenizers),
            cost: cost(self),
            identity: identity(&self.identity),
            labels: Field::of(labels(&self.labels)),
            export: Field::of(self.raw_export()),
            limits: Field::of(raw::Limits {
                observer_memory: Field::of(Size(self.observer_memory)),
            }),
            drain: Field::of(Length(self.drain)),
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

    fn raw_export(&self) -> raw::Export {
        let export = &self.export;
        let header = |(name, value): &(String, super::Secret)| {
            (name.clone(), Field::of(raw::HeaderValue(value.clone())))
        };
        let headers =
            (!export.headers.is_empty()).then(|| export.headers.iter().map(header).collect());
        raw::Export {
            endpoint: export.endpoint.as_ref().and_then(|url| url.parse::<Url>().ok()).into(),
            protocol: export.protocol.into(),
            interval: export.interval.map(Length).into(),
            headers: headers.into(),
            genai_names: export.genai_names.into(),
        }
    }
}

fn list<T, R>(items: &[T], write: impl Fn(&T) -> R) -> Field<Vec<Field<R>>> {
    Field::of(items.iter().map(|item| Field::of(write(item))).collect())
}

fn listener(listener: &tokengauge_listen::Config) -> raw::Listener {
    raw::Listener {
        address: Field::of(Address(listener.address.clone())),
        tls: listener
            .tls
            .as_ref()
            .map(|tls| raw::Tls {
                certificate: Field::of(tls.certificate.clone()),
                key: Field::of(tls.key.clone()),
            })
            .into(),
        max_connections: Field::of(listener.max_connections),
        head_timeout: Field::of(Length(listener.head_timeout)),
    }
}

fn upstream(upstream: &forward::Config) -> raw::Upstream {
    let timeouts = upstream.timeouts;
    raw::Upstream {
        url: Field::of(Url {
            tls: upstream.tls,
            host: upstream.host.clone(),
            port: upstream.port,
            base_path: upstream.base_path.clone(),
        }),
        protocol: Field::of(match upstream.protocol {
            forward::Protocol::Http1 => raw::Protocol::Http1,
            forward::Protocol::Http2 => raw::Protocol::Http2,
        }),
        keep_host: Field::of(upstream.keep_host),
        ca_file: upstream.ca_file.clone().into(),
        timeouts: Field::of(raw::Timeouts {
            connect: Field::of(Limit(timeouts.connect)),
            head: Field::of(Limit(timeouts.head)),
            idle: Field::of(Limit(timeouts.idle)),
            total: Field::of(Limit(timeouts.total)),
        }),
        pool: Field::of(raw::Pool {
            idle: Field::of(Length(upstream.pool_idle)),
            size: Field::of(upstream.pool_size),
        }),
        metrics: Field::Absent,
        warm: Field::Absent,
    }
}

fn metrics(scrape: &scrape::Config, upstream: &forward::Config) -> raw::Metrics {
    let to = &scrape.to;
    let url =
        Url { tls: to.tls, host: to.host.clone(), port: to.port, base_path: to.base_path.clone() };
    let same = (to.tls, &to.host, to.port) == (upstream.tls, &upstream.host, upstream.port);
    raw::Metrics {
        url: Field::of(if same && !url.base_path.is_empty() {
            Page::Path(url.base_path)
        } else {
            Page::Url(url)
        }),
        engine: Field::of(raw::Engine::of(scrape.engine)),
        interval: Field::of(Length(scrape.interval)),
        timeout: Field::of(Length(scrape.timeout)),
    }
}

fn warm(config: &warm::Config) -> raw::Warm {
    let warm::Config { idle, exchanges, young, load } = config;
    raw::Warm {
        idle: Field::of(Length(*idle)),
        exchanges: Field::of(*exchanges),
        young: Field::of(Length(*young)),
        load: Field::of(Length(*load)),
    }
}

fn route(route: &route::Config, contents: &content::Routes) -> raw::Route {
    let facts = &route.facts;
    let prefix = Some(&route.prefix).filter(|prefix| !prefix.is_empty());
    let matched = (route.host.is_some() || prefix.is_some())
        .then(|| raw::Match { host: route.host.clone().into(), prefix: prefix.cloned().into() });
    raw::Route {
        name: Field::of(facts.name.to_string()),
        r#match: matched.into(),
        upstream: Field::of(route.upstream.to_string()),
        strip: Field::of(route.strip),
        dialect: facts.dialect.as_ref().map(ToString::to_string).into(),
        provider: facts.provider.as_ref().map(ToString::to_string).into(),
        vantage: Field::of(facts.vantage),
        trace: Field::of(route.trace),
        stall_after: Field::of(Length(facts.stall_after)),
        hung_after: Field::of(Length(facts.hung_after)),
        admission: route.admission.map(admission).into(),
        content: contents.of(&facts.name).map(|policy| content(policy)).into(),
    }
}

fn admission(limits: route::ConcurrencyLimit) -> raw::Admission {
    let route::ConcurrencyLimit { max_in_flight, max_queue: queue, queue_timeout: wait } = limits;
    raw::Admission {
        max_in_flight: Field::of(max_in_flight),
        queue: Field::of(queue),
        wait: Field::of(Length(wait)),
    }
}

fn content(policy: &Policy) -> raw::Content {
    raw::Content {
        capture: Field::of(true),
        max_bytes: Field::of(Size(policy.max_bytes)),
        redact: list(policy.redact.entries(), String::clone),
    }
}

fn objective(objective: &Objective) -> raw::Objective {
    let indicator = objective.indicator;
    let time = indicator.longest().map(|time| Threshold(Length(time).to_string()));
    let rate = indicator.lowest().map(|rate| Threshold(rate.to_string()));
    let (indicator, min_streams) = match indicator {
        Indicator::Availability => (raw::Indicator::Availability, None),
        Indicator::TimeToFirstToken(_) => (raw::Indicator::Ttft, None),
        Indicator::FirstVisible(_) => (raw::Indicator::FirstVisible, None),
        Indicator::OutputRate(_) => (raw::Indicator::OutputRate, None),
        Indicator::TotalRate(_) => (raw::Indicator::TotalRate, None),
        Indicator::StallFree => (raw::Indicator::StallFree, None),
        Indicator::InterToken(_) => (raw::Indicator::InterToken, None),
        Indicator::Duration(_) => (raw::Indicator::Duration, None),
        Indicator::TokensAboveRate(_) => (raw::Indicator::TokensAboveRate, None),
        Indicator::SystemRate { min_streams, .. } => {
            (raw::Indicator::SystemRate, Some(min_streams))
        }
    };
    let counting = &objective.counting;
    let exclude = |exclusion: &Exclusion| match exclusion {
        Exclusion::RateLimited => raw::Exclusion::RateLimited,
        Exclusion::Overload => raw::Exclusion::Overload,
        Exclusion::Shutdown => raw::Exclusion::Shutdown,
        Exclusion::Warming => raw::Exclusion::Warming,
    };
    raw::Objective {
        // What it amounted to is what is printed.
        preset: Field::Absent,
        name: Field::of(objective.name.to_string()),
        indicator: Field::of(indicator),
        threshold: time.or(rate).into(),
        min_streams: min_streams.map(u64::from).into(),
        min_output_tokens: counting.min_output_tokens.map(u64::from).into(),
        target: Field::of(Share(objective.target)),
        window: Field::of(Length(objective.window)),
        warmup: Field::of(Length(counting.warmup)),
        exclude: list(&counting.exclude, exclude),
        scope: scope(&objective.scope),
    }
}

fn scope(scope: &Scope) -> Field<raw::Scope> {
    if *scope == Scope::default() {
        return Field::Absent;
    }
    let Scope { route, model, tenant, operation, stream } = scope;
    Field::of(raw::Scope {
        route: route.as_ref().map(ToString::to_string).into(),
        model: model.clone().into(),
        tenant: tenant.clone().into(),
        operation: operation.map(|it| it.as_str().to_owned()).into(),
        stream: (*stream).into(),
    })
}

fn tokenizers(tokenisers: &Tokenisers) -> Field<BTreeMap<String, Field<PathBuf>>> {
    let entry = |assigned: &Assigned| (assigned.models.clone(), Field::of(assigned.file.clone()));
    let entries: BTreeMap<_, _> = tokenisers.assigned().map(entry).collect();
    (!entries.is_empty()).then_some(entries).into()
}

fn cost(config: &Config) -> Field<raw::Cost> {
    let budget = |budget: &Budget| {
        let pattern = |pattern: &Option<Pattern>| pattern.as_ref().map(ToString::to_string);
        let (money, tokens) = match &budget.allowance {
            Allowance::Tokens(tokens) => (None, Some(whole(*tokens))),
            Allowance::Money { amount, currency } => {
                let money = raw::Money {
                    amount: Field::of(Amount(*amount)),
                    currency: Field::of(Currency(currency.to_string())),
                };
                (Some(money), None)
            }
        };
        raw::Budget {
            name: Field::of(budget.name.to_string()),
            tenant: pattern(&budget.tenant).into(),
            route: budget.route.as_ref().map(ToString::to_string).into(),
            model: pattern(&budget.model).into(),
            money: money.into(),
            tokens: tokens.into(),
            window: Field::of(Length(budget.window)),
        }
    };
    let budgets = &config.costs.budgets;
    let cost = (config.prices.is_some() || !budgets.is_empty()).then(|| raw::Cost {
        prices: config.prices.clone().into(),
        budgets: list(budgets, budget),
    });
    cost.into()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it was read as a whole number"
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

fn request_log(config: &request_log::Config) -> raw::RequestLog {
    let path = match &config.place {
        Destination::Stdout => PathBuf::from(STDOUT),
        Destination::File(path) => path.clone(),
    };
    raw::RequestLog {
        path: Field::of(path),
        rotate: Field::of(raw::Rotation {
            size: Field::of(Size(usize::try_from(config.rotate.size).unwrap_or(usize::MAX))),
            keep: Field::of(config.rotate.keep),
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
    raw::Drift { baseline: Field::of(baseline), exchanges: Field::of(config.exchanges) }
}

fn labels(limits: &label::Limits) -> raw::Labels {
    raw::Labels {
        models: Field::of(limits.models),
        providers: Field::of(limits.providers),
        finish_reasons: Field::of(limits.finish_reasons),
        error_types: Field::of(limits.error_types),
        tenants: Field::of(limits.tenants),
        variants: Field::of(limits.variants),
        length_bands: Field::of(limits.length_bands),
    }
}
