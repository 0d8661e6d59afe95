//! Tokens of requests: where they are, and responses to wrong ones.

use std::net::IpAddr;
use std::sync::Arc;

use brisk_jwt::{Token, TokenFault};
use brisk_rules::cookies;
use http::{HeaderMap, HeaderValue, header};

use crate::settings::TokenAuth;

/// RFC 6750 section 3: a challenge without a reason if the request has no token.
const MISSING: HeaderValue = HeaderValue::from_static("Bearer");
const INVALID: HeaderValue = HeaderValue::from_static("Bearer error=\"invalid_token\"");

/// Reason for which a request has no valid token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lacking {
    /// It has none.
    Missing,
    /// It has one that is refused.
    Refused(TokenFault),
}

impl Lacking {
    /// Whether other keys could change the decision.
    pub(super) fn depends_on_keys(self) -> bool {
        matches!(self, Self::Refused(TokenFault::UnknownKey | TokenFault::NoKeys))
    }

    /// The value of `WWW-Authenticate`.
    pub(super) fn challenge(self) -> HeaderValue {
        if self == Self::Missing { MISSING } else { INVALID }
    }
}

impl TokenAuth {
    /// Verifies the token of a request with the keys that are known.
    pub(super) fn examine(&self, headers: &HeaderMap) -> Result<Arc<Token>, Lacking> {
        let token = self.token(headers)?;
        self.check.verify(&token).map_err(Lacking::Refused)
    }

    /// Verifies the token of a request, after the keys were fetched again if needed.
    pub(super) async fn examine_again(
        &self,
        headers: &HeaderMap,
        client: IpAddr,
    ) -> Result<Arc<Token>, Lacking> {
        match self.examine(headers) {
            Err(lacking) if lacking.depends_on_keys() && self.check.source().refresh(client).await => {
                self.examine(headers)
            }
            result => result,
        }
    }

    /// The token. Of several ones, an upstream could use another.
    fn token(&self, headers: &HeaderMap) -> Result<Vec<u8>, Lacking> {
        let found = if let Some(name) = &self.cookie {
            let mut values = cookies(headers, name);
            values.next().map(|value| (value.to_vec(), values.next().is_none()))
        } else {
            let mut values = headers.get_all(header::AUTHORIZATION).iter();
            let first = values.next().and_then(|value| bearer(value.as_bytes()));
            first.map(|token| (token.to_vec(), values.next().is_none()))
        };
        match found {
            None => Err(Lacking::Missing),
            Some((_, false)) => Err(Lacking::Refused(TokenFault::Malformed)),
            Some((token, true)) => Ok(token),
        }
    }
}

/// RFC 6750 section 2.1; the name of the scheme in any case (RFC 9110 section 11.1).
fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = authorization.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use brisk_jwt::{KeySet, KeySource, TokenCheck, TokenRules};

    use super::*;

    /// A key of which no signature exists.
    const KEYS: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"0mBRIEMDqyMWIScAUlUGDShYbV3p9se-xBewdIy1New"}]}"#;

    fn lacking(cookie: Option<&str>, lines: &[(&'static str, &'static str)]) -> Lacking {
        let keys = KeySource::of_file(KeySet::from_json(KEYS.as_bytes()).expect("a key"));
        let check = Arc::new(TokenCheck::new(TokenRules::default(), keys, Vec::new()));
        let auth = TokenAuth { check, cookie: cookie.map(str::to_owned), forwards: true };
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        auth.examine(&headers).expect_err("no token is valid")
    }

    #[test]
    fn one_token_is_examined() {
        // {"alg":"EdDSA","kid":"a"} and {"alg":"EdDSA","kid":"b"}
        let (known, unknown) =
            ("eyJhbGciOiJFZERTQSIsImtpZCI6ImEifQ.e30.AA", "bearer eyJhbGciOiJFZERTQSIsImtpZCI6ImIifQ.e30.AA");
        let refused = Lacking::Refused;
        assert_eq!(lacking(None, &[]), Lacking::Missing);
        assert_eq!(lacking(None, &[("authorization", "Basic eDp5")]), Lacking::Missing);
        assert_eq!(lacking(None, &[("authorization", "Bearer")]), Lacking::Missing);
        assert_eq!(lacking(None, &[("authorization", "Bearer ")]), refused(TokenFault::Malformed));
        assert_eq!(lacking(None, &[("authorization", unknown)]), refused(TokenFault::UnknownKey));
        let twice = [("authorization", unknown), ("authorization", unknown)];
        assert_eq!(lacking(None, &twice), refused(TokenFault::Malformed));
        assert_eq!(lacking(Some("t"), &[("authorization", unknown)]), Lacking::Missing);
        let cookie = format!("a=b; t={known}");
        let cookie: &'static str = cookie.leak();
        assert_eq!(lacking(Some("t"), &[("cookie", cookie)]), refused(TokenFault::Signature));
        let twice = [("cookie", cookie), ("cookie", "t=x")];
        assert_eq!(lacking(Some("t"), &twice), refused(TokenFault::Malformed));
    }
}
