//! Our own metrics of what callers ask too much of: vendors' limits, and retries.

use crate::catalog::ROW;
use crate::catalog::attributes::{
    Attribute, LANE, LIMITED, PROVIDER, REQUEST_MODEL, ROUTE, SIGN, VANTAGE,
};
use crate::catalog::{Kind, Metric};

/// Whose limits: told by the heads of answers, so known as throughput is.
const FLOW: &[Attribute] = &[PROVIDER, REQUEST_MODEL, ROUTE, VANTAGE];

pub static QUOTA_REQUESTS_REMAINING: Metric = Metric {
    name: "tokengauge.quota.requests.remaining",
    kind: Kind::Gauge,
    unit: "{request}",
    description: "Requests that the provider has left for the account, by the rate-limit headers of the latest answer. Told until its reset, but for a minute at least and five at most; absent where no answer says so.",
    attributes: &[FLOW],
    ..ROW
};

pub static QUOTA_REQUESTS_LIMIT: Metric = Metric {
    name: "tokengauge.quota.requests.limit",
    kind: Kind::Gauge,
    unit: "{request}",
    description: "All requests that the provider allows the account in its window, of which the remaining ones are left; as above.",
    attributes: &[FLOW],
    ..ROW
};

pub static QUOTA_TOKENS_REMAINING: Metric = Metric {
    name: "tokengauge.quota.tokens.remaining",
    kind: Kind::Gauge,
    unit: "{token}",
    description: "Tokens that the provider has left for the account; as above. Some limit input and output apart, some together.",
    attributes: &[FLOW, &[LIMITED]],
    combinations: 3,
    ..ROW
};

pub static QUOTA_TOKENS_LIMIT: Metric = Metric {
    name: "tokengauge.quota.tokens.limit",
    kind: Kind::Gauge,
    unit: "{token}",
    description: "All tokens that the provider allows the account in its window; as above.",
    attributes: &[FLOW, &[LIMITED]],
    combinations: 3,
    ..ROW
};

pub static QUOTA_RESET: Metric = Metric {
    name: "tokengauge.quota.reset",
    kind: Kind::Gauge,
    unit: "s",
    description: "Time from now until all of the limit is there again, by the provider's word. Absent once it is over.",
    attributes: &[FLOW, &[LIMITED]],
    combinations: 4,
    ..ROW
};

pub static CLIENT_RETRIES: Metric = Metric {
    name: "tokengauge.client.retries",
    unit: "{request}",
    description: "Exchanges that repeat an earlier one of the last ten minutes, plain HTTP too, counted when they begin and once each, by the first sign that is there.",
    attributes: &[LANE, &[SIGN]],
    combinations: 3,
    ..ROW
};
