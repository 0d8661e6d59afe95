//! Decides whether a client may have a key operation performed now.

use std::net::IpAddr;
use std::sync::Arc;

use brisk_net::rates::{Event, Rates};
use brisk_net::{FairShare, SharePermit};

/// What key operations of one client are limited by. The default limits nothing.
#[derive(Clone, Debug, Default)]
pub struct KeyGate {
    /// Places of the engine's queue. Without them one client could fill it with hellos, and nobody else would get a full
    /// handshake.
    pub share: Option<FairShare>,
    /// How often each client may have one.
    pub rates: Option<Arc<Rates>>,
}

/// Held while the operation is under way.
#[derive(Debug)]
pub(crate) struct KeyPass(#[expect(dead_code, reason = "held for its drop")] Option<SharePermit>);

impl KeyGate {
    /// `None` where the client has had its share. One without an address is not limited.
    pub(crate) fn enter(&self, client: Option<IpAddr>) -> Option<KeyPass> {
        let Some(client) = client else { return Some(KeyPass(None)) };
        if let Some(rates) = &self.rates {
            rates.take(client, Event::Handshake).ok()?;
        }
        match &self.share {
            None => Some(KeyPass(None)),
            Some(share) => share.try_acquire(client).map(|permit| KeyPass(Some(permit))),
        }
    }
}
