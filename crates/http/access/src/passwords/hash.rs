//! Hashes of passwords: bcrypt, Argon2id, SHA-crypt and apr1.

use std::fmt;

use argon2::password_hash::PasswordVerifier as _;
use argon2::password_hash::phc::PasswordHash as Phc;
use argon2::{Algorithm, Argon2, Params, Version};
use sha_crypt::{PasswordHashRef, ShaCrypt};
use subtle::ConstantTimeEq as _;

use super::apr1;

/// Maximum cost of bcrypt: seconds on a fast core.
const BCRYPT_COST: u32 = 16;
/// Maximum number of rounds of SHA-crypt, which take about a second.
const SHA_ROUNDS: u32 = 1_000_000;
/// Maximum memory of Argon2id in KiB. Each thread that verifies passwords needs it once.
const ARGON2_MEMORY: u32 = 256 << 10;
/// Maximum product of the memory of Argon2id in KiB and its passes, which take seconds.
const ARGON2_WORK: u64 = 4 << 20;

/// The hash of a password. Its `Debug` prints the scheme only.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum PasswordHash {
    Bcrypt(Box<str>),
    Argon2(Box<str>),
    ShaCrypt(Box<str>),
    Apr1 { salt: Box<str>, digest: Box<str> },
}

/// Reason for rejecting the text of a hash. The text is a secret, so no message contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HashError {
    /// No known scheme, such as `$1$` or an unsalted digest.
    #[error(
        "the scheme of the hash is unknown or too weak; known here: bcrypt ($2y$), Argon2id ($argon2id$), SHA-crypt ($5$, $6$) \
         and apr1 ($apr1$). `htpasswd -B FILE NAME` writes bcrypt"
    )]
    Scheme,
    /// Not a hash of the scheme.
    #[error("the hash is damaged: it has the prefix of {0}, but not its form")]
    Form(&'static str),
    /// A verification would take too much time or memory.
    #[error("the cost of the hash is too high: {0}")]
    Cost(&'static str),
}

impl PasswordHash {
    /// Reads a hash in the modular crypt format.
    ///
    /// # Errors
    ///
    /// [`HashError`] for other schemes, damaged hashes, and hashes of which one verification would occupy a thread for
    /// many seconds.
    pub(super) fn read(text: &str) -> Result<Self, HashError> {
        let owned = || Box::from(text);
        if let Some(rest) = text.strip_prefix("$apr1$") {
            let wrong = HashError::Form("apr1");
            let (salt, digest) = rest.split_once('$').ok_or(wrong)?;
            // Apache reads eight characters of a salt. A longer salt would give another hash here.
            let is_right = salt.len() <= 8 && digest.len() == apr1::LENGTH && is_encoded(digest);
            return is_right.then(|| Self::Apr1 { salt: salt.into(), digest: digest.into() }).ok_or(wrong);
        }
        if text.starts_with("$argon2id$") {
            return check_argon2(text).map(|()| Self::Argon2(owned()));
        }
        if text.starts_with("$5$") || text.starts_with("$6$") {
            return check_sha_crypt(text).map(|()| Self::ShaCrypt(owned()));
        }
        if ["$2a$", "$2b$", "$2y$"].iter().any(|prefix| text.starts_with(prefix)) {
            let parts: bcrypt::HashParts = text.parse().map_err(|_| HashError::Form("bcrypt"))?;
            return match parts.get_cost() {
                0..4 | 32.. => Err(HashError::Form("bcrypt")),
                4..=BCRYPT_COST => Ok(Self::Bcrypt(owned())),
                _ => Err(HashError::Cost("at most 16 for bcrypt")),
            };
        }
        Err(HashError::Scheme)
    }

    /// Whether `password` has this hash. Takes a time that depends on the cost of the hash, not on the password.
    pub(super) fn is_of(&self, password: &[u8]) -> bool {
        match self {
            // The error is ignored: `read` has examined the form of the hash.
            Self::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            Self::Argon2(hash) => {
                Phc::new(hash).is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok())
            }
            Self::ShaCrypt(hash) => PasswordHashRef::new(hash)
                .is_ok_and(|hash| ShaCrypt::default().verify_password(password, hash).is_ok()),
            Self::Apr1 { salt, digest } => {
                apr1::hash(password, salt.as_bytes()).ct_eq(digest.as_bytes()).into()
            }
        }
    }
}

fn check_argon2(text: &str) -> Result<(), HashError> {
    let wrong = HashError::Form("Argon2id");
    let hash = Phc::new(text).map_err(|_| wrong)?;
    let params = Params::try_from(&hash).map_err(|_| wrong)?;
    let is_whole = hash.salt.is_some() && hash.hash.is_some();
    // Hashes without a version were written before the version 1.3 existed.
    let version = hash.version.map_or(Ok(Version::V0x10), Version::try_from);
    if !is_whole || version.is_err() || Algorithm::new(hash.algorithm.as_str()) != Ok(Algorithm::Argon2id) {
        return Err(wrong);
    }
    // The time grows with the product: a hash with little memory may have millions of passes.
    let work = u64::from(params.m_cost()) * u64::from(params.t_cost());
    if params.m_cost() > ARGON2_MEMORY || work > ARGON2_WORK {
        return Err(HashError::Cost(
            "at most m=262144 for Argon2id, and at most 4194304 for the product of m and t",
        ));
    }
    Ok(())
}

