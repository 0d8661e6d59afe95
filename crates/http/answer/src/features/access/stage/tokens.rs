//! Tokens of requests: where they are, and responses to wrong ones.

use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;

use brisk_http::message::HeaderList;
use brisk_http_connection::Connection;
use brisk_http_connection::work::WorkPlace;
use brisk_jwt::{Token, TokenFault};
use brisk_rules::cookies;
use http::{HeaderValue, header};

use crate::settings::TokenAuth;

/// RFC 6750 section 3: a challenge without a reason if the request has no token.
const MISSING: HeaderValue = HeaderValue::from_static("Bearer");
const INVALID: HeaderValue = HeaderValue::from_static("Bearer error=\"invalid_token\"");

/// Work of a verification, as the number of bytes of [`Connection::poll_work`] that take about as long. A forged token with a
/// short form on the wire (HPACK) costs 20 to 500 µs for each key that is tried, and a connection may have a hundred of them.
const VERIFICATION: usize = 32 << 10;

/// Reason for which a request has no valid token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lacking {
    /// The request has no token.
    Missing,
    /// The request has a token that is refused.
    Refused(TokenFault),
}

impl Lacking {
    /// Whether other keys could change the decision.
    fn depends_on_keys(self) -> bool {
        matches!(self, Self::Refused(TokenFault::UnknownKey | TokenFault::NoKeys))
    }

    /// The value of `WWW-Authenticate`.
    pub(super) fn challenge(self) -> HeaderValue {
        if self == Self::Missing { MISSING } else { INVALID }
    }
}

impl TokenAuth {
    /// The token of a request; `None` if its signature has not been verified yet.
    pub(super) fn examine(&self, headers: &HeaderList) -> Result<Option<Arc<Token>>, Lacking> {
        let token = self.token(headers)?;
        self.check.known(&token).transpose().map_err(Lacking::Refused)
    }

    /// Verifies the token of a request, after the keys were fetched again if needed. Waits for the turn of the client among those
    /// of the worker.
    pub(super) async fn verify(
        &self,
        headers: &HeaderList,
        connection: &Connection,
        client: IpAddr,
    ) -> Result<Arc<Token>, Lacking> {
        // Another request may have had the token verified since `request`.
        if let Some(token) = self.examine(headers)? {
            return Ok(token);
        }
        let token = self.token(headers)?;
        let verify = async || {
            let mut place = WorkPlace::default();
            poll_fn(|context| connection.poll_work(VERIFICATION, &mut place, context)).await;
            self.check.verify(&token).map_err(Lacking::Refused)
        };
        match verify().await {
            // One more attempt: `refresh` limits the fetches, but each attempt costs up to four signatures.
            Err(lacking) if lacking.depends_on_keys() && self.check.source().refresh(client).await => {
                verify().await
            }
            result => result,
        }
    }

