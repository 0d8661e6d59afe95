//! Lists with possibly thousands of entries, searched and paginated here instead of in the browser.

use std::time::SystemTime;

use brisk_certs::maintenance::Report;
use brisk_telemetry::Problem;
use brisk_upstream_group::metrics::UpstreamReading;
use serde_json::{Value, json};

use super::unix_millis;

/// Entries per page.
const ON_PAGE: usize = 20;

/// Maximum number of listed names per certificate; further names are counted.
const NAMES: usize = 4;

/// A requested part of a list.
pub(super) struct Page<'a> {
    pub(super) text: &'a str,
    pub(super) page: usize,
}

impl Page<'_> {
    /// The page of the filtered entries `all`.
    fn of<T>(&self, all: &[T], entry: impl Fn(&T) -> Value) -> Value {
        let pages = all.len().div_ceil(ON_PAGE).max(1);
        // The list may be shorter than at the last request. A page behind its end is the last one.
        let page = self.page.min(pages - 1);
        let rows: Vec<_> = all.iter().skip(page * ON_PAGE).take(ON_PAGE).map(entry).collect();
        json!({ "found": all.len(), "page": page, "pages": pages, "rows": rows })
    }

    fn fits(&self, name: &str) -> bool {
        self.text.is_empty() || name.to_lowercase().contains(self.text)
    }
}

/// Upstream servers, the unhealthy first.
pub(super) fn upstreams(mut all: Vec<UpstreamReading>, page: &Page<'_>) -> Value {
    all.retain(|one| page.fits(&one.group) || page.fits(&one.server));
    all.sort_by(|a, b| (a.healthy, &a.group, &a.server).cmp(&(b.healthy, &b.group, &b.server)));
    page.of(&all, |one| {
        json!({
            "group": one.group,
            "server": one.server,
            "healthy": one.healthy,
            "open": one.open,
            "connections": one.connections,
            "requests": one.requests,
            "failures": one.failures,
            "limit": one.limit,
        })
    })
}

/// Sorts certificates: those with a [`Problem`] first, then by end of validity.
pub(super) fn in_order(mut all: Vec<Report>) -> Vec<Report> {
    // `all` is already sorted by end of validity, and the sort is stable.
    all.sort_by_key(|one| one.revoked.is_none() && one.trouble.is_none());
    all
}

/// One [`Page`] of certificates sorted by [`in_order`].
pub(super) fn certificates(all: &[Report], now: SystemTime, page: &Page<'_>) -> Value {
    let found: Vec<_> = all
        .iter()
        .filter(|one| page.fits(&one.title) || one.names.iter().any(|name| page.fits(name)))
        .collect();
    page.of(&found, |one| {
        json!({
            "names": one.names.iter().take(NAMES).collect::<Vec<_>>(),
            "more": one.names.len().saturating_sub(NAMES),
            "title": one.title,
            "key": one.algorithm.to_string(),
            "not_after": unix_millis(one.not_after),
            "days": days_left(one.not_after, now),
            "staple": one.staple.map(|(_, until)| unix_millis(until)),
            "wants_staple": one.wants_staple,
            "complete": one.is_complete,
            "revoked": one.revoked.map(unix_millis),
            "trouble": one.trouble,
        })
    })
}

/// Days until the end of validity, rounded down to tenths; negative after it.
fn days_left(end: SystemTime, now: SystemTime) -> f64 {
    let left = end
        .duration_since(now)
        .map_or_else(|error| -error.duration().as_secs_f64(), |left| left.as_secs_f64());
    // A tenth of a day has 8640 seconds.
    (left / 8640.0).floor() / 10.0
}

/// Problems, the most frequent first.
pub(super) fn problems(all: &[Problem]) -> Value {
    let problem = |one: &Problem| {
        json!({
            "source": one.source.name(),
            "reason": one.reason,
            "counts": one.counts,
            "total": one.total(),
            "last": unix_millis(one.last),
            "example": one.example,
        })
    };
    json!({ "minutes": brisk_telemetry::PROBLEM_MINUTES, "problems": all.iter().map(problem).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn server(number: usize) -> UpstreamReading {
        UpstreamReading {
            limit: None,
            group: format!("App-{}", number % 7).into(),
            server: format!("192.0.2.1:{number}").into(),
            healthy: number != 999,
            open: 1,
            connections: 2,
            requests: 3,
            failures: 0,
        }
    }

    #[test]
    fn a_thousand_servers_come_in_pages_those_out_of_order_first() {
        let all: Vec<_> = (0..1000).map(server).collect();
        let list = upstreams(all.clone(), &Page { text: "", page: 0 });
        assert_eq!((&list["found"], &list["pages"]), (&json!(1000), &json!(50)));
        assert_eq!(list["rows"].as_array().map(Vec::len), Some(ON_PAGE));
        assert_eq!(list["rows"][0]["server"], "192.0.2.1:999");
        let last = upstreams(all.clone(), &Page { text: "", page: 4711 });
        assert_eq!(last["page"], 49);
        let found = upstreams(all, &Page { text: "app-3", page: 0 });
        assert_eq!(found["found"], 143);
    }

    #[test]
    fn days_are_left_or_over() {
        let now = UNIX_EPOCH + Duration::from_hours(24 * 100);
        assert!((days_left(now + Duration::from_hours(36), now) - 1.5).abs() < 1e-9);
        assert!((days_left(now - Duration::from_hours(24), now) + 1.0).abs() < 1e-9);
    }
}
