//! State shared by the workers and the thread that communicates with Redis.

use std::time::SystemTime;

use super::{
    breaker::Breaker,
    problem::Problems,
    sealing::{Name, Sealer},
    settings::RedisSettings,
    statistics::Counters,
    used_sessions::UsedSessions,
};
use crate::{FleetSecret, rotation::seconds};

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: RedisSettings,
    pub(super) sealer: Sealer,
    pub(super) breaker: Breaker,
    pub(super) counters: Counters,
    pub(super) problems: Problems,
    pub(super) used_sessions: UsedSessions,
}

impl Shared {
    pub(super) fn new(settings: RedisSettings, secret: &FleetSecret) -> Self {
        Self {
            sealer: Sealer::new(secret),
            settings,
            breaker: Breaker::new(),
            counters: Counters::default(),
            problems: Problems::default(),
            used_sessions: UsedSessions::default(),
        }
    }

    /// Adds this session to [`UsedSessions`], so that the session is marked as soon as Redis is reachable.
    pub(super) fn spend(&self, id: &[u8]) {
        self.used_sessions.add(self.sealer.name(id), seconds(SystemTime::now()));
    }

    /// The key of a session in Redis: 32 hexadecimal digits after the prefix.
    pub(super) fn key(&self, name: &Name) -> Vec<u8> {
        // Names of sessions and rates are made with one key: without prefixes, a client could choose a
        // session ID whose name is that of a rate.
        self.named(b"s:", name)
    }

    /// The key of a bucket of a rate.
    pub(super) fn key_of_rate(&self, name: &Name) -> Vec<u8> {
        self.named(b"r:", name)
    }

    fn named(&self, kind: &[u8], name: &Name) -> Vec<u8> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut key = Vec::with_capacity(self.settings.prefix.len() + 2 + 2 * name.len());
        key.extend_from_slice(self.settings.prefix.as_bytes());
        key.extend_from_slice(kind);
        for byte in name {
            key.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        key
    }
}
