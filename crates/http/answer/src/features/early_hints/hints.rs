//! `103 Early Hints` (RFC 8297): resources of a page, sent while its upstream produces the page.
//!
//! The links come from the configuration, from the upstream's own `103`, or from the `Link` headers of earlier responses for
//! the same authority and path, if the authority is a name of the host. Links are learned only from responses that are the same
//! for all users ([`Credentials::permit_retention`]). Only navigations get hints, and only over HTTP/2 and HTTP/3: other
//! requests do not benefit, and old HTTP/1.1 clients mistake an interim response for the final response.

mod learned;
mod links;

use std::rc::Rc;
use std::sync::Arc;

use brisk_http::message::{RequestParts, Response};
use brisk_http_connection::interim::Interim;
use brisk_transform::body::Body;
use brisk_transform::credentials::Credentials;
use brisk_transform::names::Names;
use http::header::{self, HeaderName};
use http::{HeaderValue, Method, StatusCode};

pub use self::learned::LearnedHints;
#[cfg(any(test, fuzzing))]
pub(crate) use self::links::of as links_of;
pub use self::links::{HintLink, HintLinkError};

/// Maximum length in bytes of the authority and the path of a page whose links are remembered.
const LONGEST: usize = 320;

const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Early hints of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EarlyHintsSettings {
    /// Links for every page of the route.
    pub links: Vec<HintLink>,
    /// Whether hints from the upstream are forwarded.
    pub upstream: bool,
    /// Whether links of responses become hints for the next request of the same path.
    pub learn: bool,
}

impl EarlyHintsSettings {
    /// Forwarded and learned hints: the default of routes with early hints.
    pub fn usual() -> Self {
        Self { links: Vec::new(), upstream: true, learn: true }
    }
}

/// Early hints of a route on one worker.
#[derive(Debug)]
pub(crate) struct EarlyHints {
    settings: Arc<EarlyHintsSettings>,
    fixed: Vec<HeaderValue>,
    /// Learned links by page.
    learned: Arc<LearnedHints>,
}

/// Authority and path of a page whose links are learned. Tenants below one wildcard name learn nothing from each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageKey {
    authority: String,
    path: String,
}

/// Early hints of one request.
#[derive(Debug)]
pub(crate) struct RequestHints {
    hints: Rc<EarlyHints>,
    interim: Interim,
    /// Page whose links are used and learned; `None` if learning is disabled, the authority is not a name of the host, or
    /// both are too long.
    page: Option<PageKey>,
    credentials: Credentials,
}

impl EarlyHints {
    /// Hints of a route, which share `learned` with those of the other workers.
    pub(crate) fn new(settings: &Arc<EarlyHintsSettings>, learned: &Arc<LearnedHints>) -> Rc<Self> {
        let fixed = settings.links.iter().map(HintLink::value).collect();
        Rc::new(Self { settings: Arc::clone(settings), fixed, learned: Arc::clone(learned) })
    }

    /// Prepares the hints for the request for a page, sent with `interim`. `page` is `None` if the authority of the
    /// request is not a name of the host.
    pub(crate) fn prepare(
        self: &Rc<Self>,
        page: Option<PageKey>,
        credentials: Credentials,
        interim: Interim,
    ) -> RequestHints {
        let page = page.filter(|_| self.settings.learn);
        RequestHints { hints: Rc::clone(self), interim, page, credentials }
    }
}

impl PageKey {
    /// The key of a page of the host with these `names`; `None` for another authority, and for long keys.
    pub(crate) fn new(names: &Names, authority: &str, path: &[u8]) -> Option<Self> {
        let is_own = authority.len() + path.len() <= LONGEST && names.include(authority);
        is_own.then(|| Self {
            // Names of hosts have no case, so a page has one key.
            authority: authority.to_ascii_lowercase(),
            path: String::from_utf8_lossy(path).into_owned(),
        })
    }
}

impl RequestHints {
    /// Sends the configured and the learned links.
    pub(crate) fn announce(&self) {
        let fixed = &self.hints.fixed;
        match &self.page {
            Some(page) => {
                self.hints.learned.with(page, |links| self.interim.hint(fixed.iter().chain(links)));
            }
            None => self.interim.hint(fixed),
        }
    }

    /// The channel for the upstream's hints; `None` if they are not forwarded.
    pub(crate) fn interim(&self) -> Option<&Interim> {
        self.hints.settings.upstream.then_some(&self.interim)
    }

    /// Learns the links of an upstream's response.
    pub(crate) fn learn_from(&self, response: &Response<Body>) {
        let Some(page) = &self.page else { return };
        let headers = response.headers();
        let is_page = headers.get(header::CONTENT_TYPE).is_some_and(|kind| {
            kind.as_bytes().get(..9).is_some_and(|start| start.eq_ignore_ascii_case(b"text/html"))
        });
        // Errors have other links than the page, and responses to credentials may have links for one user.
        if response.status() == StatusCode::OK && is_page && self.credentials.permit_retention(headers) {
            self.hints.learned.learn(page, links::of(headers));
        }
    }
}

