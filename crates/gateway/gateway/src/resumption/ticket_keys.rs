//! Ticket keys on the admin listener: ids, times and counts, never a key.

use std::time::SystemTime;

use brisk_session::{ForceError, KeyStatistics, TicketKeyring};
use serde_json::{Value, json};

use crate::unix_time::unix_seconds;

/// Keys on the [`TicketKeyring`] beyond which no rotation is forced: each is one more to look at for every ticket that is
/// offered.
const MOST_KEYS: usize = 64;

/// All keys as JSON. Times are in Unix seconds.
pub(crate) fn shown(keyring: &TicketKeyring, now: SystemTime) -> String {
    // Rotates first, so that the page shows the keys that the next handshake would use.
    keyring.rotate(now);
    let counts = keyring.statistics();
    let all = json!({
        "now": unix_seconds(now),
        "lifetime": keyring.lifetime().as_secs(),
        "sealed": counts.sealed,
        "opened": counts.opened,
        "refused": { "unknown-key": counts.unknown, "expired": counts.expired, "forged": counts.forged },
        "keys": keyring.keys(now).iter().map(key).collect::<Vec<_>>(),
    });
    format!("{all:#}\n")
}

fn key(key: &KeyStatistics) -> Value {
    json!({
        "id": key.id.to_string(),
        "origin": key.origin.label(),
        "seals": key.seals,
        "added": unix_seconds(key.added),
        "seals_from": key.seals_from.map(unix_seconds),
        "seals_until": key.seals_until.map(unix_seconds),
        "opens_until": key.opens_until.map(unix_seconds),
        "sealed": key.sealed,
        "opened": key.opened,
    })
}

/// The reason why [`rotate`] was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotRotated {
    #[error(transparent)]
    Source(#[from] ForceError),
    #[error("there are {0} ticket keys already: rotate again when the tickets of some are too old")]
    TooMany(usize),
}

/// Forces a new key, which seals at once, or in a fleet when all machines have had time to read it; returns the response of
/// the admin listener.
pub(crate) fn rotate(keyring: &TicketKeyring, now: SystemTime) -> Result<&'static str, NotRotated> {
    let keys = keyring.keys(now);
    if keys.len() >= MOST_KEYS {
        return Err(NotRotated::TooMany(keys.len()));
    }
    keyring.force_rotation(now)?;
    let sealing = |keys: &[KeyStatistics]| keys.iter().find(|key| key.seals).map(|key| key.id);
    Ok(if sealing(&keyring.keys(now)) == sealing(&keys) {
        "a new key is on its way: it seals when all machines have had time to read it\n"
    } else {
        "a new key seals from now on\n"
    })
}

#[cfg(test)]
mod tests {
    use brisk_session::{FleetSecret, KeySource, RotationSettings};

    use std::time::Duration;

    use super::*;

    fn rotation() -> RotationSettings {
        let [lifetime, interval] = [120, 60].map(Duration::from_secs);
        RotationSettings::new(lifetime, interval, Duration::ZERO).expect("right settings")
    }

    #[test]
    fn keys_are_shown_with_times_and_without_secrets() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let keyring = TicketKeyring::new(KeySource::Generated(rotation()), now);
        keyring.seal(b"session", now).expect("a key that seals");
        let json: Value = serde_json::from_str(&shown(&keyring, now)).expect("JSON");
        assert_eq!(
            (&json["now"], &json["lifetime"], &json["sealed"]),
            (&json!(1_000_000), &json!(120), &json!(1))
        );
        let [key] = &json["keys"].as_array().expect("a list")[..] else { panic!("one key: {json}") };
        assert_eq!(key["id"], keyring.keys(now)[0].id.to_string());
        let fields: Vec<_> = key.as_object().expect("an object").keys().collect();
        let known = [
            "added",
            "id",
            "opened",
            "opens_until",
            "origin",
            "sealed",
            "seals",
            "seals_from",
            "seals_until",
        ];
        assert_eq!(fields, known);
        assert_eq!((&key["seals_until"], &key["opens_until"]), (&json!(1_000_060), &json!(1_000_180)));
    }

    #[test]
    fn generated_keys_rotate_at_once_and_not_without_end() {
        let now = SystemTime::now();
        let keyring = TicketKeyring::new(KeySource::Generated(rotation()), now);
        // Often, since keys of one second might be listed in the order of their random names.
        for _ in 0..16 {
            let before = keyring.keys(now)[0].id;
            assert_eq!(rotate(&keyring, now).expect("rotated"), "a new key seals from now on\n");
            assert_ne!(keyring.keys(now)[0].id, before);
        }
        let refused = (0..MOST_KEYS).find_map(|_| rotate(&keyring, now).err()).expect("an end");
        assert!(refused.to_string().starts_with("there are 64 ticket keys already"), "{refused}");
    }

    #[test]
    fn derived_keys_are_the_secrets() {
        let now = SystemTime::now();
        let secret = FleetSecret::from_bytes(&[1; 32]).expect("long enough");
        let keyring = TicketKeyring::new(KeySource::Derived { secret, rotation: rotation() }, now);
        let refused = rotate(&keyring, now).expect_err("derived").to_string();
        assert!(refused.contains("put a new secret on every gateway"), "{refused}");
    }
}
