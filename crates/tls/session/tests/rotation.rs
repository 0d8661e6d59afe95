//! Invariants of a keyring, tested with deterministic random settings and histories.

use std::time::{Duration, SystemTime};

use brisk_session::{KeySource, OpenError, RotationSettings, TicketKeyring};

/// A small random generator (`SplitMix64`), deterministic so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn within(&mut self, range: std::ops::RangeInclusive<u64>) -> u64 {
        range.start() + self.next() % (range.end() - range.start() + 1)
    }

    /// Random valid settings.
    fn settings(&mut self) -> RotationSettings {
        loop {
            let [lifetime, interval, lead] = [(1, 2000), (1, 1000), (0, 200)]
                .map(|(least, most)| Duration::from_secs(self.within(least..=most)));
            if let Ok(settings) = RotationSettings::new(lifetime, interval, lead) {
                return settings;
            }
        }
    }
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// A ticket of a client, and its expected content.
struct Held {
    ticket: Vec<u8>,
    session: [u8; 8],
    sealed_at: u64,
}

impl Held {
    fn seal(keyring: &TicketKeyring, random: &mut Random, now: u64) -> Self {
        let session = random.next().to_be_bytes();
        let ticket = keyring.seal(&session, at(now)).expect("a keyring always has a key that seals");
        Self { ticket, session, sealed_at: now }
    }
}

#[test]
fn a_ticket_opens_for_its_lifetime_and_no_longer_through_any_rotations() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let settings = random.settings();
        let lifetime = settings.lifetime().as_secs();
        let mut now = 1_700_000_000 + random.within(0..=100_000);
        let keyring = TicketKeyring::new(KeySource::Generated(settings), at(now));
        let mut held = Vec::new();
        for _ in 0..300 {
            // Mostly busy, sometimes idle for longer than any key lives.
            now += if random.within(0..=20) == 0 {
                random.within(0..=6000)
            } else {
                random.within(0..=lifetime / 10)
            };
            held.push(Held::seal(&keyring, &mut random, now));
            for Held { ticket, session, sealed_at } in &held {
                let opened = keyring.open_ticket(ticket, at(now)).map(|opened| opened.session);
                if now - sealed_at < lifetime {
                    assert_eq!(
                        opened.as_deref(),
                        Ok(&session[..]),
                        "seed {seed}: {settings:?}, age {}",
                        now - sealed_at
                    );
                } else {
                    let refused = opened.expect_err("a ticket does not outlive its lifetime");
                    assert!(
                        matches!(refused, OpenError::Expired | OpenError::UnknownKey),
                        "seed {seed}: {refused:?}"
                    );
                }
            }
            held.retain(|held| now - held.sealed_at < lifetime + 1000);
        }
    }
}

#[test]
fn a_key_is_gone_after_its_time_though_nothing_is_sealed_or_opened() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let settings = random.settings();
        let start = 1_700_000_000;
        let keyring = TicketKeyring::new(KeySource::Generated(settings), at(start));
        let held = Held::seal(&keyring, &mut random, start);
        // No valid interval is longer than this.
        let over = start + settings.lifetime().as_secs() + 1000;
        keyring.rotate(at(over));
        // At a time when the ticket would open if its key still existed.
        let opened = keyring.open_ticket(&held.ticket, at(start)).map(|opened| opened.session);
        assert_eq!(opened, Err(OpenError::UnknownKey), "seed {seed}: {settings:?}");
        assert_eq!(keyring.statistics().unknown, 1);
    }
}

#[test]
fn a_keyring_stays_short_however_long_it_is_used() {
    for seed in 0..100 {
        let mut random = Random(seed);
        let settings = random.settings();
        let mut now = 1_700_000_000;
        let keyring = TicketKeyring::new(KeySource::Generated(settings), at(now));
        for _ in 0..500 {
            now += random.within(0..=500);
            keyring.seal(b"session", at(now));
            let keys = keyring.statistics().keys;
            assert!((1..=34).contains(&keys), "seed {seed}: {keys} keys with {settings:?}");
        }
    }
}

#[test]
fn a_clock_set_back_and_forth_never_stops_sealing() {
    for seed in 0..100 {
        let mut random = Random(seed);
        let settings = random.settings();
        let mut now = 1_700_000_000;
        let keyring = TicketKeyring::new(KeySource::Generated(settings), at(now));
        for _ in 0..300 {
            now = now + random.within(0..=3000) - random.within(0..=3000);
            let held = Held::seal(&keyring, &mut random, now);
            let opened = keyring.open_ticket(&held.ticket, at(now)).map(|opened| opened.session);
            assert_eq!(opened.as_deref(), Ok(&held.session[..]), "seed {seed}: {settings:?}");
        }
    }
}

#[test]
fn threads_that_rotate_together_open_one_anothers_tickets() {
    let second = Duration::from_secs(1);
    let settings = RotationSettings::new(second * 100, second * 10, second * 3).expect("settings that work");
    let start = 1_700_000_000;
    let keyring = TicketKeyring::new(KeySource::Generated(settings), at(start));
    for now in (start..start + 300).step_by(5) {
        let tickets: Vec<_> = std::thread::scope(|scope| {
            let sealers = [(); 4].map(|()| scope.spawn(|| keyring.seal(b"session", at(now))));
            sealers
                .map(|sealer| sealer.join().expect("sealing does not panic"))
                .into_iter()
                .flatten()
                .collect()
        });
        assert!(!tickets.is_empty());
        for ticket in tickets {
            assert_eq!(
                keyring.open_ticket(&ticket, at(now)).map(|opened| opened.session).as_deref(),
                Ok(&b"session"[..])
            );
        }
    }
}