/// Whether the request is a browser's navigation to a page. Without `Sec-Fetch-Mode`, a request that accepts
/// `text/html`.
pub(crate) fn is_navigation(request: &RequestParts) -> bool {
    let headers = &request.headers;
    request.method == Method::GET
        && match headers.get(SEC_FETCH_MODE) {
            Some(mode) => mode == "navigate",
            None => headers
                .get(header::ACCEPT)
                .is_some_and(|accepted| memchr::memmem::find(accepted.as_bytes(), b"text/html").is_some()),
        }
}

#[cfg(test)]
mod tests {
    use brisk_http::message::Request;

    use super::learned::PAGES;
    use super::*;

    fn answer(headers: &[(&'static str, &'static str)]) -> Response<Body> {
        let mut response = Response::new(Body::Empty);
        for (name, value) in headers {
            response.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        response
    }

    fn request(headers: &[(&'static str, &'static str)]) -> RequestParts {
        let mut request = Request::get("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    fn names() -> Names {
        Names::new(&["*.t.example".to_owned()]).expect("names")
    }

    fn page(path: &str) -> PageKey {
        PageKey::new(&names(), "a.t.example", path.as_bytes()).expect("a page of the host")
    }

    #[test]
    fn pages_are_those_of_one_authority_of_the_host() {
        let of = |authority: &str, path: &str| PageKey::new(&names(), authority, path.as_bytes());
        assert_eq!(of("A.t.example", "/"), of("a.t.example", "/"));
        assert_ne!(of("a.t.example", "/"), of("b.t.example", "/"));
        for other in ["t.example.invented", "", "192.0.2.1"] {
            assert_eq!(of(other, "/"), None, "{other}");
        }
        assert_eq!(of("a.t.example", &"x".repeat(LONGEST)), None);
    }

    fn learned_from(
        asked: &[(&'static str, &'static str)],
        response: &[(&'static str, &'static str)],
    ) -> usize {
        use std::net::SocketAddr;

        use brisk_telemetry::{ConnectionRecord, Timeline};

        let address = SocketAddr::from(([192, 0, 2, 1], 40000));
        let connection = brisk_http_connection::Connection::new(
            ConnectionRecord::new(1, address, address, Timeline::start()),
            true,
        );
        let stream = connection.multiplex().streams.begin(std::time::Instant::now());
        let settings = EarlyHintsSettings { learn: true, ..EarlyHintsSettings::default() };
        let hints = EarlyHints::new(&Arc::new(settings), &Arc::default());
        let credentials = Credentials::of(&request(asked).headers, &connection);
        let page = PageKey::new(&names(), "a.t.example", b"/");
        let page = page.expect("a page of the host");
        let prepared = hints.prepare(Some(page.clone()), credentials, Interim::new(connection, stream));
        prepared.learn_from(&answer(response));
        hints.learned.with(&page, <[_]>::len)
    }

    #[test]
    fn links_are_learned_from_pages_that_are_alike_for_all() {
        const LINK: (&str, &str) = ("link", "</a.css>; rel=preload; as=style");
        const HTML: (&str, &str) = ("content-type", "text/html; charset=utf-8");
        const COOKIE: (&str, &str) = ("cookie", "session=1");
        assert_eq!(learned_from(&[], &[LINK, HTML]), 1);
        assert_eq!(learned_from(&[COOKIE], &[LINK, HTML, ("cache-control", "max-age=5, public")]), 1);
        assert_eq!(learned_from(&[COOKIE], &[LINK, HTML]), 0);
        assert_eq!(learned_from(&[("authorization", "x")], &[LINK, HTML]), 0);
        assert_eq!(learned_from(&[], &[LINK, HTML, ("cache-control", "private")]), 0);
        assert_eq!(learned_from(&[], &[LINK, ("content-type", "application/json")]), 0);
    }

    #[test]
    fn what_is_learned_has_a_bound_and_is_forgotten_with_its_links() {
        let learned = LearnedHints::default();
        let link = || vec![HeaderValue::from_static("</a.css>; rel=preload; as=style")];
        for path in 0..1000 {
            learned.learn(&page(&format!("/{path}")), link());
            // A page that is visited again and again stays.
            learned.learn(&page("/0"), link());
        }
        assert_eq!(learned.known(&page("/0")), (PAGES, true));
        assert_eq!(learned.known(&page("/999")), (PAGES, true));
        assert_eq!(learned.known(&page("/1")), (PAGES, false));
        learned.learn(&page("/999"), Vec::new());
        assert_eq!(learned.known(&page("/999")), (PAGES - 1, false));
    }

    #[test]
    fn navigations_are_known_by_what_browsers_say() {
        assert!(is_navigation(&request(&[("sec-fetch-mode", "navigate")])));
        assert!(is_navigation(&request(&[("accept", "text/html,application/xhtml+xml")])));
        assert!(!is_navigation(&request(&[("sec-fetch-mode", "cors"), ("accept", "text/html")])));
        assert!(!is_navigation(&request(&[("accept", "*/*")])));
        let mut post = request(&[("sec-fetch-mode", "navigate")]);
        post.method = Method::POST;
        assert!(!is_navigation(&post));
    }
}
