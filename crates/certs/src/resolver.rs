//! The choice of a host by name, and of a certificate by what the client can verify. Memory only, no locks.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;

use brisk_keys::KeyAlgorithm;
use brisk_wire::client_hello::ClientHello;
use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};

use crate::certificate::Certificate;
use crate::error::CertError;

/// What a name that no host claims gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UnknownName {
    /// The default host, if there is one.
    #[default]
    Default,
    /// Nothing: [`Match::NoMatch`].
    Refuse,
}

/// How a name was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match<T> {
    /// A host claims this very name.
    Exact(T),
    /// A host claims `*.` and the rest of the name.
    Wildcard(T),
    /// The client named no host, or one that nobody claims: the default.
    Default(T),
    /// No host is responsible.
    NoMatch,
}

impl<T> Match<T> {
    /// The host, however it was found.
    pub fn host(self) -> Option<T> {
        match self {
            Self::Exact(host) | Self::Wildcard(host) | Self::Default(host) => Some(host),
            Self::NoMatch => None,
        }
    }
}

/// Hosts by name. Built once per configuration, then only read: one hash per exact name, two per wildcard.
#[derive(Debug, Clone)]
pub struct HostMap<T> {
    hosts: Vec<T>,
    exact: HashMap<Box<str>, usize>,
    /// Keyed by what follows `*.`.
    wildcard: HashMap<Box<str>, usize>,
    default: Option<usize>,
    unknown: UnknownName,
}

impl<T> HostMap<T> {
    /// A map without hosts, in which unknown names get what `unknown` says.
    pub fn new(unknown: UnknownName) -> Self {
        Self { hosts: Vec::new(), exact: HashMap::new(), wildcard: HashMap::new(), default: None, unknown }
    }

    /// Adds `host` under `names`: host names or addresses, a leading `*.` standing for exactly one label.
    ///
    /// Returns the host's number, counted from 0 in the order of adding. On an error the map is to be thrown away.
    pub fn add<'a>(&mut self, names: impl IntoIterator<Item = &'a str>, host: T) -> Result<usize, CertError> {
        let number = self.hosts.len();
        for name in names {
            let name = normalize(name)?;
            let (table, key) = match name.strip_prefix("*.") {
                Some(parent) => (&mut self.wildcard, parent),
                None => (&mut self.exact, name.as_str()),
            };
            match table.entry(key.into()) {
                Entry::Occupied(taken) if *taken.get() != number => return Err(CertError::DuplicateName { name }),
                Entry::Occupied(_) => {}
                Entry::Vacant(free) => {
                    free.insert(number);
                }
            }
        }
        self.hosts.push(host);
        Ok(number)
    }

    /// Makes the host of this number the default.
    pub fn set_default(&mut self, number: usize) {
        assert!(number < self.hosts.len(), "the number comes from `add`");
        self.default = Some(number);
    }

    /// The host for `name`, which is in lower case as `ClientHello::server_name` gives it; `None` is a client without SNI.
    pub fn get(&self, name: Option<&str>) -> Match<&T> {
        let Some(name) = name else {
            return self.fallback();
        };
        if let Some(&number) = self.exact.get(name) {
            return Match::Exact(&self.hosts[number]);
        }
        // RFC 9525 section 6.3: the wildcard stands for exactly one label.
        let parent = name.split_once('.').map(|(_, parent)| parent);
        if let Some(&number) = parent.and_then(|parent| self.wildcard.get(parent)) {
            return Match::Wildcard(&self.hosts[number]);
        }
        match self.unknown {
            UnknownName::Default => self.fallback(),
            UnknownName::Refuse => Match::NoMatch,
        }
    }

    /// The hosts in the order of adding.
    pub fn hosts(&self) -> &[T] {
        &self.hosts
    }

    fn fallback(&self) -> Match<&T> {
        self.default.map_or(Match::NoMatch, |number| Match::Default(&self.hosts[number]))
    }
}

