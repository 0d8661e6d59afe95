//! Choice of a host by server name, and of a certificate by the abilities of the client. Without I/O and locks.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;

use brisk_keys::KeyAlgorithm;
use brisk_wire::client_hello::ClientHello;
use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};

use crate::error::CertError;

/// Handling of unknown server names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UnknownName {
    /// Use the default host, if there is one.
    #[default]
    Default,
    /// Return [`Match::NoMatch`].
    Refuse,
}

/// Result of looking up a server name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match<T> {
    /// A host has this exact name.
    Exact(T),
    /// A host has `*.` followed by the rest of the name.
    Wildcard(T),
    /// The client sent no name or an unknown one, and there is a default host.
    Default(T),
    /// No host matches.
    NoMatch,
}

impl<T> Match<T> {
    /// The matching host.
    pub fn host(self) -> Option<T> {
        match self {
            Self::Exact(host) | Self::Wildcard(host) | Self::Default(host) => Some(host),
            Self::NoMatch => None,
        }
    }

    /// The precedence of this result over that of another map.
    pub fn precedence(&self) -> Precedence {
        match self {
            Self::Exact(_) => Precedence::Exact,
            Self::Wildcard(_) => Precedence::Wildcard,
            Self::Default(_) => Precedence::Default,
            Self::NoMatch => Precedence::NoMatch,
        }
    }
}

/// Kinds of [`Match`], in ascending precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precedence {
    /// No host matches.
    NoMatch,
    /// The default host.
    Default,
    /// A wildcard.
    Wildcard,
    /// An exact name.
    Exact,
}

/// A set of names that changes after a [`HostMap`] was built, or is too large to be copied into one.
pub trait Names: std::fmt::Debug + Send + Sync {
    /// Whether the set contains `name` (lower case) now. Must not block.
    fn has(&self, name: &str) -> bool;
}

/// Hosts by name. Built once per configuration and then only read: one hash per exact name, two per wildcard.
#[derive(Debug, Clone)]
pub struct HostMap<T> {
    hosts: Vec<T>,
    exact: HashMap<Box<str>, usize>,
    /// Keys are the names without `*.`.
    wildcard: HashMap<Box<str>, usize>,
    /// Sets with the precedence of exact names, and host numbers.
    further: Vec<(Arc<dyn Names>, usize)>,
    /// Sets with a lower precedence than all other names, and host numbers.
    remaining: Vec<(Arc<dyn Names>, usize)>,
    default: Option<usize>,
    unknown: UnknownName,
}

impl<T> HostMap<T> {
    /// Creates a map without hosts.
    pub fn new(unknown: UnknownName) -> Self {
        Self {
            hosts: Vec::new(),
            exact: HashMap::new(),
            wildcard: HashMap::new(),
            further: Vec::new(),
            remaining: Vec::new(),
            default: None,
            unknown,
        }
    }

    /// Adds `host` with `names`: host names or addresses. A leading `*.` stands for exactly one label.
    ///
    /// Returns the number of the host, counted from 0. After an error the map must not be used.
    pub fn add<'a>(&mut self, names: impl IntoIterator<Item = &'a str>, host: T) -> Result<usize, CertError> {
        let number = self.hosts.len();
        for name in names {
            let name = normalize(name)?;
            let (table, key) = match name.strip_prefix("*.") {
                Some(parent) => (&mut self.wildcard, parent),
                None => (&mut self.exact, name.as_str()),
            };
            match table.entry(key.into()) {
                Entry::Occupied(taken) if *taken.get() != number => {
                    return Err(CertError::DuplicateName { name });
                }
                Entry::Occupied(_) => {}
                Entry::Vacant(free) => {
                    free.insert(number);
                }
            }
        }
        self.hosts.push(host);
        Ok(number)
    }

    /// Assigns `names` to the host `number`, except those that [`add`](Self::add) has assigned.
    pub fn add_further(&mut self, number: usize, names: Arc<dyn Names>) {
        assert!(number < self.hosts.len(), "the number comes from `add`");
        self.further.push((names, number));
    }

    /// Assigns `names` to the host `number`, except those that match another host, including its wildcards.
    pub fn add_remaining(&mut self, number: usize, names: Arc<dyn Names>) {
        assert!(number < self.hosts.len(), "the number comes from `add`");
        self.remaining.push((names, number));
    }

    /// Makes the host `number` the default.
    pub fn set_default(&mut self, number: usize) {
        assert!(number < self.hosts.len(), "the number comes from `add`");
        self.default = Some(number);
    }

    /// The host for `name`, in lower case as in `ClientHello::server_name`; `None` for a client without SNI.
    pub fn get(&self, name: Option<&str>) -> Match<&T> {
        let Some(name) = name else {
            return self.fallback();
        };
        if let Some(&number) = self.exact.get(name) {
            return Match::Exact(&self.hosts[number]);
        }
        if let Some((_, number)) = self.further.iter().find(|(names, _)| names.has(name)) {
            return Match::Exact(&self.hosts[*number]);
        }
        // RFC 9525 section 6.3: the wildcard stands for exactly one label.
        let parent = name.split_once('.').map(|(_, parent)| parent);
        if let Some(&number) = parent.and_then(|parent| self.wildcard.get(parent)) {
            return Match::Wildcard(&self.hosts[number]);
        }
        if let Some((_, number)) = self.remaining.iter().find(|(names, _)| names.has(name)) {
            return Match::Exact(&self.hosts[*number]);
        }
        match self.unknown {
            UnknownName::Default => self.fallback(),
            UnknownName::Refuse => Match::NoMatch,
        }
    }

    /// The hosts in the order of their numbers.
    pub fn hosts(&self) -> &[T] {
        &self.hosts
    }

    fn fallback(&self) -> Match<&T> {
        self.default.map_or(Match::NoMatch, |number| Match::Default(&self.hosts[number]))
    }
}

