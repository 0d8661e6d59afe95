//! Page views with an id that await their beacon: a table of fixed size, shared by all workers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use brisk_telemetry::RequestId;
use brisk_visits::{Connection, Metric, Navigation, Visit};

use crate::Refusal;
use crate::page::Page;
use crate::token::Token;

/// Places of a set; an id has one set.
const WAYS: usize = 8;
/// Page views that are remembered: each takes some 400 bytes, and room is taken as they come.
const PLACES: usize = 1 << 16;
/// Maximum time between a page view and its beacon.
const LIFETIME: Duration = Duration::from_hours(1);

/// Browsers round their clocks, to 1 ms or less unless they hide more.
const ROUNDING: f64 = 2.0;
/// Tolerance in milliseconds for measurements after the response: they must not exceed the time since the response
/// plus this transit time of the beacon.
const LATER: f64 = 2_000.0;
/// Maximum time in milliseconds until the gateway has received the request's head, with retransmissions of lost
/// packets.
const DELIVERY: f64 = 10_000.0;
/// The longest that a navigation takes before its request: redirects, names, connections.
const BEFORE: f64 = 60_000.0;

/// Facts of a page view that the gateway records with the response.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The request for the page.
    pub request: RequestId,
    /// The visit without measurements of the page.
    pub visit: Visit,
    /// Time from the head of the request to the head of the response, measured by the gateway.
    pub answered_in: Duration,
    /// Time from the `ClientHello` to the head of the request, if this is the first request and arrived as soon as
    /// the connection was open: the browser may have delayed it until then.
    pub held_since_hello: Option<Duration>,
    /// The browser may take something earlier for the answer, as hints (103).
    pub may_be_hinted: bool,
}

#[derive(Debug)]
struct Pending {
    token: Token,
    at: Instant,
    issued: Issued,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Pages {
    sets: Box<[Mutex<Vec<Pending>>]>,
}

impl Pages {
    pub(crate) fn new() -> Self {
        Self { sets: (0..PLACES / WAYS).map(|_| Mutex::default()).collect() }
    }

    /// Remembers a page view. Whether another one, whose time was not over, had to be forgotten for it.
    pub(crate) fn put(&self, token: Token, issued: Issued, now: Instant) -> bool {
        let mut set = self.set(token);
        set.retain(|pending| !is_over(pending, now));
        let is_full = set.len() >= WAYS;
        if is_full {
            let oldest = (0..set.len()).min_by_key(|place| set[*place].at).unwrap_or(0);
            set.swap_remove(oldest);
        }
        set.push(Pending { token, at: now, issued });
        is_full
    }

    /// Removes and returns a page view of `host`, with the time since its response.
    pub(crate) fn take(
        &self,
        token: Token,
        host: &Arc<str>,
        now: Instant,
    ) -> Result<(Issued, Duration), Refusal> {
        let mut set = self.set(token);
        let place = set.iter().position(|pending| pending.token == token).ok_or(Refusal::UnknownId)?;
        if is_over(&set[place], now) {
            set.swap_remove(place);
            return Err(Refusal::UnknownId);
        }
        if set[place].issued.visit.host != *host {
            return Err(Refusal::OtherHost);
        }
        let pending = set.swap_remove(place);
        Ok((pending.issued, now.saturating_duration_since(pending.at)))
    }

    fn set(&self, token: Token) -> std::sync::MutexGuard<'_, Vec<Pending>> {
        self.sets[token.place(self.sets.len())].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_over(pending: &Pending, now: Instant) -> bool {
    now.saturating_duration_since(pending.at) > LIFETIME
}

impl Issued {
    /// Earliest time at which the browser can have received a byte of the response, if the gateway knows it.
    pub(crate) fn first_byte_in(&self) -> Option<Duration> {
        (!self.may_be_hinted).then_some(self.answered_in)
    }

