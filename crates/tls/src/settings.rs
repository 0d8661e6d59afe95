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
    /// The oldest version accepted: TLS 1.2 (default) or TLS 1.3.
    pub min_version: ProtocolVersion,
    /// The protocols to agree on by ALPN (RFC 7301), the preferred one first. A client that offers others only is refused
    /// with `no_application_protocol`, one without ALPN is not. Default: `h2`, `http/1.1`, `http/1.0`.
    pub protocols: Vec<HttpVersion>,
    /// Issue and accept session tickets. Default: yes.
    pub tickets: bool,
    /// Tickets sent after each full TLS 1.3 handshake, 0 to 8. Each costs a seal and about 230 bytes of the first
    /// flight. Default: 1.
    pub tickets_per_handshake: usize,
    /// Keep TLS 1.3 sessions in the session store, each for one use, in place of tickets. Hosts that accept early data do
    /// so in any case. Default: no.
    pub stateful: bool,
    /// How long a session may be resumed, counted from the handshake that made it. Default: 24 hours; RFC 8446
    /// section 4.6.1 allows 7 days at most. A session in the store, of TLS 1.3 or by session ID, lives for 24 hours at
    /// most: this lifetime is announced to clients, and a shorter setting merely removes them earlier.
    pub session_lifetime: Duration,
    /// Compress certificates (RFC 8879) for clients that offer it; results are cached. Default: yes.
    pub certificate_compression: bool,
    /// The size of the records that answers leave in. Default: growing.
    pub records: Records,
    /// Largest `ClientHello` accepted, in bytes. Default: 16 KiB; a post-quantum hello has about 1.8 KiB.
    pub hello_size: usize,
    /// The answer to a client that asks for a name no host has: the default host, or `unrecognized_name` (RFC 6066
    /// section 3). A client that sends no name always gets the default host.
    pub unknown_host: UnknownName,
    /// Write the secrets of every connection to the file that `SSLKEYLOGFILE` names. For debugging only.
    pub key_log: bool,
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self {
            min_version: ProtocolVersion::TLS1_2,
            protocols: HttpVersion::ALL.to_vec(),
            tickets: true,
            tickets_per_handshake: 1,
            stateful: false,
            session_lifetime: Duration::from_hours(24),
            certificate_compression: true,
            records: Records::Growing,
            hello_size: 16 * 1024,
            unknown_host: UnknownName::Default,
            key_log: false,
        }
    }
}

/// The size of the records that answers leave in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// Small where an answer begins, so that its first bytes can be opened when the first segments are there, and full after
    /// 14 KB, until the connection has sent nothing large for a second.
    Growing,
    /// As large as TLS allows, 16 KiB, wherever there is as much to send.
    Full,
}

/// TLS settings of one host.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// Exact names and `*.` wildcards, in lower case.
    pub names: Vec<String>,
    /// This host answers clients that send no name. Without any such host it is the first.
    pub default: bool,
    /// What its certificate files held, to be [published](Self::publish) when these settings are put in force.
    pub certificates: Vec<Arc<Certificate>>,
    /// Its certificates are obtained while it is served, by what publishes into the slot. Until the first is there its
    /// handshakes are refused. Default: they are those of files.
    pub obtained: bool,
    /// The certificates that it shows, side by side; each client gets the first kind it can verify, ECDSA before RSA. A
    /// reload goes on with the slot of the host with the same names.
    pub slot: Arc<Slot>,
    /// Certificates of further names, which are names of this host too. They go before `certificates`.
    pub catalogue: Option<Arc<Catalogue>>,
    /// Certificates of names that are decided at run time, and that no host has otherwise.
    pub on_demand: Option<Arc<OnDemand>>,
    /// What clients must show. Default: nothing.
    pub demands: Demands,
    /// Bytes of early data accepted from a client that resumes; 0, the default, accepts none. A host that asks for client
    /// certificates accepts none in any case. It takes a session that no other gateway of the fleet can take, whose age
    /// by the client's account is within 60 s of the time since it was made (RFC 8446 section 8.3), of the same name,
    /// suite and protocol. From a client whose early data is refused as many bytes are skipped, its records' overhead of
    /// 17 bytes each included; one that sends more is refused altogether.
    pub early_data: u32,
    /// Numbers of tickets that a handshake may send, where its [variant](Variant::tickets) says so, in place of
    /// [`tickets_per_handshake`](TlsSettings::tickets_per_handshake). Default: none.
    pub other_tickets: Vec<usize>,
}

