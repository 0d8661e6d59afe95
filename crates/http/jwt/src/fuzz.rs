//! Properties of tokens and key sets, for tests and libFuzzer.

use std::sync::OnceLock;

use crate::key_set::KeySet;
use crate::rules::TokenRules;

/// A set with keys of three types. Their private keys do not exist any more.
const SET: &str = include_str!("fuzz/keys.json");

/// Bytes are a token, or a key set: neither panics, no token is valid, and a set has at most a hundred keys.
pub fn tokens(bytes: &[u8]) {
    static KEYS: OnceLock<KeySet> = OnceLock::new();
    let keys = KEYS.get_or_init(|| KeySet::from_json(SET.as_bytes()).expect("keys"));
    assert!(TokenRules::default().verify(bytes, keys).is_err(), "a forged token");
    if let Ok(set) = KeySet::from_json(bytes) {
        assert!((1..=100).contains(&set.len()));
        // The keys of strangers neither panic.
        let token = b"eyJhbGciOiJSUzI1NiJ9.e30.AAAA";
        assert!(TokenRules::default().verify(token, &set).is_err());
    }
    let _ = KeySet::from_pem(bytes);
}

#[cfg(test)]
mod tests {
    use brisk_testkit::fuzz::drive;

    #[test]
    fn fuzz_tokens() {
        drive("tokens", &[super::SET.as_bytes()], super::tokens);
    }
}
