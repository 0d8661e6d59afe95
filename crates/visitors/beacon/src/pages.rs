//! Pages with an id that await their beacons: a table of fixed size, shared by all workers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use brisk_telemetry::RequestId;
use brisk_visits::{Connection, Metric, Navigation, Visit};

use crate::Refusal;
use crate::page::{Page, View};
use crate::token::Token;

/// Places of a set; a [`Token`] has one set.
const WAYS: usize = 8;
/// Page views that [`Pages`] remembers: each takes some 400 bytes, and room is taken as they arrive.
const PLACES: usize = 1 << 16;
/// Further views that one id may have.
const MOST_VIEWS: usize = 250;
/// Maximum time between a page view and its beacon, and between two beacons of a page.
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
    /// The path of the page, at most some hundred bytes, reduced to a pattern when the beacon arrives.
    pub path: Box<str>,
    /// Time from the head of the request to the head of the response, measured by the gateway.
    pub answered_in: Duration,
    /// Time from the `ClientHello` to the head of the request, if this is the first request and arrived as soon as
    /// the connection was open: the browser may have delayed it until then.
    pub held_since_hello: Option<Duration>,
    /// Whether the browser may take something earlier for the response, such as `103` (Early Hints).
    pub may_be_hinted: bool,
}

#[derive(Debug)]
struct Pending {
    token: Token,
    at: Instant,
    /// Time of the last beacon, or of the response.
    used: Instant,
    /// Whether the measurements of the load are still awaited.
    awaits_load: bool,
    /// Number of further views that may arrive, at first [`MOST_VIEWS`].
    views: usize,
    /// Shared, so that a place is small and a beacon copies nothing.
    issued: Arc<Issued>,
}

/// The views of a beacon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) is_load: bool,
    pub(crate) is_last: bool,
    pub(crate) views: usize,
}

impl From<&Page> for Claim {
    fn from(page: &Page) -> Self {
        Self { is_load: page.is_load, is_last: page.is_last, views: page.views.len() }
    }
}

/// A page whose beacon [`Pages::claim`] accepted.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) issued: Arc<Issued>,
    /// Time since the response.
    pub(crate) ago: Duration,
    /// Number of further views that count, of those in the [`Claim`].
    pub(crate) views: usize,
}

/// The table of page views, shared by all workers.
#[derive(Debug)]
pub(crate) struct Pages {
    sets: Box<[Mutex<Vec<Pending>>]>,
}

impl Pages {
    pub(crate) fn new() -> Self {
        Self { sets: (0..PLACES / WAYS).map(|_| Mutex::default()).collect() }
    }

    /// Remembers a page. Returns whether another one that awaited its first beacon had to be forgotten for this page. Pages
    /// whose load is known are forgotten first.
    pub(crate) fn put(&self, token: Token, issued: Issued, now: Instant) -> bool {
        let new = Pending {
            token,
            at: now,
            used: now,
            awaits_load: true,
            views: MOST_VIEWS,
            issued: Arc::new(issued),
        };
        let mut set = self.set(token);
        // A later page of the set removes expired ones, so that no timer has to search the table.
        set.retain(|pending| !is_over(pending, now));
        if set.len() >= WAYS {
            let least = |place: &usize| (set[*place].awaits_load, set[*place].used);
            let oldest = (0..set.len()).min_by_key(least).unwrap_or(0);
            // The set bounds the work and the memory: a flood of page views displaces older ones and takes
            // no more room.
            return std::mem::replace(&mut set[oldest], new).awaits_load;
        }
        set.push(new);
        false
    }

