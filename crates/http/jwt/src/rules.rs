//! Rules for tokens: issuers, audiences, algorithms and times.

use std::str::FromStr;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation, decode, decode_header};
use serde_json::{Map, Value};

use crate::LONGEST;
use crate::key_set::KeySet;

/// Claims of a token.
pub(crate) type Claims = Map<String, Value>;

/// Asymmetric algorithms (RFC 7518 section 3.1, RFC 8037).
const ALL: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// Algorithms of signatures: the key `algorithms` of `jwt`. Neither `none` nor HMAC can be one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Algorithms(Vec<Algorithm>);

impl Default for Algorithms {
    /// All asymmetric algorithms, from `RS256` to `EdDSA`.
    fn default() -> Self {
        Self(ALL.to_vec())
    }
}

impl Algorithms {
    /// Reads names such as `RS256`.
    ///
    /// # Errors
    ///
    /// The index of a wrong name, and the reason with the correction.
    pub fn new<'t>(names: impl IntoIterator<Item = &'t str>) -> Result<Self, (usize, String)> {
        let name = |(index, name): (usize, &str)| {
            let known = Algorithm::from_str(name).ok().filter(|algorithm| ALL.contains(algorithm));
            known.ok_or_else(|| {
                let names = ALL.map(|algorithm| format!("{algorithm:?}")).join(", ");
                let reason = if name.starts_with("HS") {
                    "shares its secret with the issuer"
                } else {
                    "is not accepted"
                };
                (index, format!("{name:?} {reason}: write some of {names}"))
            })
        };
        names.into_iter().enumerate().map(name).collect::<Result<_, _>>().map(Self)
    }
}

/// Requirements for tokens. `exp`, which RFC 7519 section 4.1.4 leaves optional, is always required.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenRules {
    /// Accepted values of `iss`; any if empty.
    pub issuers: Vec<String>,
    /// Accepted values of `aud`. If empty, a token with `aud` is refused (RFC 7519 section 4.1.3).
    pub audiences: Vec<String>,
    /// Accepted algorithms.
    pub algorithms: Algorithms,
    /// Permitted difference of the clocks in seconds, for `exp` and `nbf`.
    pub leeway: u64,
}

/// Reason for which a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFault {
    /// No token in the form of RFC 7515 section 3.1, longer than [`LONGEST`], or with `crit`.
    Malformed,
    /// An algorithm that is not accepted.
    Algorithm,
    /// No key of the set permits the `alg` of the token and may have its `kid`: a key or a token without `kid` matches any.
    UnknownKey,
    /// No key of the set made the signature.
    Signature,
    /// After `exp`.
    Expired,
    /// Before `nbf`.
    NotYetValid,
    /// `iss` is not among [`TokenRules::issuers`].
    Issuer,
    /// `aud` is not among [`TokenRules::audiences`].
    Audience,
    /// A required claim is missing or has a wrong form.
    Claims,
    /// The keys of the issuer are not known yet: no fetch has succeeded.
    NoKeys,
}

impl TokenFault {
    /// A term for the access log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "token",
            Self::Algorithm => "token-algorithm",
            Self::UnknownKey => "token-key",
            Self::Signature => "token-signature",
            Self::Expired => "token-expired",
            Self::NotYetValid => "token-not-yet-valid",
            Self::Issuer => "token-issuer",
            Self::Audience => "token-audience",
            Self::Claims => "token-claims",
            Self::NoKeys => "token-keys",
        }
    }
}