/// What one connection has of its own in place of the settings of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    /// Tickets after its handshake: one of [`HostSettings::other_tickets`], any other number has no effect.
    pub tickets: Option<usize>,
    /// The size of its records.
    pub records: Option<Records>,
}

impl HostSettings {
    /// A host with these names that has no certificate yet, asks clients for none and accepts no early data.
    pub fn new(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            names: names.into_iter().map(Into::into).collect(),
            default: false,
            certificates: Vec::new(),
            obtained: false,
            slot: Slot::new(),
            catalogue: None,
            on_demand: None,
            demands: Demands::default(),
            early_data: 0,
            other_tickets: Vec::new(),
        }
    }

    /// The index of the host for clients that send no name: the first that is a [default](Self::default), or else the first.
    pub fn default_of<'a>(hosts: impl IntoIterator<Item = &'a Self>) -> usize {
        hosts.into_iter().position(|host| host.default).unwrap_or(0)
    }

    /// Shows the certificates of its files to handshakes that begin from now on. `engine` has their keys. What was published for
    /// a host whose certificates are [obtained](Self::obtained) stays.
    pub fn publish(&self, engine: &Arc<dyn PrivateKeyEngine>) {
        self.publish_as(|certificate| Served::new(Arc::clone(certificate), Arc::clone(engine)));
    }

    /// The same, each as `served` returns it.
    pub fn publish_as(&self, served: impl Fn(&Arc<Certificate>) -> Served) {
        if self.obtained {
            return;
        }
        self.slot.publish(self.certificates.iter().map(served).collect());
    }

    /// Whether an [`Acceptor`](crate::Acceptor) that was made for `other` serves this host as well, whatever the
    /// certificates.
    pub fn is_accepted_like(&self, other: &Self) -> bool {
        let Self {
            names,
            default,
            certificates: _,
            obtained: _,
            slot,
            catalogue,
            on_demand,
            demands,
            early_data,
            other_tickets,
        } = self;
        let same_catalogue = catalogue.as_ref().map(Arc::as_ptr) == other.catalogue.as_ref().map(Arc::as_ptr);
        *names == other.names
            && same_catalogue
            && on_demand.as_ref().map(Arc::as_ptr) == other.on_demand.as_ref().map(Arc::as_ptr)
            && *default == other.default
            && Arc::ptr_eq(slot, &other.slot)
            && *demands == other.demands
            && *early_data == other.early_data
            && *other_tickets == other.other_tickets
    }
}

/// How clients authenticate themselves by certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificates {
    /// Handshakes without a certificate fail; otherwise only wrong ones do.
    pub required: bool,
    /// The authorities that may issue client certificates.
    pub roots: Vec<CertificateDer<'static>>,
    /// Which of their certificates are revoked. Default: none.
    pub revocation: Option<Revocation>,
    /// Keep the client's certificates for the life of the connection, to be named to upstreams: some kilobytes for each.
    /// Default: no.
    pub keep: bool,
}

/// What revokes client certificates. A certificate on a list is refused with `certificate_revoked`, and so are those below
/// it. Sessions made under other lists are not resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// The lists; at least one.
    pub lists: Vec<Crl>,
    /// The treatment of certificates whose issuer has no list here, or an expired one.
    pub unknown: UnknownRevocation,
}

/// The treatment of a client whose certificate is on no list while its issuer's list is missing or expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownRevocation {
    /// It is refused with `unknown_ca`, as every certificate of its chain below the root has to be vouched for. Nor are
    /// sessions resumed from when the first list has expired.
    #[default]
    Refuse,
    /// It is let in: only what is on a list is refused, also on one that has expired.
    Accept,
}

impl Revocation {
    /// When the first of the lists expires, where that matters.
    pub(crate) fn expires(&self) -> Option<SystemTime> {
        let first = self.lists.iter().map(|list| list.next_update).min();
        first.filter(|_| self.unknown == UnknownRevocation::Refuse)
    }
}
