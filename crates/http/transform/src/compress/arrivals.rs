//! Pages for visitors who arrive from another site, with their credentials.
//!
//! BREACH needs the lengths of many responses that contain the same secret. A browser reports in `Sec-Fetch-Dest` whether a
//! response becomes the document of a tab: such requests are slow and visible, unlike those of a script. Their pages are
//! compressed with padding of random length ([`brisk_coding::padding_length`]), but only a few in an hour for one session
//! and for one address. All other requests of other sites get uncompressed responses.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use brisk_coding::{AcceptedCodings, Coding};
use brisk_http::message::{HeaderList, RequestParts, Response};
use brisk_http_connection::Connection;
use brisk_net::limits::client_of;
use http::{HeaderName, HeaderValue, Method, header};

use super::encoders::Lease;
use super::padded::PaddedBody;
use super::{BreachGuard, Compression, ResponseCompression, SEC_FETCH_SITE, is_live, mark, metrics};
use crate::body::Body;
use crate::credentials::Credentials;

const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Time after which the counters of [`PageCounts`] begin from 0.
const WINDOW: Duration = Duration::from_hours(1);

/// Number of counters. Sessions with the same counter share their limit, so that collisions permit less, never more.
const COUNTERS: usize = 1 << 16;

/// Number of sessions whose pages the limit of an address permits: people behind one address, and cookies that change with
/// every response.
const SESSIONS_PER_ADDRESS: u32 = 8;

/// Exposure of a response to measurements of its length by another site (BREACH).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exposure {
    /// The request has no credentials that browsers add by themselves, or comes from a trusted site.
    None,
    /// Another site may have caused the request. Its response becomes the document of a tab.
    Arrival {
        /// Hash of the credentials.
        session: u64,
    },
    /// Another site may have caused the request, and measure many responses.
    Measurable,
}

/// Pages of this hour, by session and address.
struct PageCounts {
    hasher: RandomState,
    start: Instant,
    /// The window in the upper half, its number of pages in the lower half.
    counters: Box<[AtomicU64]>,
}

static PAGES: LazyLock<PageCounts> = LazyLock::new(|| PageCounts {
    hasher: RandomState::new(),
    start: Instant::now(),
    counters: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect(),
});

impl Compression {
    /// The exposure of the response to `request`, decided by [`BreachGuard`] and the `Sec-Fetch-*` headers.
    pub(super) fn exposure(
        &self,
        request: &RequestParts,
        credentials: Credentials,
        accepted: &AcceptedCodings,
    ) -> Exposure {
        let headers = &request.headers;
        if !self.may_leak || !is_exposed(self.settings.guard, headers, credentials) {
            return Exposure::None;
        }
        let is = |name: &HeaderName, expected: &str| headers.get(name).is_some_and(|value| value == expected);
        let is_arrival = self.settings.arrivals > 0
            && matches!(request.method, Method::GET | Method::HEAD)
            && is(&SEC_FETCH_MODE, "navigate")
            && is(&SEC_FETCH_DEST, "document");
        // Only gzip has padding that all browsers skip.
        let takes_gzip = self.settings.codings.contains(&Coding::Gzip) && accepted.weight(Coding::Gzip) > 0;
        if is_arrival && takes_gzip {
            return Exposure::Arrival { session: session(headers) };
        }
        Exposure::Measurable
    }
}

impl ResponseCompression {
    /// Compresses the page of an [`Exposure::Arrival`] with padding, if its session and address have had fewer than
    /// [`CompressionSettings::arrivals`](super::CompressionSettings::arrivals) permits. Otherwise the page stays uncompressed.
    pub(super) fn apply_padding(&self, connection: &Rc<Connection>, response: &mut Response<Body>) {
        let (Exposure::Arrival { session }, Some(_)) = (self.exposure, self.coding) else { return };
        // A head needs no padding: `mark` removes its length.
        if self.is_head {
            return mark(response.headers_mut(), Coding::Gzip.name());
        }
        // The parts of a live response would each reveal their length.
        if is_live(response.headers()) {
            return;
        }
        let client = connection.client.address();
        if !PAGES.permit(session, client, self.compression.settings.arrivals, PAGES.start.elapsed()) {
            return metrics::arrival_over_limit();
        }
        let level = self.compression.level(Coding::Gzip, connection);
        let Some(lease) = Lease::take(Coding::Gzip, level, connection) else { return metrics::refused() };
        let source = std::mem::take(response.body_mut());
        *response.body_mut() =
            Body::boxed(PaddedBody::new(source, lease, PAGES.random(), Rc::clone(connection)));
        mark(response.headers_mut(), Coding::Gzip.name());
    }
}