    /// The token. Of several ones, an upstream could use another.
    fn token(&self, headers: &HeaderList) -> Result<Vec<u8>, Lacking> {
        let found = if let Some(name) = &self.cookie {
            let mut values = cookies(headers, name);
            values.next().map(|value| (value.to_vec(), values.next().is_none()))
        } else {
            let mut values = headers.get_all(header::AUTHORIZATION);
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
    use std::net::SocketAddr;
    use std::pin::pin;
    use std::rc::Rc;

    use brisk_budget::Budgets;
    use brisk_http_connection::buffers::WorkerBuffers;
    use brisk_http_connection::connection::Surroundings;
    use brisk_http_connection::settings::HttpSettings;
    use brisk_jwt::{KeySet, KeySource, TokenCheck, TokenRules};
    use brisk_net::DeadlineWheel;
    use brisk_telemetry::{ConnectionRecord, Metrics, Timeline};
    use futures_util::FutureExt;

    use super::*;

    /// A key of which no signature exists.
    const KEYS: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"0mBRIEMDqyMWIScAUlUGDShYbV3p9se-xBewdIy1New"}]}"#;

    /// A token whose signature is wrong: {"alg":"EdDSA","kid":"a"}.
    const FORGED: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6ImEifQ.e30.AA";

    fn auth(cookie: Option<&str>) -> TokenAuth {
        let keys = KeySource::of_file(KeySet::from_json(KEYS.as_bytes()).expect("a key"));
        let check = Arc::new(TokenCheck::new(TokenRules::default(), keys, Vec::new()));
        TokenAuth { check, cookie: cookie.map(str::to_owned), forwards: true }
    }

    fn connection() -> Rc<Connection> {
        let address = SocketAddr::from(([192, 0, 2, 1], 40000));
        Connection::new(ConnectionRecord::new(1, address, address, Timeline::start()), true)
    }

    async fn lacking(cookie: Option<&str>, lines: &[(&'static str, &'static str)]) -> Lacking {
        let mut headers = HeaderList::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        let client = IpAddr::from([192, 0, 2, 1]);
        auth(cookie).verify(&headers, &connection(), client).await.expect_err("no token is valid")
    }

    #[tokio::test]
    async fn a_token_that_was_not_verified_waits_for_the_turn_of_its_client() {
        let (auth, connection, client) = (auth(Some("t")), connection(), IpAddr::from([192, 0, 2, 1]));
        let budgets = Arc::new(Budgets::new(&HttpSettings::default().limits()));
        let buffers = WorkerBuffers::new(Metrics::new(), budgets);
        connection.surround(Surroundings {
            settings: Rc::default(),
            wheel: DeadlineWheel::new(),
            buffers: Rc::clone(&buffers),
            drain: brisk_net::drain::channel().1,
        });
        let cookie = HeaderValue::from_str(&format!("t={FORGED}")).expect("a value");
        let headers: HeaderList = [(header::COOKIE, cookie)].into_iter().collect();
        assert_eq!(auth.examine(&headers).map(|token| token.is_some()), Ok(false), "it has to be verified");
        let refused = || {
            let verified = auth.verify(&headers, &connection, client);
            verified.now_or_never().map(|verified| verified.expect_err("a forged token"))
        };
        let signature = Lacking::Refused(TokenFault::Signature);
        assert_eq!([refused(), refused(), refused()], [Some(signature), Some(signature), None]);
        let mut rounds = pin!(buffers.divide_work());
        let verified = auth.verify(&headers, &connection, client);
        tokio::select! {
            verified = verified => assert_eq!(verified.expect_err("a forged token"), signature),
            () = &mut rounds => unreachable!("rounds never end"),
        }
    }

    #[tokio::test]
    async fn one_token_is_examined() {
        // {"alg":"EdDSA","kid":"b"}
        let unknown = "bearer eyJhbGciOiJFZERTQSIsImtpZCI6ImIifQ.e30.AA";
        let refused = Lacking::Refused;
        assert_eq!(lacking(None, &[]).await, Lacking::Missing);
        assert_eq!(lacking(None, &[("authorization", "Basic eDp5")]).await, Lacking::Missing);
        assert_eq!(lacking(None, &[("authorization", "Bearer")]).await, Lacking::Missing);
        assert_eq!(lacking(None, &[("authorization", "Bearer ")]).await, refused(TokenFault::Malformed));
        assert_eq!(lacking(None, &[("authorization", unknown)]).await, refused(TokenFault::UnknownKey));
        let twice = [("authorization", unknown), ("authorization", unknown)];
        assert_eq!(lacking(None, &twice).await, refused(TokenFault::Malformed));
        assert_eq!(lacking(Some("t"), &[("authorization", unknown)]).await, Lacking::Missing);
        let cookie = format!("a=b; t={FORGED}");
        let cookie: &'static str = cookie.leak();
        assert_eq!(lacking(Some("t"), &[("cookie", cookie)]).await, refused(TokenFault::Signature));
        let twice = [("cookie", cookie), ("cookie", "t=x")];
        assert_eq!(lacking(Some("t"), &twice).await, refused(TokenFault::Malformed));
    }
}
