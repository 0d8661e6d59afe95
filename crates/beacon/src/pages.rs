//! Page views that got an id and whose beacon has not come: a table of fixed size, shared by all workers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use brisk_telemetry::RequestId;
use brisk_visits::{Metric, Visit};

use crate::Refusal;
use crate::page::Page;
use crate::token::Token;

/// Places of a set; an id has one set.
const WAYS: usize = 8;
/// Page views that are remembered: each takes some 400 bytes, and room is taken as they come.
const PLACES: usize = 1 << 16;
/// How long a page may be looked at before its beacon comes.
const LIFETIME: Duration = Duration::from_hours(1);

/// Browsers round their clocks, to 1 ms or less unless they hide more.
const ROUNDING: f64 = 2.0;
/// What is measured after the answer takes no longer than the page was there, and the beacon's way here.
const LATER: f64 = 2_000.0;

/// What the gateway noted of a page view when it was answered.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The request for the page.
    pub request: RequestId,
    /// All that is known of its visit, before the page has measured anything.
    pub visit: Visit,
    /// From the head of the request to that of its answer, as the gateway measured it; `None` where the browser may take
    /// something earlier for the answer, as hints (103).
    pub answered_in: Option<Duration>,
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

    /// Takes a page view of `host`, once, and how long ago it was answered.
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
    /// The visit, if what the page measured can be true. The answer was sent `ago`.
    pub(crate) fn joined(self, page: &Page, ago: Duration) -> Result<Visit, Refusal> {
        let Self { mut visit, answered_in, .. } = self;
        let of_page = |metric| page.measures.get(metric);
        if let (Some(wait), Some(own)) = (of_page(Metric::Wait), answered_in.map(milliseconds)) {
            require(wait * 1.001 + ROUNDING >= own)?;
        }
        if let (Some(first), Some(own)) = (of_page(Metric::FirstByte), answered_in.map(milliseconds)) {
            // A page that was prerendered counts from when it was shown.
            let counts_from_start = page.navigation != Some(brisk_visits::Navigation::Prerender);
            require(!counts_from_start || first * 1.001 + ROUNDING >= own)?;
        }
        let latest = of_page(Metric::FirstByte).unwrap_or(0.0) + milliseconds(ago) + LATER;
        for metric in [Metric::Load, Metric::FirstPaint, Metric::LargestPaint, Metric::Interaction] {
            require(of_page(metric).is_none_or(|value| value <= latest))?;
        }
        visit.at = SystemTime::now();
        if let Some(navigation) = page.navigation {
            visit.navigation = navigation;
        }
        for metric in Metric::ALL {
            if let Some(value) = of_page(*metric) {
                visit.measures.set(*metric, value);
            }
        }
        Ok(visit)
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
        Issued { request: RequestId(1), visit, answered_in: Some(Duration::from_millis(answered_in)) }
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
        for wrong in ["wait=20&ttfb=250", "wait=150&ttfb=20", "wait=150&ttfb=250&lcp=60000", "inp=500000"] {
            assert_eq!(joined(wrong), Err(Refusal::Implausible), "{wrong}");
        }
    }
}