impl PageCounts {
    /// Counts a page for `session` and for `client`; `false` if one of them has had as many as it may, or if `client` is
    /// `None`, an address of many clients.
    fn permit(&self, session: u64, client: Option<IpAddr>, limit: u32, now: Duration) -> bool {
        let Some(client) = client else { return false };
        let window = now.as_secs() / WINDOW.as_secs();
        let client = self.hasher.hash_one(client_of(client));
        // The session first: a session above its limit must not use up the limit of its address.
        self.count(self.hasher.hash_one(session), window, limit)
            && self.count(client, window, limit.saturating_mul(SESSIONS_PER_ADDRESS))
    }

    fn count(&self, hash: u64, window: u64, limit: u32) -> bool {
        let counter = &self.counters[hash as usize % COUNTERS];
        let counted = |value: u64| {
            let pages = if value >> 32 == window { value & u64::from(u32::MAX) } else { 0 };
            (pages < u64::from(limit)).then_some((window << 32) | (pages + 1))
        };
        // `Relaxed`: a counter is independent of all other data.
        counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted).is_ok()
    }

    /// A random number that clients cannot predict: `SipHash` with a secret key, of a number that is used once.
    fn random(&self) -> u32 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        self.hasher.hash_one(("padding", NEXT.fetch_add(1, Ordering::Relaxed))) as u32
    }
}

/// Hash of the credentials in `Cookie` and `Authorization`.
fn session(headers: &HeaderList) -> u64 {
    let values = headers.get_all(header::COOKIE).chain(headers.get(header::AUTHORIZATION));
    PAGES.hasher.hash_one(values.map(HeaderValue::as_bytes).collect::<Vec<_>>())
}

/// Whether a page of another site may have made this request with [`Credentials::Ambient`].
fn is_exposed(guard: BreachGuard, headers: &HeaderList, credentials: Credentials) -> bool {
    let trusts_sites_alike = match guard {
        BreachGuard::Off => return false,
        BreachGuard::CrossSite => true,
        BreachGuard::SameSite => false,
    };
    credentials == Credentials::Ambient
        && match headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes) {
            Some(b"same-origin" | b"none") => false,
            Some(b"same-site") => !trusts_sites_alike,
            // A browser from before 2023, which does not send `Sec-Fetch-Site`.
            _ => true,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages() -> PageCounts {
        let counters = (0..COUNTERS).map(|_| AtomicU64::new(0)).collect();
        PageCounts { hasher: RandomState::new(), start: Instant::now(), counters }
    }

    /// Number of permitted pages among `attempts`.
    fn permitted(attempts: u64, mut permit: impl FnMut(u64) -> bool) -> usize {
        (0..attempts).filter(|attempt| permit(*attempt)).count()
    }

    #[test]
    fn a_session_has_its_pages_in_an_hour_from_all_addresses() {
        let pages = pages();
        let at = |attempt: u64, minute: u64| {
            let client = IpAddr::from([192, 0, 2, attempt as u8]);
            pages.permit(7, Some(client), 5, Duration::from_secs(60 * minute))
        };
        assert_eq!(permitted(50, |attempt| at(attempt, 59)), 5);
        assert_eq!(permitted(50, |attempt| at(attempt, 60)), 5, "the next hour");
    }

    #[test]
    fn an_address_has_pages_for_eight_sessions() {
        let pages = pages();
        let from =
            |client: IpAddr| permitted(500, |session| pages.permit(session, Some(client), 5, Duration::ZERO));
        let first = from("2001:db8::1".parse().expect("an address"));
        // Counters that sessions share permit fewer pages, but not many fewer.
        assert!((30..=40).contains(&first), "{first}");
        assert_eq!(from("2001:db8::2".parse().expect("an address")), 0, "the same /64");
        assert!(!pages.permit(501, None, 5, Duration::ZERO), "an address of many clients");
    }

    #[test]
    fn random_numbers_differ() {
        let pages = pages();
        let numbers: std::collections::HashSet<_> = (0..100).map(|_| pages.random()).collect();
        assert!(numbers.len() > 98, "{}", numbers.len());
    }
}
