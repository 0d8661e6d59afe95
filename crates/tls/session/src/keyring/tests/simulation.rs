//! Simulation of the ticket keys of gateways: clocks that differ and are set, upgrades, forced rotations and reloads.

use std::time::{Duration, SystemTime};

use brisk_testkit::random::Random;
use brisk_testkit::simulation::each_seed;

use super::{OpenError, TicketKeyring};
use crate::{FleetSecret, KeySource, RotationSettings};

const STEPS: usize = 200;

/// Times in seconds: a ticket, a key that seals, and the time before that for which it is known.
const LIFETIME: u64 = 120;
const INTERVAL: u64 = 60;
const LEAD: u64 = 10;

/// Largest difference of two clocks, below one interval.
const SKEW: usize = 50;

struct Simulation {
    source: KeySource,
    /// True time in seconds since 1970.
    now: u64,
    gateways: Vec<Gateway>,
    tickets: Vec<Ticket>,
}

struct Gateway {
    keyring: TicketKeyring,
    /// The clock is ahead by this number of seconds.
    ahead: u64,
}

struct Ticket {
    bytes: Vec<u8>,
    session: Vec<u8>,
    /// Index of the gateway that sealed it, and the time of its clock then.
    gateway: usize,
    sealed: u64,
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

impl Simulation {
    fn new(random: &mut Random) -> Self {
        let [lifetime, interval, lead] = [LIFETIME, INTERVAL, LEAD].map(Duration::from_secs);
        let rotation = RotationSettings::new(lifetime, interval, lead).unwrap();
        let source = if random.chance(50) {
            KeySource::Generated(rotation)
        } else {
            KeySource::Derived { secret: FleetSecret::from_bytes(&[7; 32]).unwrap(), rotation }
        };
        let now = 1_000_000 + random.below(100) as u64;
        let gateway = |ahead| Gateway { keyring: TicketKeyring::new(source.clone(), at(now + ahead)), ahead };
        let gateways = (0..2 + random.below(2)).map(|_| random.below(SKEW) as u64).map(gateway).collect();
        Self { source, now, gateways, tickets: Vec::new() }
    }

    fn clock(&self, gateway: usize) -> u64 {
        self.now + self.gateways[gateway].ahead
    }

    /// Whether the keys of `gateway` include that of `ticket`.
    fn shares(&self, ticket: &Ticket, gateway: usize) -> bool {
        ticket.gateway == gateway || matches!(self.source, KeySource::Derived { .. })
    }

    fn step(&mut self, random: &mut Random) {
        let gateway = random.below(self.gateways.len());
        let now = at(self.clock(gateway));
        match random.below(10) {
            0..=3 => self.now += random.below(INTERVAL as usize) as u64,
            4..=6 => self.seal(gateway, random),
            7 => self.upgrade(gateway),
            8 => {
                // Refused for derived keys.
                let forced = self.gateways[gateway].keyring.force_rotation(now);
                assert_eq!(forced.is_ok(), matches!(self.source, KeySource::Generated(_)));
            }
            _ => self.gateways[gateway].keyring.configure(self.source.clone(), now),
        }
        // A clock that is set makes no promise about earlier tickets.
        if random.chance(2) {
            self.set_clocks(random);
        }
        self.check();
    }

    fn seal(&mut self, gateway: usize, random: &mut Random) {
        let (sealed, session) = (self.clock(gateway), random.number().to_be_bytes().to_vec());
        let bytes =
            self.gateways[gateway].keyring.seal(&session, at(sealed)).expect("a key seals at any time");
        self.tickets.push(Ticket { bytes, session, gateway, sealed });
    }

    /// Another process takes over, with the keys of the one before.
    fn upgrade(&mut self, gateway: usize) {
        let now = at(self.clock(gateway));
        let next = TicketKeyring::new(self.source.clone(), now);
        let keys = self.gateways[gateway].keyring.export(now);
        assert!(next.import(&keys, now).is_some(), "keys of the same program");
        self.gateways[gateway].keyring = next;
    }

    fn set_clocks(&mut self, random: &mut Random) {
        let step = *random.of(&[30, 3_600, 8 * 24 * 3_600]);
        self.now = if random.chance(50) { self.now + step } else { self.now - step.min(self.now / 2) };
        // Each gateway notices at its next full handshake.
        for gateway in 0..self.gateways.len() {
            self.seal(gateway, random);
        }
        self.tickets.clear();
    }

    /// Opens all tickets at all gateways.
    fn check(&mut self) {
        for gateway in 0..self.gateways.len() {
            let now = self.clock(gateway);
            for ticket in &self.tickets {
                let opened = self.gateways[gateway].keyring.open_ticket(&ticket.bytes, at(now));
                let is_young = now.saturating_sub(ticket.sealed) < LIFETIME;
                match opened {
                    Ok(opened) => assert!(
                        opened.session == ticket.session && is_young,
                        "another ticket, or an expired one"
                    ),
                    Err(error) => {
                        let may_open = is_young && self.shares(ticket, gateway);
                        assert!(!may_open && error != OpenError::Forged, "a ticket does not open: {error}");
                    }
                }
            }
        }
        // Only few remain, so that a step costs a constant time.
        let (oldest, most) = (self.now.saturating_sub(2 * LIFETIME), 12);
        self.tickets.retain(|ticket| ticket.sealed > oldest);
        self.tickets.drain(..self.tickets.len().saturating_sub(most));
    }

    /// Every gateway seals tickets that it opens, and has only keys that are needed.
    fn settle(&mut self, random: &mut Random) {
        self.tickets.clear();
        self.now += 3 * (LIFETIME + INTERVAL);
        for gateway in 0..self.gateways.len() {
            self.seal(gateway, random);
            let keyring = &self.gateways[gateway].keyring;
            let most = (LIFETIME / INTERVAL + 3) as usize;
            assert!(keyring.statistics().keys <= most, "{} keys", keyring.statistics().keys);
        }
        self.check();
    }
}

#[test]
fn tickets_open_for_their_lifetime_wherever_their_key_is_known() {
    each_seed("ticket keys", 60, |random| {
        let mut simulation = Simulation::new(random);
        (0..STEPS).for_each(|_| simulation.step(random));
        simulation.settle(random);
    });
}