impl TokenRules {
    /// Verifies a token with `keys`, at most four signatures.
    ///
    /// # Errors
    ///
    /// [`TokenFault`]. A fault of the signature precedes those of claims.
    pub(crate) fn verify(&self, token: &[u8], keys: &KeySet) -> Result<Claims, TokenFault> {
        let is_text = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        // Before any parser: the token comes from the client.
        if token.len() > LONGEST || !token.iter().all(is_text) {
            return Err(TokenFault::Malformed);
        }
        let header = decode_header(token).map_err(|error| match error.kind() {
            // The library reads `alg` into an enum, so `none` and unknown names are errors of JSON there.
            ErrorKind::Json(error) if error.to_string().contains("unknown variant") => TokenFault::Algorithm,
            _ => TokenFault::Malformed,
        })?;
        // RFC 7515 section 4.1.11: no extension is understood here.
        if header.crit.is_some() {
            return Err(TokenFault::Malformed);
        }
        if !self.algorithms.0.contains(&header.alg) {
            return Err(TokenFault::Algorithm);
        }
        let validation = self.validation(header.alg);
        let mut fault = TokenFault::UnknownKey;
        for key in keys.candidates(header.kid.as_deref(), header.alg) {
            match decode::<Claims>(token, key, &validation) {
                Ok(data) => return Ok(data.claims),
                Err(error) => fault = of_error(error.kind()),
            }
            // The signature is verified before the claims: after another fault, no
            // other key can be the right one.
            if fault != TokenFault::Signature {
                break;
            }
        }
        Err(fault)
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        // The library permits 60 s by itself.
        validation.leeway = self.leeway;
        // The library ignores `nbf` by default, which RFC 7519 section 4.1.5 forbids.
        validation.validate_nbf = true;
        let mut required = vec!["exp"];
        if !self.issuers.is_empty() {
            validation.set_issuer(&self.issuers);
            required.push("iss");
        }
        if !self.audiences.is_empty() {
            validation.set_audience(&self.audiences);
            required.push("aud");
        }
        validation.set_required_spec_claims(&required);
        validation
    }
}

