//! Public keys of an issuer: JSON Web Key Sets (RFC 7517) and PEM files.

use aws_lc_rs::digest;
use brisk_keys::pem_sections;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use serde::Deserialize;
use serde_json::Value;
use x509_parser::oid_registry::{OID_EC_P256, OID_NIST_EC_P384, Oid};
use x509_parser::prelude::{FromDer, SubjectPublicKeyInfo};
use x509_parser::public_key::PublicKey;

/// Maximum number of keys in a [`KeySet`]. An issuer has two or three.
const MOST_KEYS: usize = 100;

/// Maximum number of keys that are tried for one token, since each costs the verification of a signature.
const MOST_TRIED: usize = 4;

/// Number of skipped keys that a warning names.
const MOST_NAMED: usize = 8;

/// Bits of RSA keys that are accepted. The verification with a key of 8,192 bits takes four times as long as with the largest.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=4096;

/// Keys that verify signatures: 1 to 100 of them.
#[derive(Clone, Debug)]
pub struct KeySet {
    keys: Vec<Key>,
    /// Reasons for which other keys of the set are not used.
    skipped: Vec<String>,
    /// SHA-256 of the text.
    content: digest::Digest,
}

#[derive(Clone, Debug)]
struct Key {
    id: Option<String>,
    /// The only algorithm of the key, if the issuer states `alg` (RFC 7517 section 4.4).
    algorithm: Option<Algorithm>,
    permitted: &'static [Algorithm],
    decoding: DecodingKey,
}

/// Reason for which a text is no [`KeySet`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeySetError {
    /// No JSON object with `keys`.
    #[error("no JSON Web Key Set, which is {{\"keys\": [...]}}: {0}")]
    Json(String),
    /// More than 100 keys; contains their number.
    #[error("{0} keys, at most {MOST_KEYS} are accepted")]
    TooMany(usize),
    /// No key that verifies signatures.
    #[error("no usable key: {0}")]
    NoKey(String),
    /// No PEM with a public key.
    #[error("no public key in PEM, which begins with -----BEGIN PUBLIC KEY-----: {0}")]
    Pem(String),
    /// More than four keys in PEM, which have no ID, for this algorithm: some would never be tried.
    #[error(
        "more than {MOST_TRIED} keys for {0:?}: tokens cannot name keys in PEM, and at most {MOST_TRIED} are tried; write a \
         JSON Web Key Set with a `kid` for each key, for `jwks_file`"
    )]
    TooManyAlike(Algorithm),
}

const RSA: &[Algorithm] = &[
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];

