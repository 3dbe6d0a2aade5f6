//! Client identity that a request claims.

use crate::label::Name;

/// Client identity read from the configured headers, hashed if configured. The client supplies these values and the
/// proxy does not verify them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CallerIdentity {
    /// The account that the request belongs to, such as a customer or a team.
    pub tenant: Option<Name>,
    /// The conversation or run that the request belongs to. Never a metric attribute, because the number of sessions is
    /// unbounded.
    pub session: Option<Name>,
    /// The variant that the request uses: a prompt version, a model version, or an arm of an A/B test.
    pub variant: Option<Name>,
}
