//! State that all streams of Envoy share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use http::HeaderMap;
use tokio::sync::watch;

use crate::counts::Counts;
use crate::frames::MessageBudget;
use crate::open_exchanges::OpenExchanges;
use crate::routes::Routes;
use tokengauge_observe::tee::ObservationChannel;
use tokengauge_observe::trace::Propagation;
use tokengauge_types::event::{CallerIdentity, SessionRule};
use tokengauge_types::label::Name;

/// Reads the identity from the headers of a request and the conversation in its baggage, and returns the rule for a
/// session in its body.
pub type ReadIdentity =
    Box<dyn Fn(&HeaderMap, Option<&Name>) -> (CallerIdentity, SessionRule) + Send + Sync>;

/// State that all streams share.
pub struct Shared {
    pub channel: Arc<ObservationChannel>,
    pub routes: Routes,
    pub propagation: Propagation,
    pub identity: ReadIdentity,
    pub open: Arc<OpenExchanges>,
    pub counts: Arc<Counts>,
    pub ready: Arc<AtomicBool>,
    pub budget: MessageBudget,
    pub draining: watch::Sender<bool>,
}

/// Omits the parts that have no representation.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("routes", &self.routes)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}
