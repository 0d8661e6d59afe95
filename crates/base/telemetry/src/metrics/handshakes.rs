//! Counters of handshakes, by negotiated parameters and by outcome.

use std::sync::atomic::{AtomicU64, Ordering};

use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};

use super::histogram::{Histogram, Totals};
use crate::outcome::{EarlyData, HandshakeOutcome, Resumption, ResumptionFailure};
use crate::record::TlsFacts;

const VERSIONS: Axis<2> = Axis([ProtocolVersion::TLS1_2.0, ProtocolVersion::TLS1_3.0]);
const SUITES: Axis<9> = Axis([
    CipherSuite::TLS_AES_128_GCM_SHA256.0,
    CipherSuite::TLS_AES_256_GCM_SHA384.0,
    CipherSuite::TLS_CHACHA20_POLY1305_SHA256.0,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256.0,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384.0,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256.0,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256.0,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384.0,
    CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256.0,
]);
const GROUPS: Axis<4> = Axis([
    NamedGroup::X25519MLKEM768.0,
    NamedGroup::X25519.0,
    NamedGroup::SECP256R1.0,
    NamedGroup::SECP384R1.0,
]);
const SCHEMES: Axis<10> = Axis([
    SignatureScheme::ECDSA_SECP256R1_SHA256.0,
    SignatureScheme::ECDSA_SECP384R1_SHA384.0,
    SignatureScheme::ECDSA_SECP521R1_SHA512.0,
    SignatureScheme::ED25519.0,
    SignatureScheme::RSA_PSS_RSAE_SHA256.0,
    SignatureScheme::RSA_PSS_RSAE_SHA384.0,
    SignatureScheme::RSA_PSS_RSAE_SHA512.0,
    SignatureScheme::RSA_PKCS1_SHA256.0,
    SignatureScheme::RSA_PKCS1_SHA384.0,
    SignatureScheme::RSA_PKCS1_SHA512.0,
]);
const RESUMPTIONS: usize = Resumption::ALL.len();
const OUTCOMES: usize = HandshakeOutcome::ALL.len();
// 15,840 cells, 124 KiB: cheaper than a map, which would need a hash and a lock for each handshake.
const CELLS: usize = VERSIONS.len() * SUITES.len() * GROUPS.len() * SCHEMES.len() * RESUMPTIONS;
const TIMES: usize = VERSIONS.len() * GROUPS.len() * RESUMPTIONS;

/// The code points with their own label; two more indices are for `none` and for all `other` ones.
struct Axis<const N: usize>([u16; N]);

impl<const N: usize> Axis<N> {
    const fn len(&self) -> usize {
        self.0.len() + 2
    }

    fn index(&self, code_point: Option<u16>) -> usize {
        match code_point {
            // Resumed sessions without a key exchange or signature are no `other`: they would look
            // like unknown parameters.
            None => N,
            Some(value) => self.0.iter().position(|known| *known == value).unwrap_or(N + 1),
        }
    }

    fn label(&self, index: usize, name: impl Fn(u16) -> Option<&'static str>) -> &'static str {
        match self.0.get(index) {
            Some(code_point) => name(*code_point).unwrap_or("other"),
            None if index == N => "none",
            None => "other",
        }
    }
}

/// Handshake counters. A handshake costs several ns here: its counter is one of [`CELLS`], found by position, not by label.
#[derive(Debug)]
pub(super) struct Handshakes {
    complete: Box<[AtomicU64]>,
    failed: [AtomicU64; OUTCOMES],
    times: Box<[Histogram]>,
    hello_retries: AtomicU64,
    resumption_failures: [AtomicU64; ResumptionFailure::ALL.len()],
    early_data: [AtomicU64; EarlyData::ALL.len()],
}

/// A combination of negotiated parameters with its number of handshakes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Agreed {
    pub(super) version: &'static str,
    pub(super) suite: &'static str,
    pub(super) group: &'static str,
    pub(super) scheme: &'static str,
    pub(super) resumption: &'static str,
    pub(super) count: u64,
}

