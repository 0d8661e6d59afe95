//! Responses to the challenges of certificate authorities (RFC 8555 section 8), served by the listeners.
//!
//! The ACME client publishes a response before it asks the authority to validate. In a fleet the authority may reach
//! another gateway than the one that ordered; that gateway [looks up](Challenges::look_elsewhere) the response in the
//! fleet's store.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::slot::Served;

/// ALPN protocol of tls-alpn-01 (RFC 8737 section 4).
pub const ALPN: &[u8] = b"acme-tls/1";

/// Path prefix of http-01 (RFC 8555 section 8.3); the token follows.
pub const HTTP_PATH: &str = "/.well-known/acme-challenge/";

/// Maximum length of a token. Tokens have more than 20 base64url characters, and none that authorities send is longer
/// than this.
const LONGEST_TOKEN: usize = 256;

/// Timeout of a look-up in the fleet.
const LOOK: Duration = Duration::from_secs(5);

/// Published responses of this process. A look-up is cheap while there are none.
#[derive(Debug, Default)]
pub struct Challenges {
    http: Table<Arc<str>>,
    tls: Table<Served>,
    elsewhere: OnceLock<mpsc::Sender<ChallengeLookup>>,
}

/// Request for a response that another gateway may have published.
#[derive(Debug)]
pub enum ChallengeLookup {
    /// Key authorization for an http-01 token.
    Http(String, oneshot::Sender<Arc<str>>),
    /// tls-alpn-01 certificate for a server name.
    Tls(String, oneshot::Sender<Served>),
}

impl Challenges {
    /// Creates an empty table.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Sends look-ups of unknown responses to `questions`. The receiver drops a request that it cannot answer; requests
    /// beyond the capacity of the channel fail. Only the first call has an effect.
    pub fn look_elsewhere(&self, questions: mpsc::Sender<ChallengeLookup>) {
        // Already set: further senders belong to the same fleet.
        let _ = self.elsewhere.set(questions);
    }

    /// Publishes `answer`, the key authorization for `token`, until the result is dropped.
    #[must_use = "the answer is withdrawn when this is dropped"]
    pub fn publish_http(self: &Arc<Self>, token: &str, answer: &str) -> PublishedChallenge {
        self.http.put(token, answer.into());
        PublishedChallenge { challenges: Arc::clone(self), http: Some(token.to_owned()), tls: None }
    }

    /// Publishes the tls-alpn-01 certificate for `name` until the result is dropped.
    #[must_use = "the answer is withdrawn when this is dropped"]
    pub fn publish_tls(self: &Arc<Self>, name: &str, certificate: Served) -> PublishedChallenge {
        self.tls.put(name, certificate);
        PublishedChallenge { challenges: Arc::clone(self), http: None, tls: Some(name.to_owned()) }
    }

    /// The key authorization for the token in `path`; `None` if `path` is not that of a challenge. Waits up to five
    /// seconds for the fleet.
    pub async fn http(&self, path: &str) -> Option<Arc<str>> {
        // Checked before the look-up: every client can request any path, and each look-up is a request to
        // the store.
        let token = path.strip_prefix(HTTP_PATH).filter(|token| is_token(token))?;
        if let Some(answer) = self.http.get(token) {
            return Some(answer);
        }
        self.look(|found| ChallengeLookup::Http(token.to_owned(), found)).await
    }

    /// The tls-alpn-01 certificate for the server name `name` (lower case). Waits up to five seconds for the fleet.
    pub async fn tls(&self, name: &str) -> Option<Served> {
        if let Some(certificate) = self.tls.get(name) {
            return Some(certificate);
        }
        self.look(|found| ChallengeLookup::Tls(name.to_owned(), found)).await
    }

    async fn look<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> ChallengeLookup) -> Option<T> {
        let elsewhere = self.elsewhere.get()?;
        let (found, answer) = oneshot::channel();
        // Never waits for a slot of the channel: a flood of unknown tokens fails here instead of holding
        // requests.
        elsewhere.try_send(question(found)).ok()?;
        timeout(LOOK, answer).await.ok()?.ok()
    }
}

/// RFC 8555 section 8.3: the base64url alphabet.
fn is_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=LONGEST_TOKEN).contains(&text.len()) && text.bytes().all(allowed)
}

/// A published response, withdrawn when dropped.
#[derive(Debug)]
pub struct PublishedChallenge {
    challenges: Arc<Challenges>,
    http: Option<String>,
    tls: Option<String>,
}

impl Drop for PublishedChallenge {
    fn drop(&mut self) {
        if let Some(token) = &self.http {
            self.challenges.http.remove(token);
        }
        if let Some(name) = &self.tls {
            self.challenges.tls.remove(name);
        }
    }
}

/// Published responses by token or name.
#[derive(Debug)]
struct Table<T>(RwLock<HashMap<String, T>>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<T: Clone> Table<T> {
    fn put(&self, key: &str, value: T) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned(), value);
    }

    fn get(&self, key: &str) -> Option<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn remove(&self, key: &str) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_token_is_answered_while_its_order_lasts() {
        let challenges = Challenges::new();
        let answering = challenges.publish_http("a-token_1", "a-token_1.thumbprint");
        let path = |token: &str| format!("{HTTP_PATH}{token}");
        assert_eq!(challenges.http(&path("a-token_1")).await.as_deref(), Some("a-token_1.thumbprint"));
        for other in ["a-token", "", "../a-token_1", "a-token_1/", "a-token_1?x"] {
            assert_eq!(challenges.http(&path(other)).await, None, "{other}");
        }
        assert_eq!(challenges.http("/a-token_1").await, None);
        drop(answering);
        assert_eq!(challenges.http(&path("a-token_1")).await, None);
    }

    #[tokio::test]
    async fn what_is_not_here_is_looked_for_elsewhere() {
        let challenges = Challenges::new();
        let (questions, mut asked) = mpsc::channel(1);
        challenges.look_elsewhere(questions);
        tokio::spawn(async move {
            while let Some(question) = asked.recv().await {
                match question {
                    ChallengeLookup::Http(token, found) if token == "known" => {
                        found.send("answer".into()).expect("asked");
                    }
                    ChallengeLookup::Http(..) | ChallengeLookup::Tls(..) => {}
                }
            }
        });
        assert_eq!(challenges.http(&format!("{HTTP_PATH}known")).await.as_deref(), Some("answer"));
        assert_eq!(challenges.http(&format!("{HTTP_PATH}unknown")).await, None);
        assert!(challenges.tls("a.test").await.is_none());
    }
}
