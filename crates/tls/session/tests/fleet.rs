//! Guarantees of ticket keys in a fleet for every source of keys, in simulated time.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use brisk_session::{
    FleetSecret, ForceError, KeyOrigin, KeySource, OpenError, RotationSettings, SharedKey, TicketKeyFile,
    TicketKeyring,
};

const HOUR: u64 = 3600;
const WEEK: u64 = 7 * 24 * HOUR;
/// Not a multiple of any interval.
const START: u64 = 1_700_000_000;

const LIFETIME: u64 = 12 * HOUR;
const INTERVAL: u64 = 4 * HOUR;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn rotation() -> RotationSettings {
    let [lifetime, interval] = [LIFETIME, INTERVAL].map(Duration::from_secs);
    RotationSettings::new(lifetime, interval, Duration::ZERO).expect("settings that work")
}

fn derived(secret: u8) -> KeySource {
    let secret = FleetSecret::from_bytes(&[secret; 32]).expect("a length that does");
    KeySource::Derived { secret, rotation: rotation() }
}

fn files(keys: &[u8]) -> KeySource {
    let keys = keys.iter().map(|&key| TicketKeyFile::from_bytes(&[key; 80]).expect("a length that does"));
    KeySource::Files { keys: keys.collect(), lifetime: Duration::from_secs(LIFETIME) }
}

fn shared() -> KeySource {
    KeySource::Shared { rotation: rotation() }
}

fn generated() -> KeySource {
    KeySource::Generated(rotation())
}

/// A gateway with a clock that is ahead of the simulated time.
struct Gateway {
    keyring: TicketKeyring,
    ahead: i64,
}

impl Gateway {
    fn new(source: KeySource, ahead: i64) -> Self {
        Self::started(source, ahead, START)
    }

    fn started(source: KeySource, ahead: i64, now: u64) -> Self {
        Self { keyring: TicketKeyring::new(source, at(now.saturating_add_signed(ahead))), ahead }
    }

    fn clock(&self, now: u64) -> u64 {
        now.saturating_add_signed(self.ahead)
    }

    fn seal(&self, now: u64) -> Option<Held> {
        let sealed_at = self.clock(now);
        let ticket = self.keyring.seal(&sealed_at.to_be_bytes(), at(sealed_at))?;
        Some(Held { ticket, sealed_at })
    }

    fn open(&self, held: &Held, now: u64) -> Result<(), OpenError> {
        let session = self.keyring.open_ticket(&held.ticket, at(self.clock(now)))?.session;
        assert_eq!(session, held.sealed_at.to_be_bytes());
        Ok(())
    }

    /// Opens during its lifetime and not after it.
    fn check(&self, held: &Held, now: u64) {
        let opened = self.open(held, now);
        let age = self.clock(now).saturating_sub(held.sealed_at);
        if age < LIFETIME {
            assert_eq!(opened, Ok(()), "age {age}, clock ahead {}, at {}", self.ahead, now - START);
        } else {
            assert!(opened.is_err(), "age {age}");
        }
    }
}

/// A ticket of a client, and the time of its sealing by the clock of the sealing gateway.
struct Held {
    ticket: Vec<u8>,
    sealed_at: u64,
}

#[test]
fn with_one_secret_a_ticket_sealed_anywhere_opens_everywhere_at_any_moment_of_a_week() {
    let half = i64::try_from(INTERVAL / 2).unwrap();
    let mut fleet: Vec<_> = [-half, 0, 7, half].map(|ahead| Gateway::new(derived(1), ahead)).into();
    let mut held: Vec<Held> = Vec::new();
    for now in (START..START + WEEK).step_by(600) {
        // Each gateway seals once an hour, and one gateway restarts every nine hours.
        let which = (now - START) / 600;
        if which.is_multiple_of(54) {
            fleet.rotate_left(1);
            fleet[0] = Gateway::started(derived(1), fleet[0].ahead, now);
        }
        if let Some(gateway) = fleet.get(which as usize % 6) {
            held.push(gateway.seal(now).expect("a key seals at any moment"));
        }
        for held in &held {
            for gateway in &fleet {
                gateway.check(held, now);
            }
        }
        held.retain(|held| now < held.sealed_at + LIFETIME + INTERVAL);
        for gateway in &fleet {
            assert!(gateway.keyring.statistics().keys <= 6);
        }
    }
}