fn check_sha_crypt(text: &str) -> Result<(), HashError> {
    let wrong = HashError::Form("SHA-crypt");
    let length = if text.starts_with("$5$") { 43 } else { 86 };
    let (rounds, digest) = match *text[3..].split('$').collect::<Vec<_>>() {
        [_, digest] => (None, digest),
        [rounds, _, digest] => (Some(rounds.strip_prefix("rounds=").ok_or(wrong)?), digest),
        _ => return Err(wrong),
    };
    if digest.len() != length || !is_encoded(digest) || PasswordHashRef::new(text).is_err() {
        return Err(wrong);
    }
    // A hash without `rounds` has 5,000 by the definition of SHA-crypt.
    match rounds.map_or(Ok(5000), str::parse) {
        Ok(1000..=SHA_ROUNDS) => Ok(()),
        Ok(..1000_u32) | Err(_) => Err(wrong),
        Ok(_) => Err(HashError::Cost("at most rounds=1000000 for SHA-crypt")),
    }
}

/// Whether all bytes are digits of the base64 of `crypt`.
fn is_encoded(digest: &str) -> bool {
    digest.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/'))
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bcrypt(_) => "Bcrypt",
            Self::Argon2(_) => "Argon2",
            Self::ShaCrypt(_) => "ShaCrypt",
            Self::Apr1 { .. } => "Apr1",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes of `password`, made by `htpasswd -B` and `-m`, libcrypt, `openssl passwd`, and the reference implementation of
    /// Argon2.
    const HASHES: &[&str] = &[
        "$2y$04$C4ZddzkBF/vttCyWS1xO/OIl9/DfdpmWyqmg3nHE9AkEPs3beQBlC",
        "$2b$05$abcdefghijklmnopqrstuuWG29KuyeAicPCJODk1zjyGvyQUU2awu",
        "$apr1$hr2cnLuZ$3TdZAg4EXwNmLr7/z5srk.",
        "$apr1$8charsal$xES.S6d4oPTiVAh2XwVyp/",
        "$5$saltstring$OH4IDuTlsuTYPdED1gsuiRMyTAwNlRWyA6Xr3I4/dQ5",
        "$6$saltstring$adDbXsJjcDlq2662QPgd.tkSOVmnG9Tt3oXl4HR60SusC3AGjirnDenVZp3DGwLwqy6iYKCzannhaX9DR72nN1",
        "$5$rounds=1000$saltstring$S2dlplsLzofRuJ/frAjtaYev58CdqEN6fUby2laILG1",
        "$6$rounds=1400$anotherlongsalts$PAZqpKUKGek9w8oPgIGPxV0Y72OmDpdCthOX9H9O.5R1UbUeZcZS09hlVOfEnTt.66Pdgt7Jvf5Fcex6JIQox/",
        "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
    ];

    #[test]
    fn hashes_of_other_programs_are_verified() {
        for text in HASHES {
            let hash = PasswordHash::read(text).expect(text);
            assert!(hash.is_of(b"password"), "{text}");
            for wrong in [&b"Password"[..], b"", b"password ", b"passwor"] {
                assert!(!hash.is_of(wrong), "{text}");
            }
            assert!(!format!("{hash:?}").contains('$'), "{hash:?}");
        }
    }

    #[test]
    fn other_schemes_damaged_hashes_and_high_costs_are_refused() {
        for text in
            ["", "secret", "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", "$1$abc$d", "$2x$04$", "$argon2i$v=19$"]
        {
            assert_eq!(PasswordHash::read(text), Err(HashError::Scheme), "{text}");
        }
        for text in HASHES {
            for wrong in
                [&text[..text.len() - 1], &format!("{text}$"), &format!("{text}*"), &text.replace('$', "$$")]
            {
                let error = PasswordHash::read(wrong).expect_err(wrong);
                assert!(matches!(error, HashError::Form(_) | HashError::Scheme), "{wrong}: {error}");
            }
        }
        let replaced = |scheme: &str, from: &str, to: &str| {
            let text = HASHES.iter().find(|text| text.starts_with(scheme)).expect(scheme);
            PasswordHash::read(&text.replacen(from, to, 1))
        };
        assert!(matches!(replaced("$2y$", "$04$", "$17$"), Err(HashError::Cost(_))));
        assert!(matches!(replaced("$5$rounds", "=1000", "=1000001"), Err(HashError::Cost(_))));
        assert!(matches!(replaced("$argon2id$", "m=256", "m=262145"), Err(HashError::Cost(_))));
        assert!(matches!(replaced("$argon2id$", "t=2", "t=4000000"), Err(HashError::Cost(_))));
        assert_eq!(replaced("$2y$", "$04$", "$03$"), Err(HashError::Form("bcrypt")));
        assert_eq!(replaced("$5$rounds", "=1000", "=999"), Err(HashError::Form("SHA-crypt")));
    }
}