    /// Claims the load of a page of `host`, which is possible once, and further views, of which [`MOST_VIEWS`] count for
    /// each page. The last claim forgets the page. Otherwise [`Refusal::UnknownId`] or [`Refusal::OtherHost`].
    pub(crate) fn claim(
        &self,
        token: Token,
        host: &Arc<str>,
        claim: Claim,
        now: Instant,
    ) -> Result<Claimed, Refusal> {
        let mut set = self.set(token);
        let place = set.iter().position(|pending| pending.token == token).ok_or(Refusal::UnknownId)?;
        if is_over(&set[place], now) {
            set.swap_remove(place);
            return Err(Refusal::UnknownId);
        }
        // Compared before the entry changes: a post to another host must not use up the id.
        if set[place].issued.visit.host != *host {
            return Err(Refusal::OtherHost);
        }
        let pending = &mut set[place];
        let views = claim.views.min(pending.views);
        if claim.is_load && !pending.awaits_load || !claim.is_load && views == 0 {
            return Err(Refusal::UnknownId);
        }
        pending.awaits_load &= !claim.is_load;
        pending.views -= views;
        pending.used = now;
        let ago = now.saturating_duration_since(pending.at);
        let issued = if claim.is_last { set.swap_remove(place).issued } else { Arc::clone(&pending.issued) };
        Ok(Claimed { issued, ago, views })
    }

    fn set(&self, token: Token) -> std::sync::MutexGuard<'_, Vec<Pending>> {
        self.sets[token.place(self.sets.len())].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_over(pending: &Pending, now: Instant) -> bool {
    now.saturating_duration_since(pending.used) > LIFETIME
}

impl Issued {
    /// Earliest time at which the browser can have received a byte of the response, if the gateway knows it.
    pub(crate) fn first_byte_in(&self) -> Option<Duration> {
        (!self.may_be_hinted).then_some(self.answered_in)
    }

    /// The [`Visit`], if the measurements of the page are plausible, otherwise [`Refusal::Implausible`]. The response was
    /// sent `ago`.
    pub(crate) fn joined(&self, page: &Page, ago: Duration) -> Result<Visit, Refusal> {
        self.check(page, ago)?;
        let waited = self.waited_for_connection(page);
        let mut visit = self.visit.clone();
        visit.at = SystemTime::now();
        if let Some(navigation) = page.navigation {
            visit.navigation = navigation;
        }
        note_connection(&mut visit, waited);
        visit.measures.extend(&page.measures);
        Ok(visit)
    }

    /// A further view of the page as a visit, if its measurements are plausible. It waited for no response, so that
    /// only the round-trip time remains of the gateway's measurements.
    pub(crate) fn viewed(&self, view: &View, ago: Duration) -> Result<Visit, Refusal> {
        let latest = milliseconds(ago) + LATER;
        for metric in [Metric::FirstByte, Metric::FirstPaint, Metric::LargestPaint, Metric::Interaction] {
            require(view.measures.get(metric).is_none_or(|value| value <= latest))?;
        }
        let mut visit = self.visit.clone();
        visit.at = SystemTime::now();
        visit.navigation = view.kind;
        note_connection(&mut visit, false);
        visit.measures.remove(Metric::Upstream);
        visit.measures.extend(&view.measures);
        Ok(visit)
    }

