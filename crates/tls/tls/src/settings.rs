//! Settings of the TLS layer, valid by construction.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use brisk_certs::{Catalogue, Certificate, Crl, OnDemand, Served, Slot, UnknownName};
use brisk_keys::PrivateKeyEngine;
use brisk_wire::HttpVersion;
use brisk_wire::registry::ProtocolVersion;
use rustls_pki_types::CertificateDer;

use crate::demands::Demands;

/// Settings of all TLS listeners.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct TlsSettings {
    /// Minimum version: TLS 1.2 (default) or TLS 1.3. An older client gets the alert `protocol_version`.
    pub min_version: ProtocolVersion,
    /// Protocols for ALPN (RFC 7301), the preferred one first. A client that offers only other protocols is refused
    /// with `no_application_protocol`; a client without ALPN is accepted. Default: `h2`, `http/1.1`, `http/1.0`.
    pub protocols: Vec<HttpVersion>,
    /// Issue and accept session tickets. Default: yes.
    pub tickets: bool,
    /// Tickets sent after each full TLS 1.3 handshake, 0 to 8. Each costs a seal and about 230 bytes of the first
    /// flight. Default: 1.
    pub tickets_per_handshake: usize,
    /// Keep TLS 1.3 sessions in the session store, each for one use, instead of tickets. Hosts that accept early data
    /// do so in any case. Default: no.
    pub stateful: bool,
    /// Lifetime of a session from the handshake that made it. Default: 24 hours; RFC 8446 section 4.6.1 permits at most
    /// 7 days. A session in the store (TLS 1.3, or by session ID) lives for at most 24 hours: this lifetime is
    /// announced to clients, and a shorter setting merely removes sessions earlier.
    pub session_lifetime: Duration,
    /// Compress certificates (RFC 8879) for clients that offer it; results are cached. Default: yes.
    pub certificate_compression: bool,
    /// Size of the records of responses. Default: growing.
    pub records: Records,
    /// Maximum size of a `ClientHello` in bytes. Default: 16 KiB; a post-quantum hello has about 1.8 KiB.
    pub hello_size: usize,
    /// Handling of an unknown server name: the default host, or the alert `unrecognized_name` (RFC 6066 section 3). A client
    /// without a server name always gets the default host.
    pub unknown_host: UnknownName,
    /// Prepare the hosts for QUIC too, with the protocol `h3` and TLS 1.3 only. Default: no.
    pub quic: bool,
    /// Compute the JA4 fingerprint of each client, for [`TlsFacts::fingerprints`](brisk_telemetry::TlsFacts::fingerprints).
    /// Default: no.
    pub ja4: bool,
    /// Compute the fingerprints of client certificates. Default: no.
    pub client_fingerprints: bool,
    /// Write the secrets of every connection to the file named by `SSLKEYLOGFILE`. For debugging only.
    pub key_log: bool,
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self {
            min_version: ProtocolVersion::TLS1_2,
            protocols: HttpVersion::OVER_TCP.to_vec(),
            tickets: true,
            tickets_per_handshake: 1,
            stateful: false,
            session_lifetime: Duration::from_hours(24),
            certificate_compression: true,
            records: Records::Growing,
            hello_size: 16 * 1024,
            unknown_host: UnknownName::Default,
            quic: false,
            ja4: false,
            client_fingerprints: false,
            key_log: false,
        }
    }
}

/// Size of the records of responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// Small at the beginning of a response, so that the first bytes can be decrypted when the first segments arrive,
    /// and full after 14 KB, until the connection has sent nothing large for a second.
    Growing,
    /// As large as TLS permits, 16 KiB, if there is enough to send.
    Full,
}

impl Records {
    /// [`Records::Growing`] if `is_growing`, otherwise [`Records::Full`].
    pub const fn new(is_growing: bool) -> Self {
        if is_growing { Self::Growing } else { Self::Full }
    }
}

/// TLS settings of one host.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and they occur in any combination"
)]
pub struct HostSettings {
    /// Exact names and `*.` wildcards, in lower case.
    pub names: Vec<String>,
    /// Whether this host serves clients without a server name. If no host is the default, the first one is.
    pub default: bool,
    /// Certificates from its files, [published](Self::publish) when these settings are applied.
    pub certificates: Vec<Arc<Certificate>>,
    /// Whether its certificates are obtained at run time and published into `slot`. Handshakes are refused until the
    /// first is published. Default: no, certificates are from files.
    pub obtained: bool,
    /// Whether no listener for TLS exists, so that the host needs no certificate. Default: no.
    pub without_tls: bool,
    /// The certificates that the host presents; each client gets the first kind that it can verify, ECDSA before RSA. A
    /// reload keeps the slot of a host with the same names.
    pub slot: Arc<Slot>,
    /// Certificates of further names, which are names of this host too. They take precedence over `certificates`.
    pub catalogue: Option<Arc<Catalogue>>,
    /// Certificates of names that are decided at run time and that no host has otherwise.
    pub on_demand: Option<Arc<OnDemand>>,
    /// [`Demands`] on client certificates. Default: none.
    pub demands: Demands,
    /// Maximum bytes of early data from a client that resumes; 0, the default, accepts none. A host that requests
    /// client certificates accepts none in any case. Early data needs a session that no other gateway of the fleet can
    /// use, whose age as reported by the client is within 60 s of its real age (RFC 8446 section 8.3), with the same
    /// name, suite and protocol. If early data is refused, as many bytes are skipped, including an overhead of 17 bytes
    /// per record; a client that sends more is refused.
    pub early_data: u32,
    /// Numbers of tickets that a handshake may send instead of
    /// [`tickets_per_handshake`](TlsSettings::tickets_per_handshake), if its [variant](Variant::tickets) requests it.
    /// Default: none.
    pub other_tickets: Vec<usize>,
    /// Whether the host can be reached over QUIC, if [`TlsSettings::quic`] is set. Default: yes.
    pub quic: bool,
    /// Protocols for ALPN in place of [`TlsSettings::protocols`], the preferred one first. Without any, a client's ALPN is
    /// ignored. Default: `None`, those of all hosts.
    pub protocols: Option<Vec<Box<[u8]>>>,
}