/// Returns `name` in lower case without the final dot if it is a host name, a wildcard or an address.
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

/// Whether `pattern`, a name in a certificate, matches `name`; both are in lower case.
pub(crate) fn covers(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix("*.") {
        // A wildcard never matches a part of an address.
        Some(parent) => {
            name.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest == parent)
                && name.parse::<IpAddr>().is_err()
        }
        None => pattern == name,
    }
}

/// Properties of a client that determine which certificates it can verify.
#[derive(Debug, Clone, Copy)]
pub struct ClientAbilities<'a> {
    /// Versions that both sides support.
    pub versions: &'a [ProtocolVersion],
    /// Cipher suites that the client offers. Used for TLS 1.2 only.
    pub suites: &'a [CipherSuite],
    /// Groups that the client offers. Used for TLS 1.2 only; empty if the extension is missing.
    pub groups: &'a [NamedGroup],
    /// Signature schemes that the client verifies.
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
    /// Whether the client can verify a handshake signed with a key of the type `algorithm`.
    pub fn verifies(&self, algorithm: KeyAlgorithm) -> bool {
        let signs_with = |scheme: &&SignatureScheme| self.schemes.contains(scheme);
        // TLS 1.3 is negotiated if both sides support it, so the rules of TLS 1.2 do not matter then.
        if self.versions.contains(&ProtocolVersion::TLS1_3) {
            // RFC 8446 section 4.2.3: no PKCS #1 signatures in the handshake; ECDSA schemes determine the curve.
            return algorithm.schemes().iter().filter(|scheme| !is_pkcs1(**scheme)).any(|s| signs_with(&s));
        }
        algorithm.signs_tls12()
            && algorithm.schemes().iter().any(|s| signs_with(&s))
            && self.has_suite(algorithm)
            && self.has_curve(algorithm)
    }

    // RFC 5246 section 7.4.2: in TLS 1.2 the suite determines the type of the key.
    fn has_suite(&self, algorithm: KeyAlgorithm) -> bool {
        let rsa = matches!(algorithm, KeyAlgorithm::Rsa { .. });
        self.suites.iter().any(|suite| if rsa { suite.is_tls12_rsa() } else { suite.is_tls12_ecdsa() })
    }

    // RFC 8422 section 5.1: in TLS 1.2 the offered groups also limit the curves of certificates.
    fn has_curve(&self, algorithm: KeyAlgorithm) -> bool {
        let curve = match algorithm {
            KeyAlgorithm::EcdsaP256 => NamedGroup::SECP256R1,
            KeyAlgorithm::EcdsaP384 => NamedGroup::SECP384R1,
            _ => return true,
        };
        // RFC 8422 section 4: without the extension, the server may choose any curve.
        self.groups.is_empty() || self.groups.contains(&curve)
    }
}

fn is_pkcs1(scheme: SignatureScheme) -> bool {
    [SignatureScheme::RSA_PKCS1_SHA256, SignatureScheme::RSA_PKCS1_SHA384, SignatureScheme::RSA_PKCS1_SHA512]
        .contains(&scheme)
}

/// Chooses from `all` the certificate with the lowest signing cost that the client can verify; among equal ones the
/// first. `algorithm` returns the key type. `None` if the client can verify none.
pub fn choose<'a, T>(
    all: &'a [T],
    algorithm: impl Fn(&T) -> KeyAlgorithm,
    client: &ClientAbilities<'_>,
) -> Option<&'a T> {
    let usable = all.iter().filter(|one| client.verifies(algorithm(one)));
    usable.min_by_key(|one| cost(algorithm(one)))
}

