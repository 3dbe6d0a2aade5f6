//! Alerts on tokengauge itself: missing telemetry, failed exports, unobserved traffic and parse errors.

use crate::alerts::promql::Template;
use crate::alerts::rule::{Alert, Group, Severity};
use crate::alerts::span::Span;
use crate::alerts::values::{Text, Values};

const DASHBOARD: &str = "tokengauge-health";

pub(super) fn groups(values: &Values) -> Vec<Group> {
    let alerts = telemetry_absent(values).into_iter().chain([
        export_failing(values),
        observer_dropping(values),
        anomalies(values),
        memory_near_limit(values),
    ]);
    vec![Group {
        name: "tokengauge-health",
        interval: Span::seconds(30),
        rules: alerts.map(Into::into).collect(),
    }]
}

/// Fires for a job without telemetry, and for a target whose scrapes fail. Over OTLP, the loss of one process of
/// several cannot be distinguished from an intended shutdown.
fn telemetry_absent(values: &Values) -> Option<Alert> {
    let window = values.health.absent_for;
    let side = |job: &Text| {
        Template::new(values).with("job", job).with("window", window).fill(
            r#"
                absent_over_time(tokengauge_self_build{<only>, job="<job>"}[<window>])
                or
                up{<only>, job="<job>"} == 0
                "#,
        )
    };
    let expr = values.jobs.iter().map(side).collect::<Vec<_>>().join("\nor\n");
    (!expr.is_empty()).then(|| Alert {
        name: "TokengaugeTelemetryAbsent",
        severity: Severity::Critical,
        expr,
        hold: Some(values.health.down_for),
        keep_firing_for: None,
        summary: "Nothing is heard of {{ $labels.job }}{{ with $labels.instance }} at {{ . }}{{ end }}".to_owned(),
        description: format!(
            "{{{{ with $labels.instance }}}}The target {{{{ . }}}} of the job {{{{ $labels.job }}}} could not be scraped for {}.\
             {{{{ else }}}}No process of the job {{{{ $labels.job }}}} has told anything for {window}.{{{{ end }}}} Whether it \
             serves is not known: no other alert on it can fire.",
            values.health.down_for
        ),
        dashboard: DASHBOARD,
    })
}

/// Evaluates each process separately, because exports fail per process. If a process pushes its metrics and the push
/// fails, the failure is visible only after recovery, or through a scrape.
fn export_failing(values: &Values) -> Alert {
    let health = &values.health;
    let expr = Template::new(values)
        .with("share", health.export_failed_share)
        .with("least", health.export_min_failed)
        .with("dropped", health.export_dropped)
        .fill(
            r#"
            (
              sum by (<scope>, instance, tokengauge_signal) (
                increase(tokengauge_self_export_requests_total{<only>, tokengauge_result="failed"}[10m])
              )
              /
              (
                sum by (<scope>, instance, tokengauge_signal) (
                  increase(tokengauge_self_export_requests_total{<only>}[10m])
                ) > 0
              )
              >= <share>
              and
              sum by (<scope>, instance, tokengauge_signal) (
                increase(tokengauge_self_export_requests_total{<only>, tokengauge_result="failed"}[10m])
              ) >= <least>
            )
            or
            sum by (<scope>, instance, tokengauge_signal) (
              increase(tokengauge_self_export_dropped_total{<only>}[10m])
            ) >= <dropped>
            "#,
        );
    Alert {
        name: "TokengaugeExportFailing",
        severity: Severity::Warning,
        expr,
        hold: Some(Span::minutes(5)),
        keep_firing_for: Some(Span::minutes(10)),
        summary: "{{ $labels.instance }} loses {{ $labels.tokengauge_signal }}".to_owned(),
        description: format!(
            "In 10 min {{{{ $labels.instance }}}} (job {{{{ $labels.job }}}}) failed to send {{{{ $labels.tokengauge_signal }}}} in \
             {} of its requests or more, or dropped {} items or more: {{{{ if le $value 1.0 }}}}{{{{ $value | humanizePercentage }}}} \
             of requests failed{{{{ else }}}}{{{{ $value | printf \"%.0f\" }}}} items were dropped{{{{ end }}}}.",
            health.export_failed_share.percent(),
            health.export_dropped
        ),
        dashboard: DASHBOARD,
    }
}