impl KeySet {
    /// Reads a JSON Web Key Set (RFC 7517 section 5). Keys that verify no signatures are [skipped](Self::skipped): `oct`,
    /// `use` other than `sig`, `key_ops` without `verify`, unknown types and curves, RSA outside of 2,048 to 4,096 bits;
    /// also keys after four others with the same `kid`, or without one, for an algorithm.
    ///
    /// # Errors
    ///
    /// [`KeySetError::Json`], [`KeySetError::TooMany`], or [`KeySetError::NoKey`] if all keys are skipped.
    pub fn from_json(text: &[u8]) -> Result<Self, KeySetError> {
        #[derive(Deserialize)]
        struct Set {
            // RFC 7517 section 5: keys that are not understood are skipped, so each key is read alone.
            keys: Vec<Value>,
        }
        let set: Set = serde_json::from_slice(text).map_err(|error| KeySetError::Json(error.to_string()))?;
        if set.keys.len() > MOST_KEYS {
            return Err(KeySetError::TooMany(set.keys.len()));
        }
        let (mut keys, mut indices, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
        for (index, value) in set.keys.into_iter().enumerate() {
            match Jwk::deserialize(value).map_err(|error| error.to_string()).and_then(|jwk| Key::of(&jwk)) {
                Ok(key) => {
                    keys.push(key);
                    indices.push(index);
                }
                Err(reason) => skipped.push(format!("keys[{index}]: {reason}")),
            }
        }
        if keys.is_empty() {
            return Err(KeySetError::NoKey(
                skipped.first().cloned().unwrap_or("the list is empty".to_owned()),
            ));
        }
        skipped.extend(untried(&keys).map(|(key, algorithm)| {
            let index = indices[key];
            format!("keys[{index}]: for {algorithm:?}, {MOST_TRIED} keys before it have the same `kid`, or no `kid` either")
        }));
        Ok(Self { keys, skipped, content: digest::digest(&digest::SHA256, text) })
    }

    /// Reads public keys in PEM (`PUBLIC KEY`, RFC 7468 section 13). Unlike [`Self::from_json`], no key is skipped.
    ///
    /// # Errors
    ///
    /// [`KeySetError::NoKey`] if one of the keys is not usable; [`KeySetError::Pem`] if there is none;
    /// [`KeySetError::TooMany`] above 100 keys; [`KeySetError::TooManyAlike`] if one would never be tried.
    pub fn from_pem(text: &[u8]) -> Result<Self, KeySetError> {
        // A private key beside its public key is not used.
        let sections = pem_sections(text, &["PUBLIC KEY"], &["PRIVATE KEY"]).map_err(KeySetError::Pem)?;
        let keys = sections.into_iter().map(|der| Key::of_der(&der).map_err(KeySetError::NoKey));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        // Above `MOST_KEYS`, the reason is `TooMany` below.
        if let (Some((_, algorithm)), ..=MOST_KEYS) = (untried(&keys).next(), keys.len()) {
            return Err(KeySetError::TooManyAlike(algorithm));
        }
        match keys.len() {
            0 => Err(KeySetError::Pem("the file contains none".to_owned())),
            1..=MOST_KEYS => {
                Ok(Self { keys, skipped: Vec::new(), content: digest::digest(&digest::SHA256, text) })
            }
            more => Err(KeySetError::TooMany(more)),
        }
    }

    /// Whether `self` and `other` were read from the same text.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.content.as_ref() == other.content.as_ref()
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Always `false`: see [`KeySetError::NoKey`].
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Reasons for which keys of the set are not used, each with the index of its key.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// Skipped keys for a log, if they are others than those of the `former` set; `None` if there are none.
    pub(crate) fn newly_skipped(&self, former: Option<&Self>) -> Option<String> {
        if self.skipped.is_empty() || former.is_some_and(|former| former.skipped == self.skipped) {
            return None;
        }
        let named = self.skipped[..self.skipped.len().min(MOST_NAMED)].join("; ");
        let more = self.skipped.len().saturating_sub(MOST_NAMED);
        Some(if more > 0 { format!("{named}; and {more} more") } else { named })
    }

    /// The keys that may have made a signature with this `algorithm` and key `id`, at most [`MOST_TRIED`]. A key without an
    /// ID may have made any signature, and a token without an ID may be of any key. Keys with this `id` come first, or keys
    /// without an ID if it is `None`.
    pub(crate) fn candidates(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> impl Iterator<Item = &DecodingKey> {
        let serving = self.keys.iter().filter(move |key| key.serves(algorithm));
        let is_named = move |key: &&Key| key.id.as_deref() == id;
        let named = serving.clone().filter(is_named);
        let others = serving.filter(move |key| !is_named(key) && (id.is_none() || key.id.is_none()));
        named.chain(others).map(|key| &key.decoding).take(MOST_TRIED)
    }
}

/// Keys that are never tried for an algorithm: [`MOST_TRIED`] keys before them have the same ID, or none either.
fn untried(keys: &[Key]) -> impl Iterator<Item = (usize, Algorithm)> {
    keys.iter().enumerate().filter_map(move |(index, key)| {
        let is_late = |algorithm: &&Algorithm| {
            let alike = |other: &&Key| other.id == key.id && other.serves(**algorithm);
            key.serves(**algorithm) && keys[..index].iter().filter(alike).count() >= MOST_TRIED
        };
        key.permitted.iter().find(is_late).map(|algorithm| (index, *algorithm))
    })
}

impl Key {
    fn serves(&self, algorithm: Algorithm) -> bool {
        self.permitted.contains(&algorithm) && self.algorithm.is_none_or(|own| own == algorithm)
    }

    fn of(jwk: &Jwk) -> Result<Self, String> {
        let common = &jwk.common;
        if !matches!(common.public_key_use, None | Some(PublicKeyUse::Signature)) {
            return Err("not for signatures".to_owned());
        }
        if common.key_operations.as_ref().is_some_and(|all| !all.contains(&KeyOperations::Verify)) {
            return Err("not for verification".to_owned());
        }
        let permitted = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => RSA,
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
                &[Algorithm::ES256][..]
            }
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => {
                &[Algorithm::ES384]
            }
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                &[Algorithm::EdDSA]
            }
            AlgorithmParameters::OctetKey(_) => return Err("a secret".to_owned()),
            _ => return Err("unknown type or curve".to_owned()),
        };
        let algorithm = match common.key_algorithm {
            None => None,
            Some(named) => {
                // An algorithm of another type is refused: RFC 8725 section 2.1 has
                // the attacks by such a mixture.
                let named = Algorithm::try_from(named).ok().filter(|named| permitted.contains(named));
                Some(named.ok_or("its algorithm does not belong to its type")?)
            }
        };
        let key = DecodingKey::from_jwk(jwk).map_err(|error| error.to_string())?;
        checked(Self { id: common.key_id.clone(), algorithm, permitted, decoding: key })
    }

    fn of_der(der: &[u8]) -> Result<Self, String> {
        let (_, info) = SubjectPublicKeyInfo::from_der(der).map_err(|error| error.to_string())?;
        let bytes = &info.subject_public_key.data;
        // RFC 5480 section 2.1.1: the curve is the parameter of the algorithm.
        let curve = info.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
        let is_on = |named: &Oid<'_>| curve.as_ref() == Some(named);
        let (permitted, key) = match info.parsed() {
            Ok(PublicKey::RSA(key)) => {
                // DER has a zero before a number whose first bit is set; aws-lc takes none.
                let modulus = key.modulus.strip_prefix(&[0]).unwrap_or(key.modulus);
                (RSA, DecodingKey::from_rsa_raw_components(modulus, key.exponent))
            }
            // Not by the length, which points of other curves have too; `checked` requires it.
            Ok(PublicKey::EC(_)) if is_on(&OID_EC_P256) => {
                (&[Algorithm::ES256][..], DecodingKey::from_ec_der(bytes))
            }
            Ok(PublicKey::EC(_)) if is_on(&OID_NIST_EC_P384) => {
                (&[Algorithm::ES384][..], DecodingKey::from_ec_der(bytes))
            }
            // RFC 8410 section 3.
            _ if info.algorithm.algorithm.to_id_string() == "1.3.101.112" => {
                (&[Algorithm::EdDSA][..], DecodingKey::from_ed_der(bytes))
            }
            _ => return Err("its type is none of RSA, P-256, P-384 and Ed25519".to_owned()),
        };
        checked(Self { id: None, algorithm: None, permitted, decoding: key })
    }
}