#[test]
fn clocks_that_differ_by_up_to_an_interval_seal_and_open_around_every_rotation() {
    for behind in [1, 600, INTERVAL - 1, INTERVAL] {
        let fast = Gateway::new(derived(1), 0);
        let slow = Gateway::new(derived(1), -i64::try_from(behind).unwrap());
        let mut names = Vec::new();
        for rotation in 1..=3 {
            let boundary = (START / INTERVAL + rotation) * INTERVAL;
            for now in boundary - 2..boundary + 2 {
                let [from_fast, from_slow] = [fast.seal(now).unwrap(), slow.seal(now).unwrap()];
                assert_eq!(slow.open(&from_fast, now), Ok(()), "{behind} behind, rotation {rotation}");
                assert_eq!(fast.open(&from_slow, now), Ok(()), "{behind} behind, rotation {rotation}");
                names.push(from_fast.ticket[..16].to_vec());
            }
        }
        names.dedup();
        assert_eq!(names.len(), 4, "three rotations");
    }
}

#[test]
fn another_secret_or_interval_opens_nothing() {
    let gateway = Gateway::new(derived(1), 0);
    let held = gateway.seal(START).unwrap();
    assert_eq!(Gateway::new(derived(2), 0).open(&held, START), Err(OpenError::UnknownKey));
    let [lifetime, interval] = [LIFETIME, INTERVAL / 2].map(Duration::from_secs);
    let rotation = RotationSettings::new(lifetime, interval, Duration::ZERO).unwrap();
    let secret = FleetSecret::from_bytes(&[1; 32]).unwrap();
    let other = Gateway::new(KeySource::Derived { secret, rotation }, 0);
    assert_eq!(other.open(&held, START), Err(OpenError::UnknownKey));
}

#[test]
fn a_derived_key_is_gone_after_its_time() {
    let gateway = Gateway::new(derived(1), 0);
    let held = gateway.seal(START).unwrap();
    let over = (START / INTERVAL + 1) * INTERVAL + LIFETIME;
    gateway.keyring.rotate(at(over));
    // At a time when the ticket would open if its key still existed.
    assert_eq!(gateway.open(&held, START), Err(OpenError::UnknownKey));
}

/// A simulated store for the exchange of keys.
#[derive(Default)]
struct Exchange {
    published: BTreeMap<u64, Vec<u8>>,
}

const POLL: u64 = 20;
const SETTLE: Duration = Duration::from_secs(2 * POLL + 10);

fn parsed(key: &[u8]) -> SharedKey {
    SharedKey::from_bytes(key).expect("a key that was published")
}

impl Exchange {
    fn read(&self) -> Vec<SharedKey> {
        self.published.values().map(|key| parsed(key)).collect()
    }

    fn visit(&mut self, gateway: &Gateway, now: u64) {
        let now = at(gateway.clock(now));
        self.published.retain(|_, key| parsed(key).is_live(now));
        let mut slots = SharedKey::missing(&self.read(), &rotation(), SETTLE, now);
        if gateway.keyring.take_forced() {
            slots.push(SharedKey::soon(SETTLE, now));
        }
        for slot in slots {
            let key = SharedKey::generate(slot, &rotation());
            self.published.entry(slot).or_insert_with(|| key.to_bytes().to_vec());
        }
        gateway.keyring.install(&self.read(), now);
    }
}

