//! Invariants for arbitrary posts, for tests and libFuzzer.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use brisk_telemetry::RequestId;
use brisk_visits::{Metric, Visit, Visits};

use crate::{Beacons, Issued, Kind, Page, paths};

/// Checks a post, whose first byte selects its [`Kind`]. A [`Page`] is parsed or refused; stored values are within the
/// limits of each [`Metric`]; without an issued id it creates no [`Visit`], and with one exactly one.
pub fn beacon(bytes: &[u8]) {
    static BEACONS: OnceLock<Arc<Beacons>> = OnceLock::new();
    let Some((choice, body)) = bytes.split_first() else { return };
    let beacons = BEACONS.get_or_init(|| Beacons::new(Visits::off()));
    let host: Arc<str> = "a.example".into();
    if choice % 4 == 0 {
        let _ = beacons.take(Kind::Reports, body, &host, None);
        return;
    }
    if let Ok(page) = Page::read(body) {
        for metric in Metric::ALL {
            let value = page.measures.get(*metric).unwrap_or_default();
            assert!((0.0..=metric.limit() * 1.001).contains(&value), "{metric}: {value}");
        }
        for view in &page.views {
            assert!(!view.kind.is_load() && view.measures.get(Metric::Load).is_none(), "{view:?}");
            let pattern = paths::pattern(view.path.as_deref().unwrap_or_default());
            assert!(pattern.len() <= 120 && !pattern.contains(char::is_control), "{pattern}");
        }
    }
    assert!(
        beacons.take(Kind::Form, body, &host, None).is_err(),
        "it has joined a page that was never answered"
    );
    let visit = Visit::new(Arc::clone(&host), "/".into());
    let answered_in = Duration::from_millis((*choice).into());
    let held_since_hello = Some(answered_in);
    let token = beacons.issue(Issued {
        request: RequestId(1),
        visit,
        path: "/".into(),
        answered_in,
        held_since_hello,
        may_be_hinted: false,
    });
    let own = [b"id=", &token.digits()[..], b"&", body].concat();
    let joined = (0..2).filter(|_| beacons.take(Kind::Form, &own, &host, None).is_ok()).count();
    let is_load = Page::read(&own).is_ok_and(|page| page.is_load);
    assert!(joined <= if is_load { 1 } else { 2 }, "a load has joined twice");
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_beacon() {
        let words: &[&[u8]] = &[
            b"id=0123456789abcdef0011223344556677",
            b"&nav=navigate",
            b"&ttfb=12.5",
            b"&wait=",
            b"&lcp=1e9",
            b"&cls=0.1",
            b"&bytes=-1",
            b"&h2=7",
            b"&t_done=900",
            b"&held=60",
            b"&view=soft",
            b"&view=back_forward_cache",
            b"&page=/a/1%23/b",
            b"&inp=40",
            b"&nt_con_st=1700000000100",
            b"&nt_con_end=1700000000202",
            b"&brisk=",
            b"%3D",
            b"%",
            b"NaN",
            b"inf",
            b"99999999999999999999",
            b"[{\"type\":\"network-error\",\"body\":{\"type\":\"tcp.reset\"}}]",
            b"{\"type\":",
            b"[[[[",
            b"\\u003c",
        ];
        brisk_testkit::fuzz::drive("beacon", words, super::beacon);
    }
}
