//! Verification of tokens for a route, with the results remembered.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::{digest, hmac};
use http::{HeaderName, HeaderValue};

use crate::LONGEST;
use crate::claims::ClaimHeader;
use crate::key_set::KeySet;
use crate::rules::{TokenFault, TokenRules};
use crate::source::KeySource;

/// Maximum number of remembered tokens, and of the bytes that they hold together ([`Token::size`]).
const MOST_TOKENS: usize = 10_000;
const MOST_BYTES: usize = 16 << 20;

/// Maximum length of [`Token::subject`] in bytes. A longer `sub` is cut.
const LONGEST_NAME: usize = 256;

/// Verification by the rules and keys of a route.
///
/// Valid tokens are remembered as a keyed hash until `exp` or until the keys change: at most 10,000, and 16 MiB.
pub struct TokenCheck {
    rules: TokenRules,
    source: Arc<KeySource>,
    headers: Vec<ClaimHeader>,
    /// Random, so that memory contains no hash that can be searched for.
    key: hmac::Key,
    remembered: RwLock<Remembered>,
}

/// A valid token.
#[derive(Debug)]
pub struct Token {
    /// The user: `sub`, cut after 256 bytes; `None` if it is absent, empty or no text.
    pub subject: Option<Arc<str>>,
    /// Headers for the upstream, of [`ClaimHeader`]s whose claim is present.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// `exp`, in Unix seconds.
    expires: u64,
}

type Mark = [u8; digest::SHA256_OUTPUT_LEN];

/// Tokens that were verified with the same keys.
#[derive(Debug, Default)]
struct Remembered {
    keys: Option<Arc<KeySet>>,
    tokens: HashMap<Mark, Arc<Token>>,
    bytes: usize,
}

impl TokenCheck {
    /// A check by `rules` with the keys of `source`, which forms `headers` of the claims.
    pub fn new(rules: TokenRules, source: Arc<KeySource>, headers: Vec<ClaimHeader>) -> Self {
        let key =
            hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).expect("randomness of the system");
        Self { rules, source, headers, key, remembered: RwLock::default() }
    }

    /// The keys.
    pub fn source(&self) -> &Arc<KeySource> {
        &self.source
    }

    /// Headers of requests that are formed of claims.
    pub fn header_names(&self) -> impl Iterator<Item = &HeaderName> {
        self.headers.iter().map(|header| &header.header)
    }

    /// The result for a token that was verified with the current keys, or that is longer than [`LONGEST`]; `None` if
    /// [`Self::verify`] is needed. Costs one hash.
    pub fn known(&self, token: &[u8]) -> Option<Result<Arc<Token>, TokenFault>> {
        // Before the hash, whose cost grows with the token.
        if token.len() > LONGEST {
            return Some(Err(TokenFault::Malformed));
        }
        self.remembered(&self.mark(token), &self.source.keys()?)
    }

    /// Verifies a token with the keys that are known: up to four signatures, of 20 to 500 µs each.
    ///
    /// # Errors
    ///
    /// [`TokenFault`]: after [`NoKeys`](TokenFault::NoKeys) and [`UnknownKey`](TokenFault::UnknownKey),
    /// [`KeySource::refresh`] may have the key.
    pub fn verify(&self, token: &[u8]) -> Result<Arc<Token>, TokenFault> {
        let keys = self.source.keys().ok_or(TokenFault::NoKeys)?;
        let mark = self.mark(token);
        // Another request may have verified the token while this one waited for its turn.
        if let Some(result) = self.remembered(&mark, &keys) {
            return result;
        }
        // Faults are not remembered: forged tokens would displace valid ones.
        let claims = self.rules.verify(token, &keys)?;
        let expires =
            claims.get("exp").and_then(|exp| exp.as_u64().or_else(|| exp.as_f64().map(|exp| exp as u64)));
        let subject =
            claims.get("sub").and_then(|subject| subject.as_str()).filter(|subject| !subject.is_empty());
        let headers = self.headers.iter().filter_map(|own| Some((own.header.clone(), own.value(&claims)?)));
        let token = Arc::new(Token {
            subject: subject.map(|subject| subject[..subject.floor_char_boundary(LONGEST_NAME)].into()),
            headers: headers.collect(),
            expires: expires.unwrap_or_default(),
        });
        self.remember(mark, &token, &keys);
        Ok(token)
    }

    fn mark(&self, token: &[u8]) -> Mark {
        hmac::sign(&self.key, token).as_ref().try_into().expect("a tag has the length of the hash")
    }

    fn remembered(&self, mark: &Mark, keys: &Arc<KeySet>) -> Option<Result<Arc<Token>, TokenFault>> {
        let remembered = self.remembered.read().unwrap_or_else(PoisonError::into_inner);
        // By address, which costs nothing: `KeySource` keeps its `Arc` if a fetch returns the same text.
        let is_current = remembered.keys.as_ref().is_some_and(|own| Arc::ptr_eq(own, keys));
        let token = remembered.tokens.get(mark).filter(|_| is_current)?;
        let is_valid = now() <= token.expires.saturating_add(self.rules.leeway);
        Some(if is_valid { Ok(Arc::clone(token)) } else { Err(TokenFault::Expired) })
    }

    fn remember(&self, mark: Mark, token: &Arc<Token>, keys: &Arc<KeySet>) {
        let mut remembered = self.remembered.write().unwrap_or_else(PoisonError::into_inner);
        if !remembered.keys.as_ref().is_some_and(|own| Arc::ptr_eq(own, keys)) {
            *remembered = Remembered { keys: Some(Arc::clone(keys)), ..Remembered::default() };
        }
        if remembered.tokens.len() >= MOST_TOKENS || remembered.bytes + token.size() > MOST_BYTES {
            let now = now();
            remembered.tokens.retain(|_, token| now <= token.expires);
            remembered.bytes = remembered.tokens.values().map(|token| token.size()).sum();
        }
        // Any token: its order of use would need a write lock for each request, and its loss costs one signature.
        while remembered.tokens.len() >= MOST_TOKENS || remembered.bytes + token.size() > MOST_BYTES {
            let Some(any) = remembered.tokens.keys().next().copied() else { return };
            let removed = remembered.tokens.remove(&any);
            remembered.bytes -= removed.map_or(0, |token| token.size());
        }
        remembered.bytes += token.size();
        if let Some(replaced) = remembered.tokens.insert(mark, Arc::clone(token)) {
            remembered.bytes -= replaced.size();
        }
    }
}