/// `name` in lower case without the final dot, if it is a host name, a wildcard or an address.
fn normalize(name: &str) -> Result<String, CertError> {
    let refuse = |reason| Err(CertError::InvalidName { name: name.to_owned(), reason });
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    let plain = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let host = plain.strip_prefix("*.").unwrap_or(&plain);
    if host.contains('*') {
        return refuse("the asterisk may only be the whole first label, as in *.example.com");
    }
    if !host.is_ascii() {
        return refuse("write international names in their xn-- form");
    }
    if plain.len() > 253 || host.split('.').any(|label| label.is_empty() || label.len() > 63) {
        return refuse("a name has at most 253 characters, and each label between dots 1 to 63");
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !host.split('.').all(|label| label.bytes().all(allowed)) {
        return refuse("give the bare name, without scheme, port or path");
    }
    Ok(plain)
}

/// Whether `pattern` of a certificate accepts `name`, both in lower case.
pub(crate) fn covers(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix("*.") {
        // A wildcard never stands for a part of an address.
        Some(parent) => {
            name.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest == parent)
                && name.parse::<IpAddr>().is_err()
        }
        None => pattern == name,
    }
}

/// What bears on which certificate a client can verify.
#[derive(Debug, Clone, Copy)]
pub struct ClientAbilities<'a> {
    /// The versions that both sides allow.
    pub versions: &'a [ProtocolVersion],
    /// The suites the client offers; they matter in TLS 1.2 only.
    pub suites: &'a [CipherSuite],
    /// The groups the client offers; they matter in TLS 1.2 only. Empty when it sent no such extension.
    pub groups: &'a [NamedGroup],
    /// The signature schemes the client verifies.
    pub schemes: &'a [SignatureScheme],
}

impl<'a> From<&'a ClientHello> for ClientAbilities<'a> {
    fn from(hello: &'a ClientHello) -> Self {
        Self {
            versions: &hello.versions,
            suites: &hello.suites,
            groups: &hello.groups,
            schemes: &hello.signature_schemes,
        }
    }
}

impl ClientAbilities<'_> {
    /// Whether the client can verify a handshake signed with a key of this kind.
    pub fn verifies(&self, algorithm: KeyAlgorithm) -> bool {
        let signs_with = |scheme: &&SignatureScheme| self.schemes.contains(scheme);
        if self.versions.contains(&ProtocolVersion::TLS1_3) {
            // RFC 8446 section 4.2.3: no PKCS #1 signatures in the handshake; ECDSA schemes name their curve.
            return algorithm.schemes().iter().filter(|scheme| !is_pkcs1(**scheme)).any(|s| signs_with(&s));
        }
        algorithm.schemes().iter().any(|s| signs_with(&s)) && self.has_suite(algorithm) && self.has_curve(algorithm)
    }

    // RFC 5246 section 7.4.2: in TLS 1.2 the suite names the kind of key.
    fn has_suite(&self, algorithm: KeyAlgorithm) -> bool {
        let rsa = matches!(algorithm, KeyAlgorithm::Rsa { .. });
        self.suites.iter().any(|suite| if rsa { suite.is_tls12_rsa() } else { suite.is_tls12_ecdsa() })
    }

    // RFC 8422 section 5.1: in TLS 1.2 the groups also say which curves a certificate may use.
    fn has_curve(&self, algorithm: KeyAlgorithm) -> bool {
        let curve = match algorithm {
            KeyAlgorithm::EcdsaP256 => NamedGroup::SECP256R1,
            KeyAlgorithm::EcdsaP384 => NamedGroup::SECP384R1,
            _ => return true,
        };
        self.groups.is_empty() || self.groups.contains(&curve)
    }
}

fn is_pkcs1(scheme: SignatureScheme) -> bool {
    [
        SignatureScheme::RSA_PKCS1_SHA256,
        SignatureScheme::RSA_PKCS1_SHA384,
        SignatureScheme::RSA_PKCS1_SHA512,
    ]
    .contains(&scheme)
}

/// The cheapest of `certificates` that the client can verify: ECDSA whenever it can, else RSA. Of equal ones the first.
///
/// `None` means that no certificate here suits this client.
pub fn choose<'a>(
    certificates: &'a [Arc<Certificate>],
    client: &ClientAbilities<'_>,
) -> Option<&'a Arc<Certificate>> {
    let usable = certificates.iter().filter(|certificate| client.verifies(certificate.algorithm));
    usable.min_by_key(|certificate| cost(certificate.algorithm))
}

/// The order of signing costs, P-256 the cheapest; P-384 costs more than Ed25519 and less than RSA-2048.
fn cost(algorithm: KeyAlgorithm) -> u32 {
    match algorithm {
        KeyAlgorithm::EcdsaP256 => 0,
        KeyAlgorithm::Ed25519 => 1,
        KeyAlgorithm::EcdsaP384 => 2,
        KeyAlgorithm::Rsa { bits } => bits.into(),
        _ => u32::MAX,
    }
}
