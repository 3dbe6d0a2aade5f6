//! Whom a request says it is for.

use crate::label::Name;

/// What the configured headers of a request say, hashed where the configuration says so. A claim of the caller's: nobody
/// has checked it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CallerIdentity {
    /// On whose account it is: a customer, a team.
    pub tenant: Option<Name>,
    /// The conversation or run that it is a part of. Never a metric's attribute: there is no bound on how many there are.
    pub session: Option<Name>,
    /// Which of several ways of doing the same it went: a prompt's or a model's version, an arm of an A/B test.
    pub variant: Option<Name>,
}