#[test]
fn with_exchanged_keys_a_ticket_sealed_anywhere_opens_everywhere_at_any_moment_of_a_week() {
    let mut exchange = Exchange::default();
    let mut fleet: Vec<_> = [-3, 0, 4].map(|ahead| Gateway::new(shared(), ahead)).into();
    let mut held: Vec<Held> = Vec::new();
    let mut sealing = 0;
    for step in 0..WEEK / POLL {
        let now = START + step * POLL;
        // The store fails for an hour of each day, and from time to time a gateway restarts.
        let in_order = !(20 * HOUR..21 * HOUR).contains(&((now - START) % (24 * HOUR)));
        for gateway in fleet.iter().filter(|_| in_order) {
            exchange.visit(gateway, now);
        }
        if step % 5000 == 4999 && in_order {
            fleet[1] = Gateway::started(shared(), 0, now);
            exchange.visit(&fleet[1], now);
        }
        if step % 3333 == 3332 {
            fleet[0].keyring.force_rotation(at(now)).unwrap();
        }
        // Around each exchange at the beginning, and then from time to time.
        if step < 30 || step % 90 == 0 || step % 3333 < 6 {
            for gateway in &fleet {
                let sealed = gateway.seal(now);
                sealing += usize::from(sealed.is_some());
                for held in sealed.iter().chain(&held) {
                    for gateway in &fleet {
                        gateway.check(held, now);
                    }
                }
                held.extend(sealed.filter(|_| step % 90 == 0));
            }
            held.retain(|held| now < held.sealed_at + LIFETIME + HOUR);
        }
    }
    assert!(sealing > 1000, "{sealing} tickets");
    assert!(exchange.published.len() <= 10, "dead keys are removed: {}", exchange.published.len());
}

#[test]
fn a_fleet_that_has_exchanged_no_keys_yet_seals_nothing() {
    let gateway = Gateway::new(shared(), 0);
    assert!(gateway.seal(START).is_none());
    gateway.keyring.install(&[], at(START));
    assert!(gateway.seal(START).is_none());
    let mut exchange = Exchange::default();
    exchange.visit(&gateway, START);
    assert!(gateway.seal(START).is_none(), "the others do not have the key yet");
    let soon = START + 2 * SETTLE.as_secs();
    let held = gateway.seal(soon).expect("they have it by now");
    // A gateway that starts later has the current keys at once.
    let late = Gateway::new(shared(), 0);
    assert_eq!(late.open(&held, soon), Err(OpenError::UnknownKey));
    exchange.visit(&late, soon);
    assert_eq!(late.open(&held, soon), Ok(()));
    assert!(late.seal(soon).is_some());
}

#[test]
fn of_two_keys_for_one_time_all_gateways_take_the_same() {
    let keys = [(); 5].map(|()| SharedKey::generate(START, &rotation()));
    let earlier = SharedKey::generate(START - 100, &rotation());
    let mut sealing = Vec::new();
    for turn in 0..5 {
        let mut keys = [&keys[..], std::slice::from_ref(&earlier)].concat();
        keys.rotate_left(turn);
        let gateway = Gateway::new(shared(), 0);
        gateway.keyring.install(&keys, at(START));
        sealing.push(gateway.seal(START).unwrap().ticket[..16].to_vec());
    }
    sealing.dedup();
    assert_eq!(sealing.len(), 1);
}

#[test]
fn a_shared_key_that_the_exchange_lost_seals_no_more_but_opens() {
    let [lost, kept] = [START - 10, START - 20].map(|slot| SharedKey::generate(slot, &rotation()));
    let gateway = Gateway::new(shared(), 0);
    gateway.keyring.install(&[lost.clone(), kept.clone()], at(START));
    let held = gateway.seal(START).unwrap();
    gateway.keyring.install(&[kept], at(START + 5));
    let sealing = gateway.keyring.keys(at(START + 5)).into_iter().find(|key| key.seals).unwrap();
    assert_ne!(sealing.id, lost.id());
    assert_eq!(gateway.open(&held, START + 5), Ok(()));
    gateway.keyring.rotate(at(START + 5 + LIFETIME));
    assert_eq!(gateway.open(&held, START + 5), Err(OpenError::UnknownKey), "gone after its time");
}

