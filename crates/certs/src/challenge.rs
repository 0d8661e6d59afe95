//! Answers to the challenges of certificate authorities (RFC 8555 section 8), for the listeners to give.
//!
//! What orders a certificate puts answers here before the authority comes to ask. In a fleet the authority may ask another
//! gateway than the one that ordered: what is not here is then [looked for](Challenges::look_elsewhere) where all can see it.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::slot::Served;

/// The ALPN protocol of an authority that checks by tls-alpn-01 (RFC 8737 section 4).
pub const ALPN: &[u8] = b"acme-tls/1";

/// Where an authority that checks by http-01 asks (RFC 8555 section 8.3); the token follows.
pub const HTTP_PATH: &str = "/.well-known/acme-challenge/";

/// Tokens are longer than 20 characters of base64url, and no authority sends longer ones than this.
const LONGEST_TOKEN: usize = 256;

/// How long an authority waits while the rest of the fleet is asked.
const LOOK: Duration = Duration::from_secs(5);

/// What authorities are answered by this process. Cheap to ask where there is nothing to answer.
#[derive(Debug, Default)]
pub struct Challenges {
    http: Table<Arc<str>>,
    tls: Table<Served>,
    elsewhere: OnceLock<mpsc::Sender<Look>>,
}

/// An answer that another gateway may have.
#[derive(Debug)]
pub enum Look {
    /// The answer to http-01 for this token.
    Http(String, oneshot::Sender<Arc<str>>),
    /// The certificate of tls-alpn-01 for this server name.
    Tls(String, oneshot::Sender<Served>),
}

impl Challenges {
    /// No answers.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Has answers that are not here looked for by the receiver, which drops a question that it cannot answer. At most once;
    /// later calls change nothing. What waits beyond the channel's bound is answered with nothing.
    pub fn look_elsewhere(&self, questions: mpsc::Sender<Look>) {
        // A second one is the same fleet's.
        let _ = self.elsewhere.set(questions);
    }

    /// Answers http-01 with `answer`, the key authorization, until the result is dropped.
    #[must_use = "the answer is withdrawn when this is dropped"]
    pub fn answer_http(self: &Arc<Self>, token: &str, answer: &str) -> Answering {
        self.http.put(token, answer.into());
        Answering { challenges: Arc::clone(self), http: Some(token.to_owned()), tls: None }
    }

    /// Answers tls-alpn-01 for `name` with this certificate until the result is dropped.
    #[must_use = "the answer is withdrawn when this is dropped"]
    pub fn answer_tls(self: &Arc<Self>, name: &str, certificate: Served) -> Answering {
        self.tls.put(name, certificate);
        Answering { challenges: Arc::clone(self), http: None, tls: Some(name.to_owned()) }
    }

    /// The answer to http-01 for the token that `path` ends with, if `path` is that of a challenge.
    pub async fn http(&self, path: &str) -> Option<Arc<str>> {
        let token = path.strip_prefix(HTTP_PATH).filter(|token| is_token(token))?;
        if let Some(answer) = self.http.get(token) {
            return Some(answer);
        }
        self.look(|found| Look::Http(token.to_owned(), found)).await
    }

    /// The certificate of tls-alpn-01 for a server name in lower case.
    pub async fn tls(&self, name: &str) -> Option<Served> {
        if let Some(certificate) = self.tls.get(name) {
            return Some(certificate);
        }
        self.look(|found| Look::Tls(name.to_owned(), found)).await
    }

    async fn look<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Look) -> Option<T> {
        let elsewhere = self.elsewhere.get()?;
        let (found, answer) = oneshot::channel();
        elsewhere.try_send(question(found)).ok()?;
        timeout(LOOK, answer).await.ok()?.ok()
    }
}

/// RFC 8555 section 8.3: the base64url alphabet.
fn is_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=LONGEST_TOKEN).contains(&text.len()) && text.bytes().all(allowed)
}

/// An answer that is given until this is dropped.
#[derive(Debug)]
pub struct Answering {
    challenges: Arc<Challenges>,
    http: Option<String>,
    tls: Option<String>,
}

impl Drop for Answering {
    fn drop(&mut self) {
        if let Some(token) = &self.http {
            self.challenges.http.remove(token);
        }
        if let Some(name) = &self.tls {
            self.challenges.tls.remove(name);
        }
    }
}

/// A few answers, by token or name.
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
        let answering = challenges.answer_http("a-token_1", "a-token_1.thumbprint");
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
                    Look::Http(token, found) if token == "known" => {
                        found.send("answer".into()).expect("asked");
                    }
                    Look::Http(..) | Look::Tls(..) => {}
                }
            }
        });
        assert_eq!(challenges.http(&format!("{HTTP_PATH}known")).await.as_deref(), Some("answer"));
        assert_eq!(challenges.http(&format!("{HTTP_PATH}unknown")).await, None);
        assert!(challenges.tls("a.test").await.is_none());
    }
}
