//! What a client offers, and what it believes.

use std::path::PathBuf;

use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};

/// Everything a client decides about its handshakes. An empty list stands for all that is supported, the best first.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Versions offered, TLS 1.2 and TLS 1.3. Default: both.
    pub versions: Vec<ProtocolVersion>,
    /// Suites offered, in this order. Those of a version that is not offered are left out. Default: all nine; of TLS 1.2
    /// those alone that fit [`schemes`](Self::schemes).
    pub suites: Vec<CipherSuite>,
    /// Groups offered, in this order; a share is sent for the first. Default: X25519MLKEM768, X25519, secp256r1,
    /// secp384r1.
    pub groups: Vec<NamedGroup>,
    /// Signatures that are accepted from the server, and with them the types of certificate that it may show. Chains are
    /// verified with all schemes in any case. Default: all.
    pub schemes: Vec<SignatureScheme>,
    /// Who the server must be: a host name or an IP address.
    pub server_name: String,
    /// Tell the server the name (RFC 6066 section 3); addresses are never told. Default: yes.
    pub send_server_name: bool,
    /// Protocols offered by ALPN, the best first. Default: none, and no ALPN.
    pub protocols: Vec<String>,
    /// The certificate for servers that ask for one. Default: none.
    pub identity: Option<ClientIdentity>,
    /// Which servers are believed. Default: those of the system's authorities.
    pub verification: Verification,
    /// What TLS 1.2 sessions are resumed by. Default: tickets.
    pub tls12_sessions: Tls12Sessions,
    /// How often a TLS 1.3 session may be resumed. Default: once.
    pub session_use: SessionUse,
    /// Where key shares come from. Default: fresh.
    pub key_shares: KeyShares,
    /// Ask for a stapled OCSP response. Default: yes, as browsers do.
    pub staple_request: StapleRequest,
    /// Accept compressed certificates (RFC 8879). Default: no, as most clients that are not browsers.
    pub certificate_compression: bool,
}

impl ClientSettings {
    /// The defaults, for this server.
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

/// Which servers are believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verification {
    /// Those with a certificate of the system's authorities.
    System,
    /// Those with a certificate of the authorities in these PEM files.
    Authorities(Vec<PathBuf>),
    /// Any: neither chain, nor name, nor signature is checked.
    Off,
}

/// What TLS 1.2 sessions are resumed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls12Sessions {
    /// By ticket where the server gives one (RFC 5077), else by session ID.
    Tickets,
    /// By session ID; no ticket is asked for.
    Ids,
}

/// How often a TLS 1.3 session may be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionUse {
    /// Once, as clients should (RFC 8446 appendix C.4). Each connection, resumed ones too, brings new sessions.
    Once,
    /// Any number of times, as load generators do. Of TLS 1.3 only connections with a full handshake bring sessions.
    Many,
}

/// Where key shares come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyShares {
    /// A new key pair for each handshake, as clients should.
    Fresh,
    /// One key pair for each group and thread. Saves the client its making; the server cannot tell. Such connections have
    /// no forward secrecy against whoever takes over this process: for load generators.
    Reused,
    /// The private key is 1: the share sent is the generator of the curve, and the shared secret is the server's share.
    /// Costs the client nothing and the server as much as ever, but anyone who sees the connection can read it: for load
    /// generators that send nothing secret. Groups with ML-KEM are as with [`Reused`](Self::Reused).
    Unit,
}

/// Whether the client asks for a stapled OCSP response (`status_request`, RFC 6066 section 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StapleRequest {
    /// It asks.
    Sent,
    /// It does not: an extension that no server knows (RFC 8701), of the same length, takes its place.
    Omitted,
}