#[test]
fn of_the_keys_in_files_the_first_seals_and_all_open_until_they_are_left_out() {
    let (old, new) = (Gateway::new(files(&[1]), 0), Gateway::new(files(&[2, 1]), 0));
    let [held_old, held_new] = [&old, &new].map(|gateway| gateway.seal(START).unwrap());
    assert_ne!(held_old.ticket[..16], held_new.ticket[..16]);
    assert_eq!(new.open(&held_old, START), Ok(()));
    assert_eq!(old.open(&held_new, START), Err(OpenError::UnknownKey));
    // The second step of a manual rotation: the new key is first added to all gateways as the second, then made the
    // first.
    old.keyring.configure(files(&[1, 2]), at(START));
    assert_eq!(old.open(&held_new, START), Ok(()));
    assert_eq!(old.seal(START).unwrap().ticket[..16], held_old.ticket[..16]);
    new.keyring.configure(files(&[2]), at(START));
    assert_eq!(new.open(&held_old, START), Err(OpenError::UnknownKey));
    assert_eq!(new.open(&held_new, START), Ok(()));
    // Regardless of the age of the keys and of changes of the clock.
    for now in [0, START + 100 * WEEK] {
        assert!(new.seal(now).is_some());
    }
}

#[test]
fn a_key_file_given_twice_is_one_key() {
    let gateway = Gateway::new(files(&[1, 2, 1]), 0);
    assert_eq!(gateway.keyring.statistics().keys, 2);
    assert!(gateway.seal(START).is_some());
    let none = Gateway::new(files(&[]), 0);
    assert!(none.seal(START).is_none());
}

#[test]
fn a_reload_to_any_source_keeps_tickets_opening_and_wipes_the_former_keys_in_time() {
    let sources = [generated, || derived(1), || derived(2), shared, || files(&[1])];
    for (from, former) in sources.iter().enumerate() {
        for (to, latter) in sources.iter().enumerate() {
            let gateway = Gateway::new(former(), 0);
            gateway.keyring.install(&[SharedKey::generate(START, &rotation())], at(START));
            let held = gateway.seal(START).unwrap();
            gateway.keyring.configure(latter(), at(START));
            let age = LIFETIME - 1;
            assert_eq!(gateway.open(&held, START + age), Ok(()), "from {from} to {to}");
            // Never later than the end of the last key that could have sealed it.
            gateway.keyring.configure(generated(), at(START + age));
            gateway.keyring.rotate(at(START + age + LIFETIME + INTERVAL));
            assert_eq!(gateway.open(&held, START), Err(OpenError::UnknownKey), "from {from} to {to}");
        }
    }
}

#[test]
fn a_reload_without_a_change_changes_no_key() {
    for source in [generated, || derived(1), shared, || files(&[1, 2])] {
        let gateway = Gateway::new(source(), 0);
        gateway.keyring.install(&[SharedKey::generate(START, &rotation())], at(START));
        gateway.seal(START).unwrap();
        let before = gateway.keyring.keys(at(START));
        gateway.keyring.configure(source(), at(START + 60));
        assert_eq!(gateway.keyring.keys(at(START)), before);
    }
}

#[test]
fn a_reload_and_back_seals_with_the_former_key_again() {
    let gateway = Gateway::new(derived(1), 0);
    let first = gateway.seal(START).unwrap();
    gateway.keyring.configure(derived(2), at(START));
    assert_ne!(gateway.seal(START).unwrap().ticket[..16], first.ticket[..16]);
    gateway.keyring.configure(derived(1), at(START));
    assert_eq!(gateway.seal(START).unwrap().ticket[..16], first.ticket[..16]);
    let sealed = gateway.keyring.keys(at(START)).into_iter().find(|key| key.seals).unwrap().sealed;
    assert_eq!(sealed, 2, "its count went on");
}

