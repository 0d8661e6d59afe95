//! Settings of a client.

use std::path::PathBuf;

use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};

/// The settings of all handshakes of a [`Client`](crate::Client). An empty list stands for everything supported, in order of
/// preference.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Versions offered, TLS 1.2 and TLS 1.3. Default: both.
    pub versions: Vec<ProtocolVersion>,
    /// Suites offered, in this order. Suites of a version that is not offered are omitted. Default: all nine; for TLS
    /// 1.2 only those that match [`schemes`](Self::schemes).
    pub suites: Vec<CipherSuite>,
    /// Groups offered, in this order; a share is sent for the first. Default: X25519MLKEM768, X25519, secp256r1,
    /// secp384r1.
    pub groups: Vec<NamedGroup>,
    /// Signature schemes offered to the server, which determine the type of its certificate. Signatures within the
    /// chain may use all schemes. Default: all.
    pub schemes: Vec<SignatureScheme>,
    /// The server name that the certificate must match: a host name or an IP address.
    pub server_name: String,
    /// Whether to send the server name (SNI, RFC 6066 section 3). IP addresses are never sent. Default: yes.
    pub send_server_name: bool,
    /// Protocols offered by ALPN (RFC 7301), in order of preference. Default: none, which omits ALPN.
    pub protocols: Vec<String>,
    /// The certificate for servers that request one. Default: none.
    pub identity: Option<ClientIdentity>,
    /// [`Verification`] of the server's certificate. Default: [`Verification::System`].
    pub verification: Verification,
    /// How TLS 1.2 sessions are resumed. Default: [`Tls12Sessions::Tickets`].
    pub tls12_sessions: Tls12Sessions,
    /// How often a TLS 1.3 session may be resumed. Default: [`SessionUse::Once`].
    pub session_use: SessionUse,
    /// Source of key shares. Default: [`KeyShares::Fresh`].
    pub key_shares: KeyShares,
    /// Whether to request a stapled OCSP response. Default: yes, as browsers do.
    pub staple_request: StapleRequest,
    /// Whether to accept compressed certificates (RFC 8879). Default: no, as most clients other than browsers.
    pub certificate_compression: bool,
}

impl ClientSettings {
    /// The default settings for `server_name`.
    pub fn new(server_name: impl Into<String>) -> Self {
        Self {
            versions: Vec::new(),
            suites: Vec::new(),
            groups: Vec::new(),
            schemes: Vec::new(),
            server_name: server_name.into(),
            send_server_name: true,
            protocols: Vec::new(),
            identity: None,
            verification: Verification::System,
            tls12_sessions: Tls12Sessions::Tickets,
            session_use: SessionUse::Once,
            key_shares: KeyShares::Fresh,
            staple_request: StapleRequest::Sent,
            certificate_compression: false,
        }
    }
}

/// A client certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// PEM file: the certificate, then its intermediates.
    pub chain: PathBuf,
    /// PEM file: the key, PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// Verification of the server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verification {
    /// The chain must lead to an authority of the system.
    System,
    /// The chain must lead to an authority in these PEM files.
    Authorities(Vec<PathBuf>),
    /// As with the authorities in these PEM files, or with the system's if there are none; but an untrusted server is
    /// accepted, and the reason is in the [facts](crate::ClientFacts::distrust).
    Reported(Vec<PathBuf>),
    /// None: chain, name and signature are not checked.
    Off,
}

/// How TLS 1.2 sessions are resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls12Sessions {
    /// By ticket (RFC 5077) if the server sends one, otherwise by session ID.
    Tickets,
    /// By session ID. No ticket is requested.
    Ids,
}

/// How often a TLS 1.3 session may be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionUse {
    /// Once, as clients should (RFC 8446 appendix C.4). Each connection receives new sessions, also a resumed one.
    Once,
    /// Any number of times, as load generators do. In TLS 1.3 only connections with a full handshake receive sessions.
    Many,
}

/// Source of key shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyShares {
    /// A new key pair for each handshake, as clients should have.
    Fresh,
    /// One key pair for each group and thread, which saves the client the key generation. The server cannot detect it.
    /// Such connections have no forward secrecy if this process is compromised: for load generators.
    Reused,
    /// The private key is 1: the share is the generator of the curve, and the shared secret is the server's share. It
    /// costs the client nothing and the server the usual work. Anyone who observes the connection can decrypt it: for
    /// load generators that send nothing secret. Groups with ML-KEM behave as with [`Reused`](Self::Reused).
    Unit,
}

/// Whether the client requests a stapled OCSP response (`status_request`, RFC 6066 section 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StapleRequest {
    /// Requested.
    Sent,
    /// Not requested: an unknown extension of the same length takes its place (RFC 8701).
    Omitted,
}