    /// The visit, if the measurements of the page are plausible. The response was sent `ago`.
    pub(crate) fn joined(self, page: &Page, ago: Duration) -> Result<Visit, Refusal> {
        self.check(page, ago)?;
        let waited = self.waited_for_connection(page);
        let mut visit = self.visit;
        visit.at = SystemTime::now();
        if let Some(navigation) = page.navigation {
            visit.navigation = navigation;
        }
        note_connection(&mut visit, waited);
        visit.measures.extend(&page.measures);
        Ok(visit)
    }

    /// Checks the measurements of the page against the gateway's clock.
    fn check(&self, page: &Page, ago: Duration) -> Result<(), Refusal> {
        let of_page = |metric| page.measures.get(metric);
        let (wait, first) = (of_page(Metric::Wait), of_page(Metric::FirstByte));
        if let Some(own) = self.first_byte_in().map(milliseconds) {
            require(wait.is_none_or(|wait| wait * 1.001 + ROUNDING >= own))?;
            // A page that was prerendered counts from when it was shown.
            let counts_from_start = page.navigation != Some(Navigation::Prerender);
            require(!counts_from_start || first.is_none_or(|first| first * 1.001 + ROUNDING >= own))?;
        }
        // The beacon came after the answer, and the answer after the request.
        let rtt = self.visit.measures.get(Metric::RoundTrip).unwrap_or(0.0);
        let longest = milliseconds(self.answered_in) + milliseconds(ago) + rtt + DELIVERY;
        require(wait.is_none_or(|wait| wait <= longest))?;
        require(first.is_none_or(|first| first - wait.unwrap_or(longest) <= BEFORE))?;
        let opening = [Metric::Dns, Metric::Connect, Metric::Tls];
        require(opening.into_iter().filter_map(of_page).sum::<f64>() <= BEFORE)?;
        require(page.held.is_none_or(|held| (0.0..=BEFORE).contains(&held)))?;
        let latest = first.unwrap_or(0.0) + milliseconds(ago) + LATER;
        for metric in [Metric::Load, Metric::FirstPaint, Metric::LargestPaint, Metric::Interaction] {
            require(of_page(metric).is_none_or(|value| value <= latest))?;
        }
        Ok(())
    }