/// A key with a size that its algorithm needs.
fn checked(key: Key) -> Result<Key, String> {
    match key.decoding.kind() {
        DecodingKeyKind::RsaModulusExponent { n, .. } => {
            // RFC 7518 section 6.3.1.1: some libraries write a zero before the
            // modulus, which is no part of its size.
            let zeros = n.iter().take_while(|byte| **byte == 0).count();
            let first = n.get(zeros).map_or(8, |byte| byte.leading_zeros() as usize);
            let bits = ((n.len() - zeros) * 8).saturating_sub(first);
            if !RSA_BITS.contains(&bits) {
                let (least, most) = (RSA_BITS.start(), RSA_BITS.end());
                return Err(format!("RSA with {bits} bits, {least} to {most} are accepted"));
            }
        }
        DecodingKeyKind::SecretOrDer(bytes) => {
            let length = match key.permitted {
                [Algorithm::ES256] => 65,
                [Algorithm::ES384] => 97,
                _ => 32,
            };
            if bytes.len() != length {
                return Err(format!("a key of {} bytes instead of {length}", bytes.len()));
            }
        }
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use base64::Engine;

    use super::*;
    use crate::rules::tests::{Issuer, jwks};

    fn error(text: &str) -> String {
        KeySet::from_json(text.as_bytes()).expect_err(text).to_string()
    }

    /// The JWK of an issuer without `kid`.
    fn without_id(issuer: &Issuer) -> String {
        let mut jwk: Value = serde_json::from_str(&issuer.jwk()).expect("JSON");
        jwk.as_object_mut().expect("an object").remove("kid");
        jwk.to_string()
    }

    #[test]
    fn keys_that_verify_nothing_are_skipped() {
        let good = Issuer::new(Algorithm::ES256, "a").jwk();
        let weak = r#"{"kty":"RSA","n":"AQAB","e":"AQAB"}"#;
        let zeros = format!(r#"{{"kty":"RSA","n":"{}AQAB","e":"AQAB"}}"#, "A".repeat(400));
        let large = format!(r#"{{"kty":"RSA","n":"{}","e":"AQAB"}}"#, "_".repeat(2000));
        let others = [
            weak,
            &zeros,
            &large,
            r#"{"kty":"oct","k":"c2VjcmV0"}"#,
            r#"{"kty":"new"}"#,
            r#"{"kty":"EC","crv":"P-256","x":"AQAB","y":"AQAB"}"#,
            r#"{"kty":"OKP","crv":"Ed25519","x":"AQAB"}"#,
            "7",
        ];
        let with = |key: &str, member: &str| key.replacen('{', &format!("{{{member},"), 1);
        let marked = [
            with(&good, r#""use":"enc""#),
            with(&good, r#""key_ops":["sign"]"#),
            with(&good, r#""alg":"RS256""#),
            with(&good, r#""alg":"HS256""#),
        ];
        let all: Vec<_> = others.iter().map(|key| (*key).to_owned()).chain(marked).collect();
        let set = KeySet::from_json(jwks(&[&all[..], &[good]].concat()).as_bytes()).expect("one key");
        assert_eq!((set.len(), set.skipped().len()), (1, all.len()), "{:?}", set.skipped());
        assert!(
            set.skipped()[1].contains("RSA with 17 bits, 2048 to 4096 are accepted"),
            "{:?}",
            set.skipped()
        );
    }

    #[test]
    fn a_set_without_a_key_is_refused() {
        assert!(error("[]").contains("no JSON Web Key Set"));
        assert!(error("<html>").contains("no JSON Web Key Set"));
        assert!(error(r#"{"keys":[]}"#).contains("the list is empty"));
        assert!(error(r#"{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}"#).contains("keys[0]: a secret"));
        assert!(error(&jwks(&vec!["7".to_owned(); MOST_KEYS + 1])).contains("101 keys, at most 100"));
        assert!(error(&format!("{{\"keys\":{}", "[".repeat(100_000))).contains("recursion limit"));
    }

    #[test]
    fn equal_ids_are_bounded_and_distinct_by_algorithm() {
        let same = Issuer::new(Algorithm::ES256, "a").jwk();
        let other = Issuer::new(Algorithm::EdDSA, "a").jwk();
        let text = jwks(&[vec![same; 20], vec![other]].concat());
        let set = KeySet::from_json(text.as_bytes()).expect("keys");
        assert_eq!(set.candidates(Some("a"), Algorithm::ES256).count(), MOST_TRIED);
        assert_eq!(set.candidates(Some("a"), Algorithm::EdDSA).count(), 1);
        assert_eq!(set.candidates(Some("a"), Algorithm::RS256).count(), 0);
        assert_eq!(set.candidates(Some("b"), Algorithm::EdDSA).count(), 0);
        assert_eq!(set.candidates(None, Algorithm::EdDSA).count(), 1);
    }

    /// Four keys without an ID exhausted the limit before the key that the token names.
    #[test]
    fn keys_with_the_id_of_the_token_come_first() {
        let unnamed: Vec<_> = (0..4).map(|_| without_id(&Issuer::new(Algorithm::ES256, "x"))).collect();
        let (named, other) = (Issuer::new(Algorithm::ES256, "a"), Issuer::new(Algorithm::ES256, "b"));
        let text = jwks(&[&unnamed[..], &[other.jwk(), named.jwk()]].concat());
        let set = KeySet::from_json(text.as_bytes()).expect("keys");
        let alone = KeySet::from_json(jwks(&[named.jwk()]).as_bytes()).expect("a key");
        let first =
            |set: &KeySet, id| match set.candidates(id, Algorithm::ES256).next().expect("a candidate").kind()
            {
                DecodingKeyKind::SecretOrDer(point) => point.clone(),
                DecodingKeyKind::RsaModulusExponent { .. } => panic!("RSA"),
            };
        assert_eq!(first(&set, Some("a")), first(&alone, Some("a")));
        assert_eq!(set.candidates(Some("a"), Algorithm::ES256).count(), MOST_TRIED);
        assert_ne!(first(&set, None), first(&alone, Some("a")), "keys without an ID precede the others");
        assert_eq!(set.skipped(), [""; 0]);
    }

    #[test]
    fn keys_that_are_never_tried_are_reported() {
        let unnamed = |count: usize, algorithm| {
            let keys = (0..count).map(|_| without_id(&Issuer::new(algorithm, "x")));
            keys.collect::<Vec<_>>()
        };
        let text = jwks(&[vec!["7".to_owned()], unnamed(5, Algorithm::ES256)].concat());
        let set = KeySet::from_json(text.as_bytes()).expect("keys");
        assert!(set.skipped()[1].starts_with("keys[5]: for ES256, 4 keys before it"), "{:?}", set.skipped());
        let same = KeySet::from_json(text.as_bytes()).expect("keys");
        assert!(
            set.newly_skipped(None)
                .is_some_and(|text| text.contains("keys[0]: ") && text.contains("; keys[5]"))
        );
        assert_eq!(same.newly_skipped(Some(&set)), None, "once");
        let four = jwks(&[unnamed(4, Algorithm::ES256), unnamed(4, Algorithm::EdDSA)].concat());
        assert_eq!(KeySet::from_json(four.as_bytes()).expect("keys").newly_skipped(Some(&set)), None);
    }

    #[test]
    fn a_file_with_more_keys_than_are_tried_is_refused() {
        let pem = |algorithm| Issuer::new(algorithm, "x").pem();
        let four: String = (0..4).map(|_| pem(Algorithm::ES256)).collect();
        assert_eq!(
            KeySet::from_pem((four.clone() + &pem(Algorithm::EdDSA)).as_bytes()).expect("keys").len(),
            5
        );
        let error = KeySet::from_pem((four + &pem(Algorithm::ES256)).as_bytes()).expect_err("five alike");
        assert!(error.to_string().contains("more than 4 keys for ES256: "), "{error}");
    }

    /// Points of secp256k1 and brainpoolP256r1 are as long as those of P-256, and were taken for such.
    #[test]
    fn a_key_in_pem_has_the_curve_that_it_names() {
        let read = |curve: &[u8], point: &[u8]| {
            let element = |tag: u8, content: &[u8]| {
                let length = u8::try_from(content.len()).expect("a short element");
                [&[tag, length][..], content].concat()
            };
            // id-ecPublicKey of RFC 5480.
            let algorithm = [&b"\x06\x07\x2a\x86\x48\xce\x3d\x02\x01"[..], &element(6, curve)].concat();
            let info = [element(0x30, &algorithm), element(3, &[&[0][..], point].concat())].concat();
            let text = base64::engine::general_purpose::STANDARD.encode(element(0x30, &info));
            let pem = format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n");
            KeySet::from_pem(pem.as_bytes()).map_err(|error| error.to_string())
        };
        let p256 = b"\x2a\x86\x48\xce\x3d\x03\x01\x07";
        assert_eq!(read(p256, &[4; 65]).expect("a key").candidates(None, Algorithm::ES256).count(), 1);
        let short = read(p256, &[2; 33]).expect_err("a compressed point");
        assert!(short.contains("a key of 33 bytes instead of 65"), "{short}");
        let (secp256k1, brainpool) = (b"\x2b\x81\x04\x00\x0a", b"\x2b\x24\x03\x03\x02\x08\x01\x01\x07");
        for other in [&secp256k1[..], brainpool] {
            let error = read(other, &[4; 65]).expect_err("another curve");
            assert!(error.contains("its type is none of RSA, P-256, P-384 and Ed25519"), "{error}");
        }
    }

    #[test]
    fn a_file_without_a_public_key_is_refused() {
        for (text, reason) in [
            ("", "the file contains none"),
            ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "no usable key"),
            ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "the file contains none"),
        ] {
            let error = KeySet::from_pem(text.as_bytes()).expect_err(text).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