fn observer_dropping(values: &Values) -> Alert {
    let health = &values.health;
    let expr = Template::new(values)
        .with("share", health.unobserved_share)
        .with("least", health.min_unobserved)
        .fill(
            r#"
            sum by (<scope>, instance) (increase(tokengauge_self_observer_unobserved_total{<only>}[10m]))
            /
            (sum by (<scope>, instance) (increase(tokengauge_requests_started_total{<only>}[10m])) > 0)
            >= <share>
            and
            sum by (<scope>, instance) (increase(tokengauge_self_observer_unobserved_total{<only>}[10m])) >= <least>
            "#,
        );
    Alert {
        name: "TokengaugeObserverDropping",
        severity: Severity::Warning,
        expr,
        hold: Some(Span::minutes(5)),
        keep_firing_for: Some(Span::minutes(10)),
        summary: "{{ $labels.instance }} does not see all that it forwards".to_owned(),
        description:
            "Of the exchanges of 10 min {{ $value | humanizePercentage }} passed {{ $labels.instance }} (job {{ $labels.job }}) \
             unobserved in part. Clients got every byte, but tokens and rates are too low and verdicts are missing."
                .to_owned(),
        dashboard: DASHBOARD,
    }
}

/// A single panic fires, because a panic is a bug in tokengauge. The counter first appears with the panic, so its first
/// value is not an increase.
fn anomalies(values: &Values) -> Alert {
    let health = &values.health;
    let expr = Template::new(values)
        .with("share", health.anomaly_share)
        .with("least", health.min_anomalies)
        .fill(
            r#"
            (
              sum by (<scope>, tokengauge_anomaly) (increase(tokengauge_self_anomalies_total{<only>}[15m]))
              >= <least>
              and on (<scope>)
              sum by (<scope>) (increase(tokengauge_self_anomalies_total{<only>}[15m]))
              >= <share> * sum by (<scope>) (increase(tokengauge_requests_started_total{<only>}[15m]))
            )
            or
            sum by (<scope>, tokengauge_anomaly) (
              (
                tokengauge_self_anomalies_total{<only>, tokengauge_anomaly="panic"}
                unless tokengauge_self_anomalies_total{<only>, tokengauge_anomaly="panic"} offset 15m
              )
              or increase(tokengauge_self_anomalies_total{<only>, tokengauge_anomaly="panic"}[15m])
            ) > 0
            "#,
        );
    Alert {
        name: "TokengaugeAnomalies",
        severity: Severity::Warning,
        expr,
        hold: Some(Span::minutes(2)),
        keep_firing_for: Some(Span::minutes(15)),
        summary:
            "{{ $labels.job }} meets what it does not understand: {{ $labels.tokengauge_anomaly }}"
                .to_owned(),
        description: format!(
            "The job {{{{ $labels.job }}}} met {{{{ $value | printf \"%.0f\" }}}} anomalies of the kind \
             {{{{ $labels.tokengauge_anomaly }}}} in 15 min, and anomalies in {} of exchanges or more (of the kind panic one is \
             enough). The bytes went through, but what was counted of them may be incomplete.",
            health.anomaly_share.percent()
        ),
        dashboard: DASHBOARD,
    }
}

fn memory_near_limit(values: &Values) -> Alert {
    let expr = Template::new(values).with("share", values.health.memory_share).fill(
        r#"
            max by (<scope>, instance) (process_memory_usage_bytes{<only>})
            /
            (max by (<scope>, instance) (tokengauge_self_memory_limit_bytes{<only>}) > 0)
            >= <share>
            "#,
    );
    Alert {
        name: "TokengaugeMemoryNearLimit",
        severity: Severity::Warning,
        expr,
        hold: Some(Span::minutes(10)),
        keep_firing_for: Some(Span::minutes(10)),
        summary: "{{ $labels.instance }} uses {{ $value | humanizePercentage }} of the memory that it may have".to_owned(),
        description:
            "The resident memory of {{ $labels.instance }} (job {{ $labels.job }}) is {{ $value | humanizePercentage }} of its \
             container's limit. Beyond the limit the kernel kills it, and with it every stream that it carries."
                .to_owned(),
        dashboard: DASHBOARD,
    }
}