#[test]
fn generated_keys_fit_new_times_after_a_reload() {
    let gateway = Gateway::new(generated(), 0);
    let held = gateway.seal(START).unwrap();
    let [lifetime, interval] = [2 * LIFETIME, INTERVAL / 4].map(Duration::from_secs);
    let longer = RotationSettings::new(lifetime, interval, Duration::ZERO).unwrap();
    gateway.keyring.configure(KeySource::Generated(longer), at(START + 60));
    assert_eq!(gateway.keyring.lifetime(), lifetime);
    assert_eq!(gateway.seal(START + INTERVAL / 4 - 1).unwrap().ticket[..16], held.ticket[..16]);
    assert_ne!(gateway.seal(START + INTERVAL / 4).unwrap().ticket[..16], held.ticket[..16]);
    assert_eq!(gateway.open(&held, START + 2 * LIFETIME - 1), Ok(()));
}

#[test]
fn a_forced_rotation_seals_with_a_new_key_at_once_and_opens_with_the_former() {
    let gateway = Gateway::new(generated(), 0);
    let mut tickets = Vec::new();
    for _ in 0..20 {
        tickets.push(gateway.seal(START + 5).unwrap());
        gateway.keyring.force_rotation(at(START + 5)).unwrap();
    }
    let mut names: Vec<_> = tickets.iter().map(|held| &held.ticket[..16]).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 20, "each forced rotation made another key seal");
    for held in &tickets {
        gateway.check(held, START + 5 + LIFETIME - 1);
    }
    gateway.keyring.rotate(at(START + 5 + LIFETIME));
    assert_eq!(gateway.open(&tickets[0], START + 5), Err(OpenError::UnknownKey), "wiped a lifetime later");
}

#[test]
fn keys_that_are_not_ours_to_replace_are_not_replaced() {
    let forced = |source| Gateway::new(source, 0).keyring.force_rotation(at(START));
    assert_eq!(forced(derived(1)), Err(ForceError::Derived));
    assert_eq!(forced(files(&[1])), Err(ForceError::Files));
    let gateway = Gateway::new(shared(), 0);
    assert!(!gateway.keyring.take_forced());
    gateway.keyring.force_rotation(at(START)).unwrap();
    assert!(gateway.keyring.take_forced());
    assert!(!gateway.keyring.take_forced(), "told once");
}

#[test]
fn statistics_tell_of_each_key_what_it_does_and_when() {
    let gateway = Gateway::new(derived(1), 0);
    let held = gateway.seal(START).unwrap();
    gateway.open(&held, START).unwrap();
    let keys = gateway.keyring.keys(at(START));
    assert_eq!(keys.len(), 5, "three of past tickets, the present one, the next");
    assert!(keys.iter().all(|key| key.origin == KeyOrigin::Derived && key.added == at(START)));
    let (next, present) = (&keys[0], &keys[1]);
    let boundary = (START / INTERVAL + 1) * INTERVAL;
    assert_eq!(next.seals_from, Some(at(boundary)));
    assert_eq!(
        (present.seals_from, present.seals_until),
        (Some(at(boundary - INTERVAL)), Some(at(boundary)))
    );
    assert_eq!(present.opens_until, Some(at(boundary + LIFETIME)));
    let sealing: Vec<_> = keys.iter().filter(|key| key.seals).collect();
    assert_eq!(sealing, [present]);
    assert_eq!((present.sealed, present.opened, next.sealed, next.opened), (1, 1, 0, 0));
    let elsewhere = Gateway::new(derived(1), 0).keyring.keys(at(START));
    assert!(keys.iter().zip(&elsewhere).all(|(here, there)| here.id == there.id));
    let file = &Gateway::new(files(&[1]), 0).keyring.keys(at(START))[0];
    assert_eq!((file.seals, file.seals_from, file.seals_until, file.opens_until), (true, None, None, None));
    assert_eq!(file.id, TicketKeyFile::from_bytes(&[1; 80]).unwrap().id());
    assert_eq!(file.id.to_string().len(), 8);
}
