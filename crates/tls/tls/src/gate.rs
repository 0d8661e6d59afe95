//! [`KeyGate`], the admission of key operations.

use std::net::IpAddr;
use std::sync::Arc;

use brisk_net::rates::{Event, Rates};
use brisk_net::{FairShare, SharePermit};
use brisk_pressure::{Pressure, Work};

/// Limits of the key operations of one client. The default limits nothing.
#[derive(Clone, Debug, Default)]
pub struct KeyGate {
    /// The client's share of the engine's queue. Without it one client could fill the queue with hellos, and no other
    /// client would get a full handshake.
    pub share: Option<FairShare>,
    /// Rates of each client; a key operation counts as [`Event::Handshake`].
    pub rates: Option<Arc<Rates>>,
    /// In an overload, operations are refused ([`Work::FullHandshake`]): resumed handshakes need none.
    pub pressure: Option<Arc<Pressure>>,
}

/// Held during the key operation; its drop frees the client's part of [`KeyGate::share`].
#[derive(Debug)]
pub(crate) struct KeyPermit(#[expect(dead_code, reason = "held for its drop")] Option<SharePermit>);

impl KeyGate {
    /// Admits an operation of `client`; `None` in an overload, or if the client has used its `share` or exceeds `rates`. Without an
    /// address there is no limit per client.
    pub(crate) fn enter(&self, client: Option<IpAddr>) -> Option<KeyPermit> {
        if self.pressure.as_ref().is_some_and(|pressure| pressure.refuses(Work::FullHandshake)) {
            return None;
        }
        let Some(client) = client else { return Some(KeyPermit(None)) };
        if let Some(rates) = &self.rates {
            // Before the share: an attempt beyond the share counts towards the rate too.
            rates.take(client, Event::Handshake).ok()?;
        }
        match &self.share {
            None => Some(KeyPermit(None)),
            Some(share) => share.try_acquire(client).map(|permit| KeyPermit(Some(permit))),
        }
    }
}

#[cfg(test)]
mod tests {
    use brisk_pressure::{Mode, Sample, Sampler, Source};

    use super::*;

    #[test]
    fn key_operations_are_refused_in_a_severe_overload() {
        let pressure = Pressure::new();
        let gate = KeyGate { pressure: Some(Arc::clone(&pressure)), ..KeyGate::default() };
        assert!(gate.enter(None).is_some());
        let (mut sampler, mut sample) = (Sampler::new(pressure), Sample::default());
        sample.set(Source::KeyQueue, 1.0);
        (0..50).for_each(|_| sampler.tick(sample, Mode::Shed));
        let client = Some(IpAddr::from([192, 0, 2, 1]));
        assert!(gate.enter(None).is_none() && gate.enter(client).is_none());
        sampler.tick(sample, Mode::Observe);
        assert!(gate.enter(client).is_some());
    }
}
