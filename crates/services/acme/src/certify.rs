//! Private keys, certificate signing requests, checks of issued chains, and certificates for `tls-alpn-01`.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use brisk_certs::{Chain, Loaded, Served};
use brisk_keys::{Keystore, LocalEngine};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use zeroize::Zeroizing;

use crate::AcmeError;
use crate::settings::KeyKind;

/// Generates a private key, PKCS#8 PEM.
pub(crate) fn new_key(kind: KeyKind) -> Result<Zeroizing<String>, AcmeError> {
    let key = match kind {
        KeyKind::Ecdsa => KeyPair::generate()?,
        KeyKind::Rsa => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?,
    };
    Ok(Zeroizing::new(key.serialize_pem()))
}

/// Creates a certificate signing request for `names`, DER (RFC 8555 section 7.4).
pub(crate) fn request(names: &[String], key: &str) -> Result<Vec<u8>, AcmeError> {
    let key = KeyPair::from_pem(key)?;
    let mut params = CertificateParams::new(names.to_vec())?;
    // Authorities ignore or reject a subject: names are subject alternative names only.
    params.distinguished_name = DistinguishedName::new();
    Ok(params.serialize_request(&key)?.der().to_vec())
}

/// Tolerated difference between the clocks of the authority and this machine.
const AHEAD: Duration = Duration::from_hours(1);

/// Checks an issued chain: readable, for this key and all of `names`, and valid now.
///
/// # Errors
///
/// [`AcmeError::Unusable`] with the difference, [`AcmeError::InvalidChain`] if the chain cannot be parsed.
pub(crate) fn check(chain: &str, key: &str, names: &[String], now: SystemTime) -> Result<(), AcmeError> {
    // Checked before the chain is published, because the previous certificate may still be valid for weeks.
    let chain = Chain::from_pem(chain.as_bytes(), Path::new("the chain"))?;
    let mut keys = Keystore::new();
    let key = keys.add_pem(key.as_bytes())?;
    let wrong = |reason: String| Err(AcmeError::Unusable(reason));
    if keys.public_key(key) != Some(chain.public_key()) {
        return wrong("it is for another key than that of the request".to_owned());
    }
    if let Some(missing) = first_missing(names, chain.names()) {
        return wrong(format!("it is not for {missing}, but for {}", chain.names().join(", ")));
    }
    if chain.expired(now) {
        return wrong("it has expired; is the clock of this machine right?".to_owned());
    }
    if chain.not_before() > now + AHEAD {
        return wrong("it is not valid yet; is the clock of this machine right?".to_owned());
    }
    Ok(())
}

/// Returns the first of `wanted` that `names` does not contain.
pub(crate) fn first_missing<'a>(wanted: &'a [String], names: &[String]) -> Option<&'a String> {
    wanted.iter().find(|wanted| !names.iter().any(|name| is_same(wanted, name)))
}

/// Compares two names: host names without case, IP addresses by value (`::1` equals `0:0::1`).
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other) || one.parse::<IpAddr>().is_ok_and(|address| other.parse() == Ok(address))
}

/// The server name that an authority sends when it verifies `name` by `tls-alpn-01`: the name, or the reverse DNS name
/// of an address (RFC 8738 section 6).
pub(crate) fn checked_as(name: &str) -> String {
    match name.parse::<IpAddr>() {
        Err(_) => name.to_owned(),
        Ok(IpAddr::V4(address)) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        Ok(IpAddr::V6(address)) => {
            let nibbles = address.octets().into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
            let digits: Vec<_> = nibbles.map(|nibble| format!("{nibble:x}")).collect();
            format!("{}.ip6.arpa", digits.into_iter().rev().collect::<Vec<_>>().join("."))
        }
    }
}

/// Creates the self-signed certificate that proves `name` by `tls-alpn-01` (RFC 8737 section 3).
pub(crate) fn proof(name: &str, key_authorization: &str) -> Result<Served, AcmeError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    // RFC 8737 section 3: the extension contains the SHA-256 digest of the key authorization.
    let hash = digest(&SHA256, key_authorization.as_bytes());
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(hash.as_ref())];
    let certificate = params.self_signed(&key)?;
    let chain = Chain::from_pem(certificate.pem().as_bytes(), Path::new("tls-alpn-01"))?;
    let mut keys = Keystore::new();
    keys.add_pem(Zeroizing::new(key.serialize_pem()).as_bytes())?;
    let certificate = Arc::new(Loaded::of_chain(chain, SystemTime::now()).certificate);
    Ok(Served::new(certificate, Arc::new(LocalEngine::new(Arc::new(keys)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_by_their_reverse_names() {
        assert_eq!(checked_as("a.test"), "a.test");
        assert_eq!(checked_as("192.0.2.1"), "1.2.0.192.in-addr.arpa");
        let reverse = checked_as("2001:db8::1");
        assert!(
            reverse.starts_with("1.0.0.0.") && reverse.ends_with("8.b.d.0.1.0.0.2.ip6.arpa"),
            "{reverse}"
        );
        assert_eq!(reverse.split('.').count(), 34);
    }

    #[test]
    fn a_proof_is_for_its_name_alone() {
        for name in ["a.test", "192.0.2.1"] {
            let served = proof(name, "token.thumbprint").unwrap();
            assert_eq!(served.certificate.names, [name]);
        }
    }

    fn certificate(names: &[&str], key: &str, valid: (i64, i64)) -> String {
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let params = params.as_mut().unwrap();
        let now = time::OffsetDateTime::now_utc();
        params.not_before = now + time::Duration::hours(valid.0);
        params.not_after = now + time::Duration::hours(valid.1);
        params.clone().self_signed(&KeyPair::from_pem(key).unwrap()).unwrap().pem()
    }

    #[test]
    fn what_is_issued_must_be_what_was_ordered() {
        let (key, other) = (new_key(KeyKind::Ecdsa).unwrap(), new_key(KeyKind::Ecdsa).unwrap());
        let ordered = ["a.test", "*.a.test", "2001:db8::1"];
        let names = ordered.map(str::to_owned);
        let checked = |chain: &str| {
            let error = check(chain, &key, &names, SystemTime::now()).err();
            error.map(|error| (error.ends_order(), error.to_string()))
        };
        assert_eq!(checked(&certificate(&ordered, &key, (-1, 24))), None);
        for (chain, reason) in [
            (certificate(&ordered, &other, (-1, 24)), "another key"),
            (certificate(&["a.test", "www.a.test", "2001:db8::1"], &key, (-1, 24)), "not for *.a.test"),
            (certificate(&ordered, &key, (-24, -1)), "has expired"),
            (certificate(&ordered, &key, (5, 24)), "not valid yet"),
            ("<html>".to_owned(), ""),
        ] {
            let (ends, error) = checked(&chain).expect("refused");
            assert!(ends && error.contains(reason), "{reason}: {error}");
        }
    }

    #[test]
    fn requests_are_made_for_both_kinds_of_keys() {
        for kind in KeyKind::ALL {
            let key = new_key(kind).unwrap();
            let names = ["a.test", "*.a.test", "192.0.2.1"].map(str::to_owned);
            assert!(request(&names, &key).unwrap().len() > 200);
        }
    }
}