fn of_error(error: &ErrorKind) -> TokenFault {
    match error {
        ErrorKind::InvalidSignature => TokenFault::Signature,
        ErrorKind::ExpiredSignature => TokenFault::Expired,
        ErrorKind::ImmatureSignature => TokenFault::NotYetValid,
        ErrorKind::InvalidIssuer => TokenFault::Issuer,
        ErrorKind::InvalidAudience => TokenFault::Audience,
        ErrorKind::MissingRequiredClaim(_) | ErrorKind::InvalidClaimFormat(_) => TokenFault::Claims,
        ErrorKind::InvalidAlgorithm => TokenFault::Algorithm,
        _ => TokenFault::Malformed,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use aws_lc_rs::encoding::AsDer;
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
        KeyPair, RsaKeyPair,
    };
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use jsonwebtoken::{EncodingKey, Header, encode, get_current_timestamp};
    use serde_json::json;

    use super::*;

    /// An issuer with one key.
    pub(crate) struct Issuer {
        algorithm: Algorithm,
        id: String,
        key: EncodingKey,
        /// Members of its JWK.
        public: Value,
        der: Vec<u8>,
    }

    fn text(bytes: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(bytes)
    }

    impl Issuer {
        pub(crate) fn new(algorithm: Algorithm, id: &str) -> Self {
            let (key, public, der) = match algorithm {
                Algorithm::ES256 | Algorithm::ES384 => {
                    let (curve, name) = match algorithm {
                        Algorithm::ES256 => (&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256"),
                        _ => (&ECDSA_P384_SHA384_FIXED_SIGNING, "P-384"),
                    };
                    let pair = EcdsaKeyPair::generate(curve).expect("a key");
                    let (x, y) =
                        pair.public_key().as_ref()[1..].split_at(pair.public_key().as_ref().len() / 2);
                    let public = json!({"kty": "EC", "crv": name, "x": text(x), "y": text(y)});
                    let der = pair.public_key().as_der().expect("DER").as_ref().to_vec();
                    (EncodingKey::from_ec_der(pair.to_pkcs8v1().expect("PKCS #8").as_ref()), public, der)
                }
                Algorithm::EdDSA => {
                    let pair = Ed25519KeyPair::generate().expect("a key");
                    let public =
                        json!({"kty": "OKP", "crv": "Ed25519", "x": text(pair.public_key().as_ref())});
                    let der = pair.public_key().as_der().expect("DER").as_ref().to_vec();
                    (EncodingKey::from_ed_der(pair.to_pkcs8v1().expect("PKCS #8").as_ref()), public, der)
                }
                _ => {
                    let pair = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
                    let of = |bytes: &[u8]| text(bytes);
                    let (n, e) = (pair.public_key().modulus(), pair.public_key().exponent());
                    let public = json!({
                        "kty": "RSA",
                        "n": of(n.big_endian_without_leading_zero()),
                        "e": of(e.big_endian_without_leading_zero()),
                    });
                    let der = AsDer::<aws_lc_rs::encoding::PublicKeyX509Der<'_>>::as_der(pair.public_key());
                    let der = der.expect("DER").as_ref().to_vec();
                    (EncodingKey::from_rsa_der(&pkcs1(&pair)), public, der)
                }
            };
            Self { algorithm, id: id.to_owned(), key: key.clone(), public, der }
        }

        pub(crate) fn jwk(&self) -> String {
            let mut public = self.public.clone();
            public["kid"] = json!(self.id);
            public.to_string()
        }

        pub(crate) fn pem(&self) -> String {
            let text = base64::engine::general_purpose::STANDARD.encode(&self.der);
            format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n")
        }

        pub(crate) fn keys(&self) -> KeySet {
            KeySet::from_json(jwks(&[self.jwk()]).as_bytes()).expect("a key")
        }

        pub(crate) fn token(&self, claims: &Value) -> String {
            let header = Header { kid: Some(self.id.clone()), ..Header::new(self.algorithm) };
            encode(&header, claims, &self.key).expect("a token")
        }
    }

    /// The key within PKCS #8, after version, algorithm and the headers of both.
    fn pkcs1(pair: &RsaKeyPair) -> Vec<u8> {
        pair.as_der().expect("PKCS #8").as_ref()[26..].to_vec()
    }

    pub(crate) fn jwks(keys: &[String]) -> String {
        format!("{{\"keys\":[{}]}}", keys.join(","))
    }

    pub(crate) fn claims() -> Value {
        json!({"sub": "alice", "exp": get_current_timestamp() + 600})
    }

    fn with(name: &str, value: Value) -> Value {
        let mut claims = claims();
        claims[name] = value;
        claims
    }

    #[test]
    fn every_algorithm_is_verified_from_a_set_and_from_pem() {
        let rules = TokenRules::default();
        for algorithm in ALL {
            let (issuer, other) = (Issuer::new(algorithm, "a"), Issuer::new(algorithm, "a"));
            let token = issuer.token(&claims());
            assert_eq!(rules.verify(token.as_bytes(), &issuer.keys()).expect("valid")["sub"], "alice");
            let keys = KeySet::from_pem(issuer.pem().as_bytes()).expect("a key");
            assert!(rules.verify(token.as_bytes(), &keys).is_ok(), "{algorithm:?} from PEM");
            let fault = rules.verify(token.as_bytes(), &other.keys()).expect_err("another key");
            assert_eq!(fault, TokenFault::Signature, "{algorithm:?}");
            let both = jwks(&[other.jwk(), issuer.jwk()]);
            let both = KeySet::from_json(both.as_bytes()).expect("keys");
            assert!(
                rules.verify(token.as_bytes(), &both).is_ok(),
                "{algorithm:?}: the second key of this ID"
            );
        }
    }

    #[test]
    fn an_algorithm_cannot_be_chosen_by_the_token() {
        let issuer = Issuer::new(Algorithm::RS256, "a");
        let token = issuer.token(&claims());
        let (_, rest) = token.split_once('.').expect("three parts");
        let (payload, signature) = rest.split_once('.').expect("three parts");
        let verify = |token: String| {
            TokenRules::default().verify(token.as_bytes(), &issuer.keys()).expect_err("refused")
        };
        for header in [r#"{"alg":"none"}"#, r#"{"alg":"None"}"#, r#"{"alg":""}"#, r#"{"alg":"HS256"}"#] {
            let header = text(header.as_bytes());
            assert_eq!(verify(format!("{header}.{payload}.")), TokenFault::Algorithm);
            assert_eq!(verify(format!("{header}.{payload}.{signature}")), TokenFault::Algorithm);
        }
        // The public key as the secret of an HMAC (CVE-2015-9235).
        let secret = EncodingKey::from_secret(&issuer.der);
        let forged = encode(&Header::new(Algorithm::HS256), &claims(), &secret).expect("a token");
        assert_eq!(verify(forged), TokenFault::Algorithm);
        let critical = text(br#"{"alg":"RS256","crit":["b64"],"b64":false}"#);
        assert_eq!(verify(format!("{critical}.{payload}.{signature}")), TokenFault::Malformed);
        let only =
            TokenRules { algorithms: Algorithms::new(["ES256"]).expect("a name"), ..TokenRules::default() };
        assert_eq!(only.verify(token.as_bytes(), &issuer.keys()), Err(TokenFault::Algorithm));
        let key_of_token = text(
            format!(r#"{{"alg":"RS256","jwk":{}}}"#, Issuer::new(Algorithm::RS256, "a").jwk()).as_bytes(),
        );
        assert_eq!(verify(format!("{key_of_token}.{payload}.{signature}")), TokenFault::Signature);
    }

    #[test]
    fn claims_have_to_be_as_required() {
        let issuer = Issuer::new(Algorithm::EdDSA, "a");
        let now = get_current_timestamp();
        let rules = TokenRules {
            issuers: vec!["https://id.example".to_owned()],
            audiences: vec!["shop".to_owned(), "bank".to_owned()],
            leeway: 60,
            ..TokenRules::default()
        };
        let right = || json!({"iss": "https://id.example", "aud": ["other", "bank"], "exp": now + 600});
        let with = |name: &str, value: Value| {
            let mut claims = right();
            match value {
                Value::Null => drop(claims.as_object_mut().expect("claims").remove(name)),
                value => claims[name] = value,
            }
            rules.verify(issuer.token(&claims).as_bytes(), &issuer.keys()).map(|_| ())
        };
        for (name, value, expected) in [
            ("sub", json!("x"), Ok(())),
            ("aud", json!("shop"), Ok(())),
            ("exp", json!(now - 30), Ok(())),
            ("exp", json!(now as f64 + 0.5), Ok(())),
            ("nbf", json!(now + 30), Ok(())),
            ("exp", json!(now - 120), Err(TokenFault::Expired)),
            ("exp", json!("9999999999"), Err(TokenFault::Claims)),
            ("exp", json!(-1), Err(TokenFault::Claims)),
            ("exp", Value::Null, Err(TokenFault::Claims)),
            ("nbf", json!(now + 120), Err(TokenFault::NotYetValid)),
            ("nbf", json!("soon"), Err(TokenFault::Claims)),
            ("iss", json!("https://evil.example"), Err(TokenFault::Issuer)),
            ("iss", Value::Null, Err(TokenFault::Claims)),
            ("iss", json!({"https://id.example": 1}), Err(TokenFault::Claims)),
            ("aud", json!(["other"]), Err(TokenFault::Audience)),
            ("aud", json!([]), Err(TokenFault::Audience)),
            ("aud", Value::Null, Err(TokenFault::Claims)),
        ] {
            assert_eq!(with(name, value.clone()), expected, "{name} = {value}");
        }
    }

    #[test]
    fn a_token_for_another_audience_is_refused_without_a_setting_too() {
        let issuer = Issuer::new(Algorithm::EdDSA, "a");
        let token = issuer.token(&with("aud", json!("other")));
        let fault = TokenRules::default().verify(token.as_bytes(), &issuer.keys());
        assert_eq!(fault, Err(TokenFault::Audience));
    }

    #[test]
    fn malformed_tokens_are_refused() {
        let issuer = Issuer::new(Algorithm::ES256, "a");
        let token = issuer.token(&claims());
        let verify = |token: &str| TokenRules::default().verify(token.as_bytes(), &issuer.keys());
        assert!(verify(&token).is_ok());
        for wrong in [
            "",
            ".",
            "..",
            "a.b.c",
            "a.b",
            &format!("{token}."),
            &format!("x.{token}"),
            &format!("{token}="),
            &format!(" {token}"),
        ] {
            assert_eq!(verify(wrong), Err(TokenFault::Malformed), "{wrong}");
        }
        let long = issuer.token(&with("x", json!("y".repeat(LONGEST))));
        assert_eq!(verify(&long), Err(TokenFault::Malformed));
        let unknown = Issuer::new(Algorithm::ES256, "b").token(&claims());
        assert_eq!(verify(&unknown), Err(TokenFault::UnknownKey));
        // Claims twice, of which another reader could take the other.
        let twice = format!("{{\"exp\":1,\"exp\":{}}}", get_current_timestamp() + 600);
        let (header, _) = token.split_once('.').expect("three parts");
        let message = format!("{header}.{}", text(twice.as_bytes()));
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &issuer.key, Algorithm::ES256)
            .expect("a signature");
        assert!(verify(&format!("{message}.{signature}")).is_err());
    }

    #[test]
    fn names_of_algorithms_are_checked() {
        for (name, reason) in [
            ("none", "not accepted"),
            ("HS256", "shares its secret"),
            ("rs256", "not accepted"),
            ("ES512", "not accepted"),
        ] {
            let (index, error) = Algorithms::new(["RS256", name]).expect_err(name);
            assert!(index == 1 && error.contains(reason), "{error}");
        }
    }
}
