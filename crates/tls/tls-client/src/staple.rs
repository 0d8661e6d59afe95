//! `ClientHello` messages without a request for a stapled OCSP response.
//!
//! rustls always requests one. To omit the request, the extension `status_request` is renumbered to one that every
//! server ignores (RFC 8701), both in the sent bytes and in the hashed transcript. Nothing else changes, not even a
//! length.

use std::sync::LazyLock;

use brisk_tls_base::suites;
use rustls::crypto::CipherSuiteCommon;
use rustls::crypto::hash::{Context, Hash, HashAlgorithm, Output};
use rustls::{SupportedCipherSuite, Tls12CipherSuite, Tls13CipherSuite};

/// `status_request` (RFC 6066 section 8).
const STATUS_REQUEST: [u8; 2] = [0, 5];

/// An extension number that is reserved for testing that servers ignore unknown ones (RFC 8701).
const IGNORED: [u8; 2] = [0x1a, 0x1a];

/// Message types (RFC 8446 section 4): `client_hello`, and `message_hash`, which replaces a first hello.
const CLIENT_HELLO: u8 = 1;
const MESSAGE_HASH: u8 = 254;

/// The suite, with a transcript in which hellos contain no staple request.
pub(super) fn without_request(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    static SUITES: LazyLock<Vec<SupportedCipherSuite>> =
        LazyLock::new(|| suites().iter().map(wrap).collect());
    SUITES.iter().find(|wrapped| wrapped.suite() == suite.suite()).copied().unwrap_or(suite)
}

/// Created and leaked once for each suite, because rustls needs a static lifetime.
fn wrap(suite: &SupportedCipherSuite) -> SupportedCipherSuite {
    let common = |common: &CipherSuiteCommon| CipherSuiteCommon {
        suite: common.suite,
        // The hash is the only part of a suite that sees the bytes of the hello, so it is the place for the
        // change.
        hash_provider: Box::leak(Box::new(WithoutRequest(common.hash_provider))),
        confidentiality_limit: common.confidentiality_limit,
    };
    match suite {
        SupportedCipherSuite::Tls12(suite) => {
            SupportedCipherSuite::Tls12(Box::leak(Box::new(Tls12CipherSuite {
                common: common(&suite.common),
                prf_provider: suite.prf_provider,
                kx: suite.kx,
                sign: suite.sign,
                aead_alg: suite.aead_alg,
            })))
        }
        SupportedCipherSuite::Tls13(suite) => {
            SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
                common: common(&suite.common),
                hkdf_provider: suite.hkdf_provider,
                aead_alg: suite.aead_alg,
                quic: suite.quic,
            })))
        }
    }
}

/// A hash of handshake messages. rustls passes each message completely and separately, except hellos, which it passes
/// together with the preceding messages.
struct WithoutRequest(&'static dyn Hash);

impl Hash for WithoutRequest {
    fn start(&self) -> Box<dyn Context> {
        Box::new(Transcript(self.0.start()))
    }

    fn hash(&self, data: &[u8]) -> Output {
        self.0.hash(data)
    }

    fn output_len(&self) -> usize {
        self.0.output_len()
    }

    fn algorithm(&self) -> HashAlgorithm {
        self.0.algorithm()
    }
}

struct Transcript(Box<dyn Context>);

impl Context for Transcript {
    fn fork_finish(&self) -> Output {
        self.0.fork_finish()
    }

    fn fork(&self) -> Box<dyn Context> {
        Box::new(Self(self.0.fork()))
    }

    fn finish(self: Box<Self>) -> Output {
        self.0.finish()
    }

    fn update(&mut self, data: &[u8]) {
        if matches!(data.first(), Some(&(CLIENT_HELLO | MESSAGE_HASH))) {
            let mut messages = data.to_vec();
            omit_request(&mut messages);
            self.0.update(&messages);
        } else {
            self.0.update(data);
        }
    }
}

/// Replaces [`STATUS_REQUEST`] by [`IGNORED`] in the `ClientHello` of a record that is about to be sent.
pub(super) fn omit_from_record(record: &mut [u8]) {
    if let [22, _, _, _, _, messages @ ..] = record {
        omit_request(messages);
    }
}

/// Replaces [`STATUS_REQUEST`] by [`IGNORED`] in each `ClientHello` among these messages, the last of which may be incomplete.
pub(super) fn omit_request(mut messages: &mut [u8]) {
    while let [kind, high, middle, low, rest @ ..] = messages {
        let len = (u32::from_be_bytes([0, *high, *middle, *low]) as usize).min(rest.len());
        let (body, after) = rest.split_at_mut(len);
        if *kind == CLIENT_HELLO {
            let at = status_request(body);
            if let Some(at) = at {
                body[at..at + 2].copy_from_slice(&IGNORED);
            }
        }
        messages = after;
    }
}

/// Position of [`STATUS_REQUEST`] in the body of a `ClientHello` (RFC 8446 section 4.1.2).
fn status_request(hello: &[u8]) -> Option<usize> {
    let two = |at: usize| Some(usize::from(u16::from_be_bytes([*hello.get(at)?, *hello.get(at + 1)?])));
    let mut at = 2 + 32;
    at += 1 + usize::from(*hello.get(at)?);
    at += 2 + two(at)?;
    at += 1 + usize::from(*hello.get(at)?);
    at += 2;
    loop {
        if hello.get(at..at + 2)? == STATUS_REQUEST {
            return Some(at);
        }
        at += 4 + two(at + 2)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hello with `server_name` (empty), `status_request` and `psk_key_exchange_modes`, as a message.
    fn hello() -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([1, 0xaa, 0, 2, 0x13, 1, 1, 0]);
        body.extend([0, 19, 0, 0, 0, 0, 0, 5, 0, 5, 1, 0, 0, 0, 0, 0, 45, 0, 2, 1, 1]);
        let mut message = vec![CLIENT_HELLO, 0, 0, u8::try_from(body.len()).expect("short")];
        message.extend(body);
        message
    }

    #[test]
    fn the_request_and_nothing_else_gets_another_number() {
        let before = hello();
        let mut after = before.clone();
        omit_request(&mut after);
        let changed: Vec<usize> = (0..before.len()).filter(|&at| before[at] != after[at]).collect();
        assert_eq!(changed.len(), 2);
        assert_eq!(after[changed[0]..=changed[1]], IGNORED);
    }

    #[test]
    fn a_hello_after_a_retry_and_one_without_its_end_are_found() {
        let mut retried = vec![MESSAGE_HASH, 0, 0, 2, 9, 9];
        retried.extend(hello());
        omit_request(&mut retried);
        assert!(retried.windows(2).any(|pair| pair == IGNORED));
        let mut cut = hello();
        cut.truncate(cut.len() - 5);
        omit_request(&mut cut);
        assert!(cut.windows(2).any(|pair| pair == IGNORED));
    }

    #[test]
    fn what_is_no_hello_stays() {
        for len in 0..hello().len() {
            let mut cut = hello()[..len].to_vec();
            omit_request(&mut cut);
        }
        let before = vec![2, 0, 0, 4, 0, 5, 0, 5];
        let mut after = before.clone();
        omit_request(&mut after);
        assert_eq!(before, after);
    }
}
