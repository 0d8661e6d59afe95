//! Cipher suites of TLS registered by IANA or formerly in use, with the properties in their names.
//!
//! `registry::CipherSuite` names the few that brisk negotiates; this list is for probes, which offer all of them.

use std::sync::LazyLock;

use crate::registry::CipherSuite;

/// Key exchange of a suite of TLS 1.2 and earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exchange {
    /// TLS 1.3: the suite does not determine the key exchange.
    Any,
    /// RSA encryption of the premaster secret: no forward secrecy.
    Rsa,
    /// Diffie-Hellman with fixed keys of certificates: no forward secrecy.
    StaticDh,
    /// Ephemeral Diffie-Hellman over a prime.
    Dhe,
    /// Ephemeral Diffie-Hellman over a curve.
    Ecdhe,
    /// A secret that both sides have from elsewhere (PSK, SRP, Kerberos).
    Shared,
}

/// Encryption of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cipher {
    /// Authenticated encryption (GCM, CCM, ChaCha20-Poly1305).
    Aead,
    /// A block cipher with HMAC.
    Cbc,
    /// Triple DES.
    TripleDes,
    /// RC4.
    Rc4,
    /// None.
    Null,
}

/// Properties in the name of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suite {
    /// The number.
    pub code: CipherSuite,
    /// The registered name.
    pub name: &'static str,
    /// Key exchange.
    pub exchange: Exchange,
    /// Encryption.
    pub cipher: Cipher,
    /// Bits of strength: 0 for none, 40 and 56 for export suites and DES, 112 for Triple DES.
    pub bits: u16,
    /// The server proves nothing of itself.
    pub is_anonymous: bool,
    /// Made weak for export from the United States of before 2000.
    pub is_export: bool,
}

impl Suite {
    /// Whether keys of the server cannot decrypt recorded traffic (forward secrecy).
    pub fn has_forward_secrecy(&self) -> bool {
        // Those with a shared secret may exchange keys beside it (RFC 4279, 5489).
        matches!(self.exchange, Exchange::Any | Exchange::Dhe | Exchange::Ecdhe)
            || self.name.contains("DHE_PSK")
    }

    /// Whether the suite belongs to TLS 1.3.
    pub fn is_tls13(&self) -> bool {
        self.exchange == Exchange::Any
    }

    fn read(line: &'static str) -> Option<Self> {
        let (code, name) = line.split_once(' ')?;
        let code = CipherSuite(u16::from_str_radix(code, 16).ok()?);
        let (kind, cipher) = name.split_once("_WITH_").unwrap_or(("", name));
        let is_anonymous = kind.contains("_anon");
        let is_export = kind.contains("EXPORT");
        Some(Self {
            code,
            name,
            exchange: exchange(kind),
            cipher: kind_of_cipher(cipher),
            bits: bits(cipher),
            is_anonymous,
            is_export,
        })
    }
}

/// All of them, in the order of their numbers. Read once, in some microseconds.
pub fn all() -> &'static [Suite] {
    static ALL: LazyLock<Vec<Suite>> = LazyLock::new(|| {
        let mut all: Vec<_> = include_str!("suites.txt").lines().filter_map(Suite::read).collect();
        all.sort_by_key(|suite| suite.code);
        all
    });
    &ALL
}

/// The suite with this number.
pub fn find(code: CipherSuite) -> Option<&'static Suite> {
    let all = all();
    all.binary_search_by_key(&code, |suite| suite.code).ok().map(|index| &all[index])
}

fn exchange(kind: &str) -> Exchange {
    let has = |part: &str| kind.contains(part);
    // The order matters: `ECDHE_PSK` contains the names of two exchanges, and `ECDHE` that of a third one.
    if kind.is_empty() {
        Exchange::Any
    } else if has("PSK") || has("SRP") || has("KRB5") {
        Exchange::Shared
    } else if has("ECDHE") || has("ECDH_anon") {
        Exchange::Ecdhe
    } else if has("DHE") || has("DH_anon") {
        Exchange::Dhe
    } else if has("DH_") {
        Exchange::StaticDh
    } else {
        Exchange::Rsa
    }
}

fn kind_of_cipher(cipher: &str) -> Cipher {
    let has = |part: &str| cipher.contains(part);
    if has("NULL") {
        Cipher::Null
    } else if has("RC4") {
        Cipher::Rc4
    } else if has("3DES") {
        Cipher::TripleDes
    } else if has("GCM") || has("CCM") || has("POLY1305") {
        Cipher::Aead
    } else {
        Cipher::Cbc
    }
}

fn bits(cipher: &str) -> u16 {
    let has = |part: &str| cipher.contains(part);
    // The order matters: `3DES` and the export ciphers contain the names of usual ciphers.
    if has("NULL") {
        0
    } else if has("DES40") || has("_40") {
        40
    } else if has("_56") {
        56
    } else if has("3DES") {
        112
    } else if has("DES_") {
        56
    } else if has("_256_") || has("CHACHA20") || cipher.ends_with("_256") {
        256
    } else {
        128
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Suite {
        *all().iter().find(|suite| suite.name == name).unwrap_or_else(|| panic!("no {name}"))
    }

    #[test]
    fn no_line_is_lost_and_no_number_is_there_twice() {
        assert_eq!(all().len(), include_str!("suites.txt").lines().count());
        assert!(all().windows(2).all(|pair| pair[0].code < pair[1].code));
        for code in CipherSuite::ALL {
            let is_signal = code.name().is_some_and(|name| name.ends_with("_SCSV"));
            assert!(is_signal || find(*code).map(|suite| suite.name) == code.name(), "{code}");
        }
    }

    #[test]
    fn a_name_says_what_a_suite_is() {
        let suite = named("TLS_RSA_EXPORT_WITH_RC4_40_MD5");
        assert_eq!((suite.bits, suite.cipher, suite.exchange), (40, Cipher::Rc4, Exchange::Rsa));
        assert!(suite.is_export && !suite.has_forward_secrecy());
        let suite = named("TLS_DH_anon_WITH_AES_256_GCM_SHA384");
        assert_eq!((suite.bits, suite.cipher, suite.exchange), (256, Cipher::Aead, Exchange::Dhe));
        assert!(suite.is_anonymous);
        let suite = named("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256");
        assert!(suite.has_forward_secrecy() && suite.bits == 256);
        assert_eq!(named("TLS_RSA_WITH_3DES_EDE_CBC_SHA").bits, 112);
        assert_eq!(named("TLS_RSA_WITH_DES_CBC_SHA").bits, 56);
        assert_eq!(named("TLS_DHE_RSA_EXPORT_WITH_DES40_CBC_SHA").bits, 40);
        assert_eq!(named("TLS_DH_RSA_WITH_AES_128_CBC_SHA").exchange, Exchange::StaticDh);
        assert_eq!(named("TLS_RSA_WITH_AES_256_CCM_8").bits, 256);
        assert!(named("TLS_AES_128_GCM_SHA256").is_tls13());
        assert!(named("TLS_ECDHE_PSK_WITH_AES_128_GCM_SHA256").has_forward_secrecy());
        assert!(!named("TLS_RSA_PSK_WITH_AES_128_GCM_SHA256").has_forward_secrecy());
    }
}
