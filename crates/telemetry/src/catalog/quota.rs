//! Metrics of providers' rate limits, and of retries.

use crate::catalog::ROW;
use crate::catalog::attributes::{
    Attribute, LANE, LIMITED, PROVIDER, REQUEST_MODEL, ROUTE, SIGN, VANTAGE,
};
use crate::catalog::{Kind, Metric};

/// Rate limits arrive in response headers, so they have the same attributes as throughput.
const FLOW: &[Attribute] = &[PROVIDER, REQUEST_MODEL, ROUTE, VANTAGE];

pub static QUOTA_REQUESTS_REMAINING: Metric = Metric {
    name: "tokengauge.quota.requests.remaining",
    kind: Kind::Gauge,
    unit: "{request}",
    description: "Remaining requests of the account, from the rate-limit headers of the latest response. Exported until the reset, for one to five minutes. Absent without such headers.",
    attributes: &[FLOW],
    ..ROW
};

pub static QUOTA_REQUESTS_LIMIT: Metric = Metric {
    name: "tokengauge.quota.requests.limit",
    kind: Kind::Gauge,
    unit: "{request}",
    description: "Request limit of the account in the provider's window. Exported as above.",
    attributes: &[FLOW],
    ..ROW
};

pub static QUOTA_TOKENS_REMAINING: Metric = Metric {
    name: "tokengauge.quota.tokens.remaining",
    kind: Kind::Gauge,
    unit: "{token}",
    description: "Remaining tokens of the account. Exported as above. Some providers limit input and output separately.",
    attributes: &[FLOW, &[LIMITED]],
    combinations: 3,
    ..ROW
};

pub static QUOTA_TOKENS_LIMIT: Metric = Metric {
    name: "tokengauge.quota.tokens.limit",
    kind: Kind::Gauge,
    unit: "{token}",
    description: "Token limit of the account in the provider's window. Exported as above.",
    attributes: &[FLOW, &[LIMITED]],
    combinations: 3,
    ..ROW
};

pub static QUOTA_RESET: Metric = Metric {
    name: "tokengauge.quota.reset",
    kind: Kind::Gauge,
    unit: "s",
    description: "Time until the limit is fully restored, as the provider reports. Absent afterwards.",
    attributes: &[FLOW, &[LIMITED]],
    combinations: 4,
    ..ROW
};

pub static CLIENT_RETRIES: Metric = Metric {
    name: "tokengauge.client.retries",
    unit: "{request}",
    description: "Requests that repeat an earlier one of the last ten minutes, including plain HTTP. Each is counted once, when it starts, by the first signal that is present.",
    attributes: &[LANE, &[SIGN]],
    combinations: 3,
    ..ROW
};
