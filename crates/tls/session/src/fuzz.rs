//! Properties of the parsers for sealed bytes, for tests and libFuzzer.

use std::cell::OnceCell;
use std::time::{Duration, SystemTime};

use crate::redis::fuzz::{Values, complete, is_same_in_pieces, wants_more};
use crate::{FleetSecret, KeySource, RotationSettings, SharedKey, TicketKeyring};

const NOW: Duration = Duration::from_hours(500_000);
const SESSION: &[u8] = b"a session as TLS writes it";

thread_local! {
    static KEYRING: OnceCell<TicketKeyring> = const { OnceCell::new() };
    static VALUES: OnceCell<Values> = const { OnceCell::new() };
}

/// A sealed ticket opens if and only if the changes that the input describes leave it as it was.
pub fn ticket(bytes: &[u8]) {
    let now = SystemTime::UNIX_EPOCH + NOW;
    KEYRING.with(|keyring| {
        let keyring = keyring
            .get_or_init(|| TicketKeyring::new(KeySource::Generated(RotationSettings::default()), now));
        assert!(keyring.open_ticket(bytes, now).is_err(), "it was not sealed");
        let mut sealed = keyring.seal(SESSION, now).expect("keys are fresh");
        let changed = change(&mut sealed, bytes);
        match keyring.open_ticket(&sealed, now) {
            Ok(opened) => assert!(!changed && opened.session == SESSION),
            Err(_) => assert!(changed),
        }
    });
}

/// A sealed value from Redis opens if and only if it is unchanged and belongs to the requested ID.
pub fn redis_value(bytes: &[u8]) {
    VALUES.with(|values| {
        let values =
            values.get_or_init(|| Values::new(&FleetSecret::from_bytes(&[7; 32]).expect("32 bytes")));
        let (id, value) = bytes.split_at(bytes.len().min(32));
        assert!(values.open(id, value.to_vec()).is_none(), "it was not sealed");
        let mut sealed = values.seal(id, SESSION);
        assert!(values.open(&[id, b"x"].concat(), sealed.clone()).is_none(), "another's session");
        let changed = change(&mut sealed, value);
        match values.open(id, sealed) {
            Some(opened) => assert!(!changed && opened == SESSION),
            None => assert!(changed),
        }
    });
}

/// The limit of replies does not depend on the pieces in which they arrive, and does not take a reply for complete while the
/// parser of the library holds it and waits for more.
pub fn redis_reply(bytes: &[u8]) {
    assert!(is_same_in_pieces(bytes));
    if let Some(end) = complete(bytes) {
        assert!(!wants_more(&bytes[..end]));
    }
}

/// An exchanged ticket key that can be parsed is encoded to the same bytes.
pub fn shared_key(bytes: &[u8]) {
    if let Some(key) = SharedKey::from_bytes(bytes) {
        assert_eq!(**key.to_bytes(), *bytes);
        key.is_live(SystemTime::UNIX_EPOCH + NOW);
    }
}

/// Applies each pair of bytes (position, XOR mask), and truncates or extends by the last byte. Returns whether the
/// value differs.
fn change(sealed: &mut Vec<u8>, by: &[u8]) -> bool {
    let before = sealed.clone();
    for pair in by.as_chunks::<2>().0.iter().take(4) {
        let place = usize::from(pair[0]) % sealed.len();
        sealed[place] ^= pair[1];
    }
    match by.last() {
        Some(&last) if last < 16 => sealed.truncate(sealed.len() - usize::from(last)),
        Some(&last) if last > 250 => sealed.push(last),
        _ => {}
    }
    *sealed != before
}

#[cfg(test)]
mod tests {
    use brisk_testkit::fuzz::drive;

    #[test]
    fn fuzz_ticket() {
        drive("ticket", &[], super::ticket);
    }

    #[test]
    fn fuzz_redis_value() {
        drive("redis_value", &[], super::redis_value);
    }

    #[test]
    fn fuzz_redis_reply() {
        let words: [&[u8]; 8] =
            [b"\r\n", b"$3\r\nabc\r\n", b"*2\r\n", b"%1\r\n", b">2\r\n", b":1\r\n", b"-1", b"|1\r\n"];
        drive("redis_reply", &words, super::redis_reply);
    }

    #[test]
    fn fuzz_shared_key() {
        drive("shared_key", &[], super::shared_key);
    }
}