    /// Checks the measurements of the page against the gateway's clock; [`Refusal::Implausible`] if they cannot be true.
    fn check(&self, page: &Page, ago: Duration) -> Result<(), Refusal> {
        let of_page = |metric| page.measures.get(metric);
        let (wait, first) = (of_page(Metric::Wait), of_page(Metric::FirstByte));
        if let Some(own) = self.first_byte_in().map(milliseconds) {
            require(wait.is_none_or(|wait| wait * 1.001 + ROUNDING >= own))?;
            // A page that was prerendered counts from when it was shown.
            let counts_from_start = page.navigation != Some(Navigation::Prerender);
            require(!counts_from_start || first.is_none_or(|first| first * 1.001 + ROUNDING >= own))?;
        }
        // The beacon followed the response, and the response the request.
        let rtt = self.visit.measures.get(Metric::RoundTrip).unwrap_or(0.0);
        let longest = milliseconds(self.answered_in) + milliseconds(ago) + rtt + DELIVERY;
        // Without upper bounds, a client could report any wait, and one beacon would move a mean.
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

    const LOAD: Claim = Claim { is_load: true, is_last: false, views: 0 };
    const VIEW: Claim = Claim { is_load: false, is_last: false, views: 1 };

    fn issued(host: &str, answered_in: u64) -> Issued {
        let visit = Visit::new(host.into(), "/".into());
        Issued {
            request: RequestId(1),
            visit,
            path: "/".into(),
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
        let taken = |token, host: &str| {
            pages.claim(token, &host.into(), LOAD, now).map(|page| Arc::clone(&page.issued.visit.host))
        };
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
        assert_eq!(pages.claim(token, &host, LOAD, later).map(|_| ()), Err(Refusal::UnknownId));
        let forgotten = (0..2 * PLACES).filter(|_| pages.put(Token::random(), issued("a", 1), now)).count();
        let kept: usize = pages.sets.iter().map(|set| set.lock().unwrap().len()).sum();
        assert!(kept <= PLACES && kept > PLACES / 2 && forgotten == 2 * PLACES - kept, "{kept}");
    }

    #[test]
    fn an_id_has_one_load_and_a_limited_number_of_further_views() {
        let (pages, now) = (Pages::new(), Instant::now());
        let (host, token) = (Arc::from("a"), Token::random());
        pages.put(token, issued("a", 1), now);
        let claim = |is_load, views, now| {
            let claim = Claim { is_load, views, is_last: false };
            pages.claim(token, &host, claim, now).map(|page| page.views)
        };
        assert_eq!(claim(false, 10, now), Ok(10), "the load may come later");
        assert_eq!(claim(true, 1, now), Ok(1));
        assert_eq!(claim(true, 1, now), Err(Refusal::UnknownId));
        // An hour after the last beacon, not after the response.
        let later = now + LIFETIME;
        assert_eq!(claim(false, MOST_VIEWS, later), Ok(MOST_VIEWS - 11));
        assert_eq!(claim(false, 1, later + LIFETIME), Err(Refusal::UnknownId));
        // The last beacon forgets the page.
        let token = Token::random();
        pages.put(token, issued("a", 1), now);
        let last = Claim { is_last: true, ..LOAD };
        assert!(pages.claim(token, &host, last, now).is_ok());
        assert!(pages.set(token).iter().all(|pending| pending.token != token));
    }

    #[test]
    fn pages_whose_load_is_known_are_forgotten_first() {
        let (pages, now) = (Pages::new(), Instant::now());
        let host: Arc<str> = "a".into();
        let known: Vec<_> = (0..PLACES)
            .map(|_| {
                let token = Token::random();
                pages.put(token, issued("a", 1), now);
                pages.claim(token, &host, LOAD, now).map(|_| token)
            })
            .collect();
        let forgotten = (0..PLACES / 64).filter(|_| pages.put(Token::random(), issued("a", 1), now)).count();
        assert_eq!(forgotten, 0);
        let remain = known.iter().flatten().filter(|token| pages.claim(**token, &host, VIEW, now).is_ok());
        assert!((1..PLACES).contains(&remain.count()));
    }

    #[test]
    fn a_further_view_has_nothing_of_the_load() {
        let mut page = issued("a", 100);
        page.visit.connection = Connection::New;
        for metric in [Metric::Handshake, Metric::Queue, Metric::RoundTrip, Metric::Upstream] {
            assert!(page.visit.measures.set(metric, 20.0));
        }
        let viewed = |form: &str| {
            let beacon = Page::read(form.as_bytes()).expect("a page");
            page.viewed(&beacon.views[0], Duration::from_secs(1))
        };
        let visit = viewed("view=soft&inp=40&cls=0.1").expect("a visit");
        let measured: Vec<_> =
            Metric::ALL.iter().filter(|metric| visit.measures.get(**metric).is_some()).collect();
        assert_eq!(measured, [&Metric::Interaction, &Metric::Shift, &Metric::RoundTrip]);
        assert_eq!((visit.navigation, visit.connection), (Navigation::Soft, Connection::Reused));
        assert!(viewed("view=back_forward_cache&lcp=30&fcp=30&ttfb=0").is_ok());
        for wrong in ["view=back_forward_cache&lcp=3500", "view=soft&inp=3500"] {
            assert_eq!(viewed(wrong), Err(Refusal::Implausible), "{wrong}");
        }
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