/// Ranks key types by the cost of a signature: P-256, Ed25519, P-384, RSA by length. ML-DSA is last: clients that list
/// its schemes need not know an authority that signs with ML-DSA, and the public web has none.
fn cost(algorithm: KeyAlgorithm) -> u32 {
    match algorithm {
        KeyAlgorithm::EcdsaP256 => 0,
        KeyAlgorithm::Ed25519 => 1,
        KeyAlgorithm::EcdsaP384 => 2,
        KeyAlgorithm::Rsa { bits } => bits.into(),
        _ => u32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use brisk_keys::Keystore;
    use brisk_testkit::ca::{LeafKey, TestCa};

    use super::*;

    fn map(unknown: UnknownName) -> HostMap<&'static str> {
        let mut map = HostMap::new(unknown);
        map.add(["example.com", "*.example.com"], "example").unwrap();
        let other = map.add(["www.example.com", "Other.test.", "::1", "*.localhost"], "other").unwrap();
        map.set_default(other);
        map
    }

    #[test]
    fn exact_goes_before_wildcard_and_wildcard_before_default() {
        let map = map(UnknownName::Default);
        assert_eq!(map.get(Some("example.com")), Match::Exact(&"example"));
        assert_eq!(map.get(Some("www.example.com")), Match::Exact(&"other"));
        assert_eq!(map.get(Some("api.example.com")), Match::Wildcard(&"example"));
        assert_eq!(map.get(Some("other.test")), Match::Exact(&"other"));
        assert_eq!(map.get(Some("::1")), Match::Exact(&"other"));
        assert_eq!(map.get(Some("unknown.test")), Match::Default(&"other"));
        assert_eq!(map.get(None), Match::Default(&"other"));
    }

    #[test]
    fn a_wildcard_stands_for_one_label_only() {
        let map = map(UnknownName::Refuse);
        assert_eq!(map.get(Some("a.b.example.com")), Match::NoMatch);
        assert_eq!(map.get(Some("com")), Match::NoMatch);
        assert_eq!(map.get(Some("localhost")), Match::NoMatch);
    }

    #[test]
    fn unknown_names_can_be_refused_while_clients_without_sni_are_served() {
        let map = map(UnknownName::Refuse);
        assert_eq!(map.get(Some("unknown.test")).host(), None);
        assert_eq!(map.get(None).host(), Some(&"other"));
        assert_eq!(HostMap::<()>::new(UnknownName::Default).get(None), Match::NoMatch);
    }

    #[derive(Debug)]
    struct Every;

    impl Names for Every {
        fn has(&self, _: &str) -> bool {
            true
        }
    }

    #[test]
    fn remaining_names_are_those_of_no_other_host() {
        let mut map = map(UnknownName::Refuse);
        let last = map.add(["last.test"], "last").unwrap();
        map.add_remaining(last, Arc::new(Every));
        assert_eq!(map.get(Some("example.com")), Match::Exact(&"example"));
        assert_eq!(map.get(Some("api.example.com")), Match::Wildcard(&"example"));
        assert_eq!(map.get(Some("unknown.test")), Match::Exact(&"last"));
        assert_eq!(map.get(None), Match::Default(&"other"));
    }

    #[test]
    fn names_that_cannot_be_are_refused() {
        let mut map = HostMap::new(UnknownName::Default);
        for name in
            ["", "*", "*.", "a..b", ".a", "a*.b", "*.*.b", "a.*.b", "bücher.de", "a b", "a:443", "https://a"]
        {
            let error = map.add([name], ()).unwrap_err();
            assert!(matches!(error, CertError::InvalidName { .. }), "{name}");
        }
        let long = "a".repeat(64);
        assert!(map.add([long.as_str()], ()).is_err());
    }

    #[test]
    fn a_name_belongs_to_one_host() {
        let mut map = map(UnknownName::Default);
        let error = map.add(["EXAMPLE.com"], "third").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the name \"example.com\" belongs to two hosts; keep it in one of them"
        );
        assert!(HostMap::new(UnknownName::Default).add(["a.test", "a.test"], ()).is_ok());
    }

    const V13: &[ProtocolVersion] = &[ProtocolVersion::TLS1_3, ProtocolVersion::TLS1_2];
    const V12: &[ProtocolVersion] = &[ProtocolVersion::TLS1_2];
    const BOTH_SUITES: &[CipherSuite] = &[
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ];
    const RSA_SUITES: &[CipherSuite] = &[CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256];
    const GROUPS: &[NamedGroup] = &[NamedGroup::X25519, NamedGroup::SECP256R1, NamedGroup::SECP384R1];
    const SCHEMES: &[SignatureScheme] = &[
        SignatureScheme::RSA_PSS_RSAE_SHA256,
        SignatureScheme::RSA_PKCS1_SHA256,
        SignatureScheme::ECDSA_SECP384R1_SHA384,
        SignatureScheme::ECDSA_SECP256R1_SHA256,
    ];

    fn modern() -> ClientAbilities<'static> {
        ClientAbilities { versions: V13, suites: &[], groups: GROUPS, schemes: SCHEMES }
    }

    fn chosen(keys: &[LeafKey], client: &ClientAbilities<'_>) -> Option<KeyAlgorithm> {
        let (ca, mut keystore) = (TestCa::new(), Keystore::new());
        let mut load = |&key: &LeafKey| {
            let leaf = ca.server(&["a.test"]).key(key).issue();
            let now = std::time::SystemTime::now();
            crate::load(&leaf.chain, &leaf.key, &mut keystore, now).unwrap().certificate.algorithm
        };
        let algorithms: Vec<_> = keys.iter().map(&mut load).collect();
        choose(&algorithms, |algorithm| *algorithm, client).copied()
    }

    const RSA_AND_P256: &[LeafKey] = &[LeafKey::Rsa2048, LeafKey::EcdsaP256];
    const RSA: Option<KeyAlgorithm> = Some(KeyAlgorithm::Rsa { bits: 2048 });

    #[test]
    fn ecdsa_is_chosen_whenever_the_client_can_verify_it() {
        assert_eq!(chosen(RSA_AND_P256, &modern()), Some(KeyAlgorithm::EcdsaP256));
        let all = [LeafKey::Rsa2048, LeafKey::EcdsaP384, LeafKey::EcdsaP256];
        assert_eq!(chosen(&all, &modern()), Some(KeyAlgorithm::EcdsaP256));
        assert_eq!(chosen(&all[..2], &modern()), Some(KeyAlgorithm::EcdsaP384));
        let tls12 = ClientAbilities { versions: V12, suites: BOTH_SUITES, ..modern() };
        assert_eq!(chosen(RSA_AND_P256, &tls12), Some(KeyAlgorithm::EcdsaP256));
    }

    #[test]
    fn rsa_is_chosen_for_clients_without_the_scheme() {
        let client = ClientAbilities { schemes: &SCHEMES[..3], ..modern() };
        assert_eq!(chosen(RSA_AND_P256, &client), RSA);
    }

    #[test]
    fn rsa_is_chosen_for_tls12_clients_without_ecdsa_suites_or_the_curve() {
        let no_suite = ClientAbilities { versions: V12, suites: RSA_SUITES, ..modern() };
        assert_eq!(chosen(RSA_AND_P256, &no_suite), RSA);
        let no_curve =
            ClientAbilities { versions: V12, suites: BOTH_SUITES, groups: &[NamedGroup::X25519], ..modern() };
        assert_eq!(chosen(RSA_AND_P256, &no_curve), RSA);
        // TLS 1.3 ignores suites and groups here.
        assert_eq!(
            chosen(RSA_AND_P256, &ClientAbilities { versions: V13, ..no_curve }),
            Some(KeyAlgorithm::EcdsaP256)
        );
    }

    #[test]
    fn pkcs1_alone_suits_tls12_only() {
        let schemes = &[SignatureScheme::RSA_PKCS1_SHA256];
        let tls13 = ClientAbilities { schemes, ..modern() };
        assert_eq!(chosen(RSA_AND_P256, &tls13), None);
        let tls12 = ClientAbilities { versions: V12, suites: BOTH_SUITES, ..tls13 };
        assert_eq!(chosen(RSA_AND_P256, &tls12), RSA);
    }

    #[test]
    fn ml_dsa_is_chosen_for_clients_of_tls13_that_list_it_and_only_where_there_is_nothing_else() {
        let schemes = [SCHEMES, &[SignatureScheme::ML_DSA_44]].concat();
        let client = ClientAbilities { schemes: &schemes, ..modern() };
        assert_eq!(chosen(&[LeafKey::MlDsa44], &client), Some(KeyAlgorithm::MlDsa44));
        assert_eq!(chosen(&[LeafKey::MlDsa44, LeafKey::Rsa2048], &client), RSA);
        assert_eq!(chosen(&[LeafKey::MlDsa44], &modern()), None);
        let tls12 = ClientAbilities { versions: V12, suites: BOTH_SUITES, ..client };
        assert_eq!(chosen(&[LeafKey::MlDsa44], &tls12), None);
    }

    #[test]
    fn nothing_is_chosen_for_a_client_that_verifies_nothing_we_have() {
        let client = ClientAbilities { schemes: &SCHEMES[3..], ..modern() };
        assert_eq!(chosen(&[LeafKey::Rsa2048], &client), None);
        assert_eq!(chosen(&[], &modern()), None);
    }
}
