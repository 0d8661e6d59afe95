//! Requests that come before the end of their handshake: which of them are answered at once, and what waits.
//!
//! Early data is from whoever made the session, but it may be a copy of what was sent before (RFC 8446 section 8). A
//! session is given away only once, so of all copies one gets here at most; whether it was sent by the client or by
//! someone who held it back, only the client's `Finished` tells. So each route says what it answers before that comes.

use std::cell::Cell;
use std::str::FromStr;
use std::time::{Duration, Instant};

use brisk_tls::Confirmation;
use http::request::Parts;
use http::{Method, header};

use crate::client::End;

/// Which requests of a route are answered before the handshake is complete (RFC 8470). Others wait for its end, a round
/// trip. A request that wants to switch protocols always waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EarlyDataPolicy {
    /// None.
    #[default]
    Hold,
    /// Those of GET, HEAD and OPTIONS without a body.
    Safe,
    /// Those to these paths, whatever their method: that they may come at the wrong time does no harm.
    Paths(Vec<EarlyPath>),
}

/// Paths whose requests may be answered early. Compared with the request's path after its percent-encoding is undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EarlyPath {
    /// This path alone.
    Exact(String),
    /// Paths that begin so, letter by letter.
    Prefix(String),
}

/// A text that is no [`EarlyPath`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EarlyPathError {
    /// Not from the root on.
    #[error("a path begins with a slash")]
    Slash,
    /// A `*` before the end.
    #[error("a path has no \"*\" but at its end, where it stands for whatever follows")]
    Star,
}

impl FromStr for EarlyPath {
    type Err = EarlyPathError;

    /// `/api/search` is one path, `/img/*` whatever begins with `/img/`.
    fn from_str(text: &str) -> Result<Self, EarlyPathError> {
        let (path, is_prefix) = text.strip_suffix('*').map_or((text, false), |prefix| (prefix, true));
        if !path.starts_with('/') {
            return Err(EarlyPathError::Slash);
        }
        if path.contains('*') {
            return Err(EarlyPathError::Star);
        }
        Ok(if is_prefix { Self::Prefix(path.to_owned()) } else { Self::Exact(path.to_owned()) })
    }
}

impl EarlyPath {
    fn takes(&self, path: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => path == exact.as_bytes(),
            Self::Prefix(prefix) => path.starts_with(prefix.as_bytes()),
        }
    }
}

impl EarlyDataPolicy {
    /// Whether a request to `path`, without percent-encoding, is answered early.
    pub(crate) fn lets_pass(&self, head: &Parts, path: &[u8], bodyless: bool) -> bool {
        if head.headers.contains_key(header::UPGRADE) {
            return false;
        }
        match self {
            Self::Hold => false,
            // RFC 8470 section 4: methods that are safe by definition; PUT and DELETE are idempotent, but not safe.
            Self::Safe => bodyless && matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS),
            Self::Paths(paths) => paths.iter().any(|early| early.takes(path)),
        }
    }
}

/// Tells the end of a handshake.
#[derive(Debug)]
pub(crate) enum Completion {
    /// Its stream does.
    Stream(Confirmation),
    /// A test does, which has no stream.
    #[cfg(test)]
    Told(std::rc::Rc<testing::Told>),
}

impl Completion {
    fn is_reached(&self) -> bool {
        match self {
            Self::Stream(confirmation) => confirmation.is_confirmed(),
            #[cfg(test)]
            Self::Told(told) => told.is_complete(),
        }
    }

    async fn reached(&self) {
        match self {
            Self::Stream(confirmation) => confirmation.confirmed().await,
            #[cfg(test)]
            Self::Told(told) => told.completed().await,
        }
    }
}

/// The handshake of a connection whose early data is being answered.
#[derive(Debug)]
pub(crate) struct Handshake {
    completion: Completion,
    until: Instant,
    waiting: Cell<u32>,
    failure: Cell<Option<End>>,
}

impl Handshake {
    /// A handshake whose end `completion` tells, and which may take until then.
    pub(crate) fn new(completion: Completion, until: Instant) -> Self {
        Self { completion, until, waiting: Cell::new(0), failure: Cell::new(None) }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.completion.is_reached()
    }

    /// Waits for the end of the handshake; for ever, if it fails.
    pub(crate) async fn complete(&self) {
        let _waiting = Waiting::new(&self.waiting);
        self.completion.reached().await;
    }

    /// Requests that wait for the end.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.get()
    }

    /// How long the client may still take.
    pub(crate) fn time_left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Notes that the handshake will not succeed; the first reason counts.
    pub(crate) fn fail(&self, end: End) {
        self.failure.set(self.failure.get().or(Some(end)));
    }

    /// Why it will not succeed.
    pub(crate) fn failure(&self) -> Option<End> {
        self.failure.get()
    }
}