impl Handshakes {
    pub(super) fn new() -> Self {
        Self {
            complete: (0..CELLS).map(|_| AtomicU64::new(0)).collect(),
            failed: [const { AtomicU64::new(0) }; OUTCOMES],
            times: (0..TIMES).map(|_| Histogram::default()).collect(),
            hello_retries: AtomicU64::new(0),
            resumption_failures: Default::default(),
            early_data: Default::default(),
        }
    }

    /// Counts a handshake that succeeded, in a cell of [`Agreed`].
    pub(super) fn complete(&self, tls: &TlsFacts) {
        let version = VERSIONS.index(Some(tls.version.0));
        let group = GROUPS.index(tls.group.map(|group| group.0));
        let scheme = SCHEMES.index(tls.scheme.map(|scheme| scheme.0));
        let resumption = tls.resumption as usize;
        // The order of the factors is reversed in `agreed` and in `times`; change all three together.
        let suite = SUITES.index(Some(tls.suite.0));
        let agreed = (version * SUITES.len() + suite) * GROUPS.len() + group;
        let cell = (agreed * SCHEMES.len() + scheme) * RESUMPTIONS + resumption;
        self.complete[cell].fetch_add(1, Ordering::Relaxed);
        let time = (version * GROUPS.len() + group) * RESUMPTIONS + resumption;
        self.times[time].observe(tls.handshake_time);
        if tls.hello_retry {
            self.hello_retries.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(reason) = tls.resumption_failure {
            self.resumption_failed(reason);
        }
    }

    /// Counts a session that was not resumed, by [`ResumptionFailure`].
    pub(super) fn resumption_failed(&self, reason: ResumptionFailure) {
        self.resumption_failures[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts early data by its outcome, [`EarlyData`].
    pub(super) fn early_data(&self, outcome: EarlyData) {
        self.early_data[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a handshake that ended with `outcome`.
    pub(super) fn failed(&self, outcome: HandshakeOutcome) {
        self.failed[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Each [`Agreed`] combination with a count above zero.
    pub(super) fn agreed(&self) -> impl Iterator<Item = Agreed> + '_ {
        self.complete.iter().enumerate().filter_map(|(cell, count)| {
            let count = count.load(Ordering::Relaxed);
            // Zeros are left out, because a scrape would otherwise have a series for each of the cells.
            (count > 0).then(|| agreed(cell, count))
        })
    }

    /// Failures by [`HandshakeOutcome`], including outcomes with a count of zero.
    pub(super) fn failures(&self) -> impl Iterator<Item = (HandshakeOutcome, u64)> + '_ {
        let counts = self.failed.iter().map(|count| count.load(Ordering::Relaxed));
        let failures = HandshakeOutcome::ALL.iter().copied().zip(counts);
        // Completed handshakes are counted by parameters: an entry here would be a failure that never occurs.
        failures.filter(|(outcome, _)| *outcome != HandshakeOutcome::Complete)
    }

    /// Handshake times by version, group and resumption, where there were any.
    pub(super) fn times(
        &self,
    ) -> impl Iterator<Item = (&'static str, &'static str, Resumption, Totals)> + '_ {
        self.times.iter().enumerate().filter_map(|(index, histogram)| {
            let totals = Totals::of([histogram]);
            let resumption = Resumption::ALL[index % RESUMPTIONS];
            let (version, group) = (index / RESUMPTIONS / GROUPS.len(), index / RESUMPTIONS % GROUPS.len());
            (totals.count() > 0).then(|| (version_label(version), group_label(group), resumption, totals))
        })
    }

    /// Handshakes that took another round trip for the key share (`HelloRetryRequest`).
    pub(super) fn hello_retries(&self) -> u64 {
        self.hello_retries.load(Ordering::Relaxed)
    }

    /// Sessions that were not resumed, by reason, including reasons with a count of zero.
    pub(super) fn resumption_failures(&self) -> impl Iterator<Item = (ResumptionFailure, u64)> + '_ {
        let counts = self.resumption_failures.iter().map(|count| count.load(Ordering::Relaxed));
        ResumptionFailure::ALL.iter().copied().zip(counts)
    }

    /// Connections with early data by [`EarlyData`], including outcomes that never occurred.
    pub(super) fn early_data_outcomes(&self) -> impl Iterator<Item = (EarlyData, u64)> + '_ {
        let counts = self.early_data.iter().map(|count| count.load(Ordering::Relaxed));
        EarlyData::ALL.iter().copied().zip(counts)
    }
}

fn agreed(cell: usize, count: u64) -> Agreed {
    let (rest, resumption) = (cell / RESUMPTIONS, cell % RESUMPTIONS);
    let (rest, scheme) = (rest / SCHEMES.len(), rest % SCHEMES.len());
    let (rest, group) = (rest / GROUPS.len(), rest % GROUPS.len());
    let (version, suite) = (rest / SUITES.len(), rest % SUITES.len());
    Agreed {
        version: version_label(version),
        suite: SUITES.label(suite, |value| CipherSuite(value).name()),
        group: group_label(group),
        scheme: SCHEMES.label(scheme, |value| SignatureScheme(value).name()),
        resumption: Resumption::ALL[resumption].name(),
        count,
    }
}

fn group_label(index: usize) -> &'static str {
    GROUPS.label(index, |value| NamedGroup(value).name())
}

fn version_label(index: usize) -> &'static str {
    VERSIONS.label(index, |value| ProtocolVersion(value).name())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use brisk_wire::registry::CipherSuite;