    /// Whether the navigation waited for its connection, of a request that is the first of one. Browsers open connections ahead,
    /// so that the page may find one ready; then it has no times of it. It has none either where the browser opened the
    /// connection at the start of the navigation and held the request until it was there: this began before the `ClientHello`.
    fn waited_for_connection(&self, page: &Page) -> bool {
        let has = |metric| page.measures.get(metric).is_some();
        let held = page.held.zip(self.held_since_hello);
        let was_held =
            held.is_some_and(|(held, held_since_hello)| held + ROUNDING >= milliseconds(held_since_hello));
        !page.is_own || has(Metric::Connect) || has(Metric::Tls) || was_held
    }
}

/// Corrects the connection of a visit: only the first request can have opened it, so the report of the page is not
/// trusted. If the visitor did not wait for the handshake, its times are removed.
fn note_connection(visit: &mut Visit, waited_for_it: bool) {
    if !waited_for_it {
        visit.connection = Connection::Reused;
    }
    if visit.connection != Connection::New {
        visit.measures.remove(Metric::Handshake);
        visit.measures.remove(Metric::Queue);
    }
}

fn require(is_true: bool) -> Result<(), Refusal> {
    if is_true { Ok(()) } else { Err(Refusal::Implausible) }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issued(host: &str, answered_in: u64) -> Issued {
        let visit = Visit::new(host.into(), "/".into());
        Issued {
            request: RequestId(1),
            visit,
            answered_in: Duration::from_millis(answered_in),
            held_since_hello: Some(Duration::from_millis(60)),
            may_be_hinted: false,
        }
    }

    #[test]
    fn an_id_joins_once_and_for_its_own_host() {
        let (pages, now) = (Pages::new(), Instant::now());
        let (host, token) = (Arc::from("a.example"), Token::random());
        assert!(!pages.put(token, issued("a.example", 1), now));
        let taken =
            |token, host: &str| pages.take(token, &host.into(), now).map(|(issued, _)| issued.visit.host);
        assert_eq!(taken(Token::random(), "a.example"), Err(Refusal::UnknownId));
        assert_eq!(taken(token, "b.example"), Err(Refusal::OtherHost));
        assert_eq!(taken(token, "a.example"), Ok(host));
        assert_eq!(taken(token, "a.example"), Err(Refusal::UnknownId));
    }

    #[test]
    fn page_views_are_forgotten_after_an_hour_and_when_others_need_their_place() {
        let (pages, now) = (Pages::new(), Instant::now());
        let host: Arc<str> = "a".into();
        let token = Token::random();
        pages.put(token, issued("a", 1), now);
        let later = now + LIFETIME + Duration::from_secs(1);
        assert_eq!(pages.take(token, &host, later).map(|_| ()), Err(Refusal::UnknownId));
        let forgotten = (0..2 * PLACES).filter(|_| pages.put(Token::random(), issued("a", 1), now)).count();
        let kept: usize = pages.sets.iter().map(|set| set.lock().unwrap().len()).sum();
        assert!(kept <= PLACES && kept > PLACES / 2 && forgotten == 2 * PLACES - kept, "{kept}");
    }

    #[test]
    fn what_a_page_cannot_have_measured_is_refused() {
        let joined = |form: &str| {
            let page = Page::read(form.as_bytes()).expect("a page");
            issued("a", 100)
                .joined(&page, Duration::from_secs(1))
                .map(|visit| visit.measures.get(Metric::Wait).is_some())
        };
        assert_eq!(joined("wait=150&ttfb=250&lcp=900"), Ok(true));
        assert_eq!(joined("wait=99&ttfb=100"), Ok(true), "clocks are rounded");
        assert_eq!(joined("ttfb=0&nav=prerender"), Ok(false));
        assert_eq!(joined("wait=150&ttfb=60100"), Ok(true), "redirects take their time");
        for wrong in [
            "wait=20&ttfb=250",
            "wait=150&ttfb=20",
            "wait=150&ttfb=250&lcp=60000",
            "inp=500000",
            "wait=11200&ttfb=11200",
            "ttfb=71200",
            "wait=150&ttfb=60200",
            "dns=20000&connect=20000&tls=20100",
            "held=-1",
            "held=60100",
            "ttfb=600000&load=600000",
        ] {
            assert_eq!(joined(wrong), Err(Refusal::Implausible), "{wrong}");
        }
    }

    #[test]
    fn a_connection_is_new_if_the_page_waited_for_it() {
        let joined_as = |connection, form: &str| {
            let mut issued = issued("a", 100);
            issued.visit.connection = connection;
            for metric in [Metric::Handshake, Metric::Queue, Metric::RoundTrip] {
                assert!(issued.visit.measures.set(metric, 20.0));
            }
            let page = Page::read(form.as_bytes()).expect("a page");
            let visit = issued.joined(&page, Duration::from_secs(1)).expect("a visit");
            let has = |metric| visit.measures.get(metric).is_some();
            assert!(has(Metric::RoundTrip) && has(Metric::Handshake) == has(Metric::Queue));
            (visit.connection, has(Metric::Handshake))
        };
        let id = "0123456789abcdef0011223344556677";
        let joined = |form: &str| joined_as(Connection::New, form);
        let own = format!("id={id}&wait=150&ttfb=250");
        let held = format!("{own}&held=110");
        for later in [format!("{own}&connect=20&tls=20"), held.clone(), format!("brisk={id}&t_resp=250")] {
            assert_eq!(joined_as(Connection::Reused, &later), (Connection::Reused, false), "a later request");
        }
        assert_eq!(joined(&own), (Connection::Reused, false), "it was open already");
        assert_eq!(joined(&held), (Connection::New, true), "it was opened while the request was held");
        let soon = format!("{own}&held=12");
        assert_eq!(joined(&soon), (Connection::Reused, false), "its handshake began before the navigation");
        assert_eq!(joined(&format!("{own}&connect=20")), (Connection::New, true));
        assert_eq!(joined(&format!("{own}&tls=20")), (Connection::New, true));
        assert_eq!(
            joined(&format!("brisk={id}&t_resp=250")),
            (Connection::New, true),
            "Boomerang says nothing"
        );
    }
}