/// Counts one that waits.
struct Waiting<'a>(&'a Cell<u32>);

impl<'a> Waiting<'a> {
    fn new(count: &'a Cell<u32>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Handshakes without a stream.
#[cfg(test)]
pub(crate) mod testing {
    use std::cell::Cell;

    use tokio::sync::Notify;

    /// The end of a handshake, for a test to tell.
    #[derive(Debug, Default)]
    pub(crate) struct Told {
        complete: Cell<bool>,
        waiting: Notify,
    }

    impl Told {
        pub(crate) fn complete(&self) {
            self.complete.set(true);
            self.waiting.notify_waiters();
        }

        pub(super) fn is_complete(&self) -> bool {
            self.complete.get()
        }

        pub(super) async fn completed(&self) {
            let notified = self.waiting.notified();
            if !self.is_complete() {
                notified.await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::task::{Context, Poll, Waker};

    use http::Request;

    use super::*;

    fn head(method: &str) -> Parts {
        Request::builder().method(method).body(()).expect("a request").into_parts().0
    }

    fn paths(texts: &[&str]) -> EarlyDataPolicy {
        EarlyDataPolicy::Paths(texts.iter().map(|text| text.parse().expect("a path")).collect())
    }

    #[test]
    fn nothing_passes_unless_it_is_allowed() {
        assert!(!EarlyDataPolicy::default().lets_pass(&head("GET"), b"/", true));
    }

    #[test]
    fn only_safe_methods_without_a_body_are_safe() {
        for method in ["GET", "HEAD", "OPTIONS"] {
            assert!(EarlyDataPolicy::Safe.lets_pass(&head(method), b"/", true), "{method}");
            assert!(!EarlyDataPolicy::Safe.lets_pass(&head(method), b"/", false), "{method}");
        }
        for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE", "get"] {
            assert!(!EarlyDataPolicy::Safe.lets_pass(&head(method), b"/", true), "{method}");
        }
    }

    #[test]
    fn paths_pass_with_any_method() {
        let policy = paths(&["/api/search", "/img/*"]);
        for path in ["/api/search", "/img/", "/img/a/b"] {
            assert!(policy.lets_pass(&head("POST"), path.as_bytes(), false), "{path}");
        }
        for path in ["/api/search/x", "/api", "/img", "/"] {
            assert!(!policy.lets_pass(&head("GET"), path.as_bytes(), true), "{path}");
        }
    }

    #[test]
    fn switching_protocols_always_waits() {
        let mut head = head("GET");
        head.headers.insert(header::UPGRADE, "websocket".parse().expect("a value"));
        assert!(!EarlyDataPolicy::Safe.lets_pass(&head, b"/ws", true));
        assert!(!paths(&["/*"]).lets_pass(&head, b"/ws", true));
    }

    #[test]
    fn a_path_begins_with_a_slash_and_has_a_star_only_at_its_end() {
        assert_eq!("/*".parse(), Ok(EarlyPath::Prefix("/".to_owned())));
        assert_eq!("api".parse::<EarlyPath>(), Err(EarlyPathError::Slash));
        assert_eq!("*".parse::<EarlyPath>(), Err(EarlyPathError::Slash));
        assert_eq!("/a*/b".parse::<EarlyPath>(), Err(EarlyPathError::Star));
        assert_eq!("/a**".parse::<EarlyPath>(), Err(EarlyPathError::Star));
    }

    #[test]
    fn who_waits_is_counted_until_the_end_or_until_it_gives_up() {
        let told = Rc::new(testing::Told::default());
        let handshake = Handshake::new(Completion::Told(Rc::clone(&told)), Instant::now());
        let cx = &mut Context::from_waker(Waker::noop());
        let mut first = Box::pin(handshake.complete());
        let mut second = Box::pin(handshake.complete());
        assert!(first.as_mut().poll(cx).is_pending() && second.as_mut().poll(cx).is_pending());
        assert_eq!(handshake.waiting(), 2);
        drop(second);
        assert_eq!(handshake.waiting(), 1);
        told.complete();
        assert_eq!(first.as_mut().poll(cx), Poll::Ready(()));
        drop(first);
        assert_eq!(handshake.waiting(), 0);
    }

    #[test]
    fn the_first_failure_counts() {
        let handshake = Handshake::new(Completion::Told(Rc::default()), Instant::now());
        handshake.fail(End::Malformed);
        handshake.fail(End::ClientGone);
        assert_eq!(handshake.failure(), Some(End::Malformed));
        assert_eq!(handshake.time_left(), Duration::ZERO);
    }
}