/// Settings of a single connection that replace those of its listener or host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    /// Tickets after its handshake; `None` keeps [`TlsSettings::tickets_per_handshake`]. One of
    /// [`HostSettings::other_tickets`]; any other number has no effect.
    pub tickets: Option<usize>,
    /// Size of its records; `None` keeps [`TlsSettings::records`].
    pub records: Option<Records>,
}

impl HostSettings {
    /// A host with these names, without certificate, client certificates and early data.
    pub fn new(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            names: names.into_iter().map(Into::into).collect(),
            default: false,
            certificates: Vec::new(),
            obtained: false,
            without_tls: false,
            slot: Slot::new(),
            catalogue: None,
            on_demand: None,
            demands: Demands::default(),
            early_data: 0,
            other_tickets: Vec::new(),
            quic: true,
            protocols: None,
        }
    }

    /// Index of the host for clients without a server name: the first [default](Self::default), otherwise the first.
    pub fn default_of<'a>(hosts: impl IntoIterator<Item = &'a Self>) -> usize {
        hosts.into_iter().position(|host| host.default).unwrap_or(0)
    }

    /// Publishes the certificates from its files for new handshakes. `engine` has their keys. Has no effect on a host
    /// whose certificates are [obtained](Self::obtained).
    pub fn publish(&self, engine: &Arc<dyn PrivateKeyEngine>) {
        if self.obtained {
            return;
        }
        let served = |certificate| Served::new(Arc::clone(certificate), Arc::clone(engine));
        self.slot.publish(self.certificates.iter().map(served).collect());
    }

    /// Whether an [`Acceptor`](crate::Acceptor) that was made for `other` can serve this host too, regardless of
    /// certificates.
    pub fn is_accepted_like(&self, other: &Self) -> bool {
        // Without `..`, so that a new field has to be considered here.
        let Self {
            names,
            default,
            // Published into the slot, which the acceptor reads at each handshake.
            certificates: _,
            obtained: _,
            without_tls: _,
            slot,
            catalogue,
            on_demand,
            demands,
            early_data,
            other_tickets,
            quic,
            protocols,
        } = self;
        let same_catalogue = catalogue.as_ref().map(Arc::as_ptr) == other.catalogue.as_ref().map(Arc::as_ptr);
        *names == other.names
            && same_catalogue
            && on_demand.as_ref().map(Arc::as_ptr) == other.on_demand.as_ref().map(Arc::as_ptr)
            && *default == other.default
            // The same slot, because the acceptor keeps a reference to it.
            && Arc::ptr_eq(slot, &other.slot)
            && *demands == other.demands
            && *early_data == other.early_data
            && *other_tickets == other.other_tickets
            && *quic == other.quic
            && *protocols == other.protocols
    }
}

/// How clients authenticate by certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificates {
    /// Whether handshakes without a certificate fail; otherwise only invalid certificates are refused.
    pub required: bool,
    /// The authorities of client certificates, in DER.
    pub roots: Vec<CertificateDer<'static>>,
    /// Revoked certificates of these authorities. Default: none.
    pub revocation: Option<Revocation>,
    /// Keep the client's certificates for the life of the connection, to forward them to upstreams; some kilobytes for
    /// each. Default: no.
    pub keep: bool,
}

/// Revocation of client certificates. A certificate on a list is refused with `certificate_revoked`, and so are those
/// below it. Sessions made under other lists are not resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// The lists; at least one.
    pub lists: Vec<Crl>,
    /// Handling of certificates whose issuer has no list here, or an expired one.
    pub unknown: UnknownRevocation,
}

/// Handling of a client whose certificate is on no list, while its issuer's list is missing or expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownRevocation {
    /// Refuse with `unknown_ca`: every certificate of the chain below the root needs a current list. Once the first
    /// list has expired, sessions are not resumed either.
    #[default]
    Refuse,
    /// Accept: only certificates on a list are refused, even if the list has expired.
    Accept,
}

impl Revocation {
    /// Expiry of the first list; `None` with [`UnknownRevocation::Accept`], where it does not affect acceptance.
    pub(crate) fn expires(&self) -> Option<SystemTime> {
        let first = self.lists.iter().map(|list| list.next_update).min();
        first.filter(|_| self.unknown == UnknownRevocation::Refuse)
    }
}