    use super::*;

    fn facts() -> TlsFacts {
        TlsFacts {
            version: ProtocolVersion::TLS1_3,
            suite: CipherSuite::TLS_AES_128_GCM_SHA256,
            group: Some(NamedGroup::X25519MLKEM768),
            scheme: Some(SignatureScheme::ECDSA_SECP256R1_SHA256),
            resumption: Resumption::Full,
            resumption_failure: None,
            early_data: None,
            server_name: None,
            alpn: None,
            client_subject: None,
            client_chain: Box::default(),
            fingerprints: None,
            hello_retry: false,
            handshake_time: Duration::from_millis(3),
        }
    }

    #[test]
    fn every_combination_comes_back_under_its_own_labels() {
        let handshakes = Handshakes::new();
        handshakes.complete(&facts());
        handshakes.complete(&facts());
        handshakes.complete(&TlsFacts { resumption: Resumption::Psk, scheme: None, ..facts() });
        handshakes.complete(&TlsFacts {
            version: ProtocolVersion::TLS1_2,
            group: Some(NamedGroup(0x1234)),
            scheme: Some(SignatureScheme::RSA_PKCS1_SHA512),
            resumption: Resumption::Ticket,
            ..facts()
        });
        let labels: Vec<_> = handshakes
            .agreed()
            .map(|agreed| {
                (agreed.version, agreed.suite, agreed.group, agreed.scheme, agreed.resumption, agreed.count)
            })
            .collect();
        assert_eq!(
            labels,
            [
                ("TLS 1.2", "TLS_AES_128_GCM_SHA256", "other", "rsa_pkcs1_sha512", "ticket", 1),
                ("TLS 1.3", "TLS_AES_128_GCM_SHA256", "X25519MLKEM768", "ecdsa_secp256r1_sha256", "full", 2),
                ("TLS 1.3", "TLS_AES_128_GCM_SHA256", "X25519MLKEM768", "none", "psk", 1),
            ]
        );
    }

    #[test]
    fn times_are_kept_apart_by_version_group_and_resumption() {
        let handshakes = Handshakes::new();
        handshakes.complete(&facts());
        handshakes.complete(&TlsFacts { resumption: Resumption::Psk, hello_retry: true, ..facts() });
        let times: Vec<_> =
            handshakes.times().map(|(version, group, resumption, _)| (version, group, resumption)).collect();
        assert_eq!(
            times,
            [("TLS 1.3", "X25519MLKEM768", Resumption::Full), ("TLS 1.3", "X25519MLKEM768", Resumption::Psk)]
        );
        assert_eq!(handshakes.hello_retries(), 1);
    }

    #[test]
    fn failures_are_counted_by_outcome() {
        let handshakes = Handshakes::new();
        for (index, outcome) in HandshakeOutcome::ALL.iter().enumerate() {
            (0..index).for_each(|_| handshakes.failed(*outcome));
        }
        for (outcome, count) in handshakes.failures() {
            assert_eq!(count, outcome as u64, "{outcome}");
        }
    }
}