impl fmt::Debug for TokenCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenCheck")
            .field("rules", &self.rules)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl Token {
    /// Bytes that the token holds.
    fn size(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 64);
        size_of::<Self>() + self.subject.as_ref().map_or(0, |subject| subject.len()) + headers.sum::<usize>()
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::Algorithm;
    use serde_json::json;

    use super::*;
    use crate::rules::tests::Issuer;

    fn check(keys: KeySet) -> TokenCheck {
        let headers =
            vec![ClaimHeader { header: HeaderName::from_static("x-group"), claim: "group".to_owned() }];
        TokenCheck::new(TokenRules::default(), KeySource::of_file(keys), headers)
    }

    #[test]
    fn a_remembered_token_ends_with_its_validity_and_with_its_key() {
        let issuer = Issuer::new(Algorithm::ES256, "a");
        let check = check(issuer.keys());
        let token = issuer.token(&json!({"sub": "alice", "group": "x", "exp": now() + 600}));
        assert!(check.known(token.as_bytes()).is_none(), "not verified yet");
        let first = check.verify(token.as_bytes()).expect("valid");
        let known = check.known(token.as_bytes()).expect("a result").expect("valid");
        assert!(Arc::ptr_eq(&first, &known));
        let long = check.known(&[b'a'; LONGEST + 1]).expect("a result");
        assert_eq!(long.expect_err("too long"), TokenFault::Malformed);
        assert_eq!(first.subject.as_deref(), Some("alice"));
        assert_eq!(first.headers, [(HeaderName::from_static("x-group"), HeaderValue::from_static("x"))]);
        assert!(Arc::ptr_eq(&first, &check.verify(token.as_bytes()).expect("valid")), "remembered");
        // Another signature for the same claims is another token.
        let mut forged = token.clone().into_bytes();
        let place = forged.len() - 20;
        forged[place] = if forged[place] == b'A' { b'B' } else { b'A' };
        assert_eq!(check.verify(&forged).expect_err("forged"), TokenFault::Signature);
        check.source.replace_for_test(Issuer::new(Algorithm::ES256, "b").keys());
        assert_eq!(check.verify(token.as_bytes()).expect_err("its key is gone"), TokenFault::UnknownKey);
        let passed = Token { subject: None, headers: Vec::new(), expires: now() - 1 };
        let mark = hmac::sign(&check.key, b"x").as_ref().try_into().expect("a tag");
        check.remember(mark, &Arc::new(passed), &check.source.keys().expect("keys"));
        assert_eq!(check.verify(b"x").expect_err("expired"), TokenFault::Expired);
    }

    #[test]
    fn memory_of_tokens_is_bounded() {
        let issuer = Issuer::new(Algorithm::ES256, "a");
        let check = check(issuer.keys());
        let keys = check.source.keys().expect("keys");
        let token = |length: usize| {
            let value = HeaderValue::from_str(&"x".repeat(length)).expect("a value");
            Arc::new(Token {
                subject: None,
                headers: vec![(HeaderName::from_static("x-a"), value)],
                expires: u64::MAX,
            })
        };
        for number in 0..MOST_TOKENS + 100 {
            let mark = hmac::sign(&check.key, &number.to_be_bytes()).as_ref().try_into().expect("a tag");
            check.remember(mark, &token(10), &keys);
        }
        assert_eq!(check.remembered.read().expect("a lock").tokens.len(), MOST_TOKENS);
        for number in 0..3000_u64 {
            let mark =
                hmac::sign(&check.key, &(number << 32).to_be_bytes()).as_ref().try_into().expect("a tag");
            check.remember(mark, &token(8 << 10), &keys);
        }
        let remembered = check.remembered.read().expect("a lock");
        let sum: usize = remembered.tokens.values().map(|token| token.size()).sum();
        assert!(remembered.bytes <= MOST_BYTES && remembered.bytes == sum, "{}", remembered.bytes);
    }
}
