//! What every message of an answer repeats, said once.

use super::Event;

/// What every message of an answer repeats is said once.
#[derive(Debug, Default)]
pub struct Once {
    id: bool,
    model: bool,
    service_tier: bool,
    system_fingerprint: bool,
}

impl Once {
    pub fn started(
        &mut self,
        id: Option<&str>,
        model: Option<&str>,
        out: &mut impl FnMut(Event<'_>),
    ) {
        let id = id.filter(|_| !self.id);
        let model = model.filter(|_| !self.model);
        self.id |= id.is_some();
        self.model |= model.is_some();
        if id.is_some() || model.is_some() {
            out(Event::Started { id, model });
        }
    }

    pub fn tier(
        &mut self,
        service_tier: Option<&str>,
        system_fingerprint: Option<&str>,
        out: &mut impl FnMut(Event<'_>),
    ) {
        let service_tier = service_tier.filter(|_| !self.service_tier);
        let system_fingerprint = system_fingerprint.filter(|_| !self.system_fingerprint);
        self.service_tier |= service_tier.is_some();
        self.system_fingerprint |= system_fingerprint.is_some();
        if service_tier.is_some() || system_fingerprint.is_some() {
            out(Event::Tier { service_tier, system_fingerprint });
        }
    }
}
