//! Measurements of a page: beacons of the built-in script and of Boomerang.
//!
//! The script of earlier versions sends the load of a page only. After the load, or without it, a beacon of this version
//! contains further views of the page; each begins with the key `view`. So cached scripts are still understood.

use std::mem;

use brisk_visits::{Measures, Metric, Navigation};

use crate::Refusal;
use crate::token::Token;

/// Measurements of a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The id that came with the response; `None` if the beacon has none.
    pub token: Option<Token>,
    /// Whether the built-in script sent it, whose times of a connection are there only if the navigation opened one.
    pub is_own: bool,
    /// Time from the start of the navigation to its request in milliseconds, if the page reports no connection times.
    /// Chromium reports none if it expects HTTP/2 and opened the connection before it made the request.
    pub held: Option<f64>,
    /// Way in which the visitor reached the page.
    pub navigation: Option<Navigation>,
    /// Measured values.
    pub measures: Measures,
    /// Number of resources by protocol, in the order of `PROTOCOLS`.
    pub resources: [u32; PROTOCOLS.len()],
    /// Whether the beacon contains the load of the page, and not only further views.
    pub is_load: bool,
    /// Whether the page is gone, so that no further beacon comes.
    pub is_last: bool,
    /// Further views, in order.
    pub views: Vec<View>,
}

/// A view of a loaded page: [`Navigation::Soft`], or a return from the back/forward cache.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// Kind of the view; never a load.
    pub kind: Navigation,
    /// Path, optionally with a route of the application after `#`; at most 256 bytes.
    pub path: Option<Box<str>>,
    /// Measured values.
    pub measures: Measures,
}

/// Protocols of resources, by their keys in a beacon.
pub(crate) const PROTOCOLS: [&str; 4] = ["h1", "h2", "h3", "other"];

/// Maximum number of fields of a beacon.
const MOST_FIELDS: usize = 1000;

/// Maximum length of a decoded value, in bytes.
const LONGEST_VALUE: usize = 64;

/// Maximum number of resources that a page reports: browsers keep 250 unless a page raises the limit
/// (`setResourceTimingBufferSize`).
const MOST_RESOURCES: u32 = 10_000;

/// Maximum number of further views of a beacon. The script sends about 20 at once.
const MOST_VIEWS: usize = 64;

/// Maximum length of the path of a view, in bytes.
const LONGEST_PATH: usize = 256;

/// Metrics of [`Navigation::Soft`]: the others belong to the load of the page.
const OF_SOFT: &[Metric] = &[Metric::Interaction, Metric::Shift];

/// Metrics of a return from the back/forward cache.
const OF_RETURN: &[Metric] =
    &[Metric::Interaction, Metric::Shift, Metric::FirstByte, Metric::FirstPaint, Metric::LargestPaint];

/// Metrics of the built-in script, under their own names.
const OWN: [Metric; 12] = [
    Metric::Dns,
    Metric::Connect,
    Metric::Tls,
    Metric::Wait,
    Metric::FirstByte,
    Metric::Load,
    Metric::FirstPaint,
    Metric::LargestPaint,
    Metric::Interaction,
    Metric::Shift,
    Metric::Connections,
    Metric::Bytes,
];

/// Keys of Boomerang with the equivalent metric.
const BOOMERANG: [(&str, Metric); 7] = [
    ("t_resp", Metric::FirstByte),
    ("t_done", Metric::Load),
    ("pt.fcp", Metric::FirstPaint),
    ("pt.lcp", Metric::LargestPaint),
    ("et.inp", Metric::Interaction),
    ("c.cls", Metric::Shift),
    ("nt_trn_size", Metric::Bytes),
];

/// Points in time of Boomerang, in milliseconds since 1970.
const TIMES: [&str; 7] =
    ["nt_dns_st", "nt_dns_end", "nt_con_st", "nt_con_end", "nt_ssl_st", "nt_req_st", "nt_res_st"];

impl Page {
    /// Reads a form or the query of a URL. The time is proportional to its length; other keys are ignored. A duplicate
    /// key, a malformed value or more than 1000 fields are [`Refusal::Malformed`].
    pub fn read(form: &[u8]) -> Result<Self, Refusal> {
        let mut page = Self::default();
        let (mut load, mut is_any) = (LoadFields::default(), false);
        for (index, (key, value)) in form_urlencoded::parse(form).enumerate() {
            if index >= MOST_FIELDS {
                return Err(Refusal::Malformed);
            }
            is_any |= page.take(&key, &value, &mut load)?;
        }
        // At the end, because the points in time may be in any order among the fields.
        page.between(&load.times)?;
        page.resources = load.resources.map(Option::unwrap_or_default);
        // A beacon without views is a load, as those of earlier scripts are, even if it has an id only.
        page.is_load |= page.views.is_empty();
        if is_any { Ok(page) } else { Err(Refusal::Malformed) }
    }

    /// Processes a pair. Returns whether its key is known.
    fn take(&mut self, key: &str, value: &str, load: &mut LoadFields) -> Result<bool, Refusal> {
        if key == "end" {
            let is_duplicate = mem::replace(&mut self.is_last, true);
            return if is_duplicate { Err(Refusal::Malformed) } else { Ok(false) };
        }
        if key == "view" {
            return self.begin_view(value).map(|()| true);
        }
        if let Some(view) = self.views.last_mut().filter(|_| !matches!(key, "id" | "brisk")) {
            return view.take(key, value);
        }
        // Unknown keys may have long values.
        let value = Some(value).filter(|value| value.len() <= LONGEST_VALUE).ok_or(Refusal::Malformed);
        if matches!(key, "id" | "brisk") {
            let token = Token::read(value?.as_bytes()).ok_or(Refusal::Malformed)?;
            self.is_own = key == "id";
            return fill(&mut self.token, token).map(|()| true);
        }
        let is_known = self.take_load(key, value, load)?;
        self.is_load |= is_known;
        Ok(is_known)
    }

    /// Processes a pair that belongs to the load of the page. Returns whether its key is known.
    fn take_load(
        &mut self,
        key: &str,
        value: Result<&str, Refusal>,
        load: &mut LoadFields,
    ) -> Result<bool, Refusal> {
        if key == "nav" {
            let navigation = Navigation::named(value?).filter(|navigation| navigation.is_load());
            // Browsers may add kinds of navigations: a new one is no fault of the page.
            let navigation = navigation.unwrap_or(Navigation::Other);
            return fill(&mut self.navigation, navigation).map(|()| true);
        }
        let read = || number(value?).ok_or(Refusal::Malformed);
        if let Some(place) = PROTOCOLS.iter().position(|known| *known == key) {
            let count = read()?;
            if !(0.0..=f64::from(MOST_RESOURCES)).contains(&count) {
                return Err(Refusal::Implausible);
            }
            return fill(&mut load.resources[place], count as u32).map(|()| true);
        }
        if let Some(place) = TIMES.iter().position(|known| *known == key) {
            return fill(&mut load.times[place], read()?).map(|()| true);
        }
        if key == "held" {
            return fill(&mut self.held, read()?).map(|()| true);
        }
        let own = OWN.iter().find(|metric| metric.name() == key).copied();
        let metric =
            own.or_else(|| BOOMERANG.iter().find(|(known, _)| *known == key).map(|(_, metric)| *metric));
        let Some(metric) = metric else { return Ok(false) };
        set(&mut self.measures, metric, read()?).map(|()| true)
    }

    fn begin_view(&mut self, kind: &str) -> Result<(), Refusal> {
        let kind = Navigation::named(kind).filter(|kind| !kind.is_load()).ok_or(Refusal::Malformed)?;
        if self.views.len() == MOST_VIEWS {
            return Err(Refusal::Malformed);
        }
        self.views.push(View { kind, path: None, measures: Measures::default() });
        Ok(())
    }

    /// Computes durations from Boomerang's points in time.
    fn between(&mut self, times: &[Option<f64>; TIMES.len()]) -> Result<(), Refusal> {
        let [dns_start, dns_end, connect_start, connect_end, tls_start, asked, answered] = *times;
        // Browsers report 0 as the start of the TLS handshake of a connection without TLS.
        let tls_start = tls_start.filter(|start| *start > 0.0);
        for (metric, from, to) in [
            (Metric::Dns, dns_start, dns_end),
            // The end of the connection includes the TLS handshake, so TCP ends where TLS begins.
            (Metric::Connect, connect_start, tls_start.or(connect_end)),
            (Metric::Tls, tls_start, connect_end),
            (Metric::Wait, asked, answered),
        ] {
            if let (Some(from), Some(to)) = (from, to) {
                set(&mut self.measures, metric, to - from)?;
            }
        }
        Ok(())
    }
}

/// Fields that the [`Page`] does not have in this form.
#[derive(Default)]
struct LoadFields {
    times: [Option<f64>; TIMES.len()],
    resources: [Option<u32>; PROTOCOLS.len()],
}

impl View {
    /// Processes a pair that belongs to the view. Returns whether its key is known.
    fn take(&mut self, key: &str, value: &str) -> Result<bool, Refusal> {
        if key == "page" {
            let is_path = value.starts_with('/') && value.len() <= LONGEST_PATH;
            let path = is_path.then(|| value.into()).ok_or(Refusal::Malformed)?;
            return fill(&mut self.path, path).map(|()| true);
        }
        let Some(metric) = OWN.iter().find(|metric| metric.name() == key) else { return Ok(false) };
        let allowed = if self.kind == Navigation::Soft { OF_SOFT } else { OF_RETURN };
        if !allowed.contains(metric) {
            return Err(Refusal::Malformed);
        }
        set(&mut self.measures, *metric, number(value).ok_or(Refusal::Malformed)?).map(|()| true)
    }
}

/// Sets a metric that must be missing before.
fn set(measures: &mut Measures, metric: Metric, value: f64) -> Result<(), Refusal> {
    if measures.get(metric).is_some() {
        return Err(Refusal::Malformed);
    }
    if measures.set(metric, value) { Ok(()) } else { Err(Refusal::Implausible) }
}

/// Parses a number as scripts write them: digits, optionally with a point and a sign; no exponent and no words.
fn number(text: &str) -> Option<f64> {
    // `parse` alone also accepts `inf`, `NaN` and exponents, with which a client could distort a mean.
    let is_plain = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-');
    (text.len() <= 24 && text.bytes().all(is_plain)).then(|| text.parse().ok())?
}

/// Sets an empty `place`. [`Refusal::Malformed`] if it was set before: duplicate keys are invalid.
fn fill<T>(place: &mut Option<T>, value: T) -> Result<(), Refusal> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Refusal::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0011223344556677";

    fn near(page: &Page, metric: Metric) -> f64 {
        (page.measures.get(metric).unwrap_or(-1.0) * 10.0).round() / 10.0
    }

    #[test]
    fn a_beacon_of_the_script_is_read() {
        let form = format!(
            "id={ID}&nav=reload&dns=0&connect=50.1&tls=51.2&wait=60&ttfb=170.5&fcp=300&cls=0.0312&connections=1&bytes=12345&h1=0&h2=7&h3=0&other=1&x=%"
        );
        let page = Page::read(form.as_bytes()).expect("a page");
        assert_eq!(page.token, Token::read(ID.as_bytes()));
        assert_eq!((page.navigation, page.is_own), (Some(Navigation::Reload), true));
        assert_eq!((near(&page, Metric::Tls), near(&page, Metric::FirstByte)), (51.2, 170.5));
        assert_eq!((page.measures.get(Metric::LargestPaint), page.held), (None, None));
        assert_eq!(page.resources, [0, 7, 0, 1]);
    }

    #[test]
    fn a_beacon_of_boomerang_is_read() {
        let form = format!(
            "v=1.8&rt.start=navigation&t_resp=120&t_done=900&nt_con_st=1700000000100&nt_ssl_st=1700000000150&nt_con_end=1700000000202&nt_req_st=1700000000203&nt_res_st=1700000000300&pt.lcp=610&u=https%3A%2F%2Fa.example%2F&brisk={ID}"
        );
        let page = Page::read(form.as_bytes()).expect("a page");
        assert!(page.token.is_some() && !page.is_own);
        assert_eq!((near(&page, Metric::Connect), near(&page, Metric::Tls)), (50.0, 52.0));
        assert_eq!((near(&page, Metric::Wait), near(&page, Metric::LargestPaint)), (97.0, 610.0));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (form, refusal) in [
            ("", Refusal::Malformed),
            ("{\"ttfb\":1}", Refusal::Malformed),
            ("id=1", Refusal::Malformed),
            ("ttfb=1e3", Refusal::Malformed),
            ("ttfb=1&ttfb=2", Refusal::Malformed),
            ("held=1&held=2", Refusal::Malformed),
            ("nav=a&nav=b", Refusal::Malformed),
            ("h1=1&h1=9999", Refusal::Malformed),
            ("h2=0&h2=0", Refusal::Malformed),
            ("h3=1&h3=1", Refusal::Malformed),
            ("other=1&other=2", Refusal::Malformed),
            ("ttfb=1&end=1&end=1", Refusal::Malformed),
            ("ttfb=", Refusal::Malformed),
            ("ttfb=-1", Refusal::Implausible),
            ("lcp=86400001", Refusal::Implausible),
            ("h2=99999999999", Refusal::Implausible),
            ("nt_con_st=2&nt_con_end=1", Refusal::Implausible),
        ] {
            assert_eq!(Page::read(form.as_bytes()), Err(refusal), "{form}");
        }
    }
    #[test]
    fn fields_are_decoded_and_bounded() {
        let page = Page::read(b"&&tt%66b=%31&d").expect("a page");
        assert_eq!(
            page.measures.get(Metric::FirstByte),
            Page::read(b"ttfb=1").expect("a page").measures.get(Metric::FirstByte)
        );
        for wrong in ["ttfb=1+", "ttfb=%4", "ttfb=%zz", "id=%4", &format!("nav={}", "x".repeat(65))] {
            assert_eq!(Page::read(wrong.as_bytes()), Err(Refusal::Malformed), "{wrong}");
        }
        let many = format!("ttfb=1{}", "&x=1".repeat(MOST_FIELDS));
        assert_eq!(Page::read(many.as_bytes()), Err(Refusal::Malformed));
    }

    #[test]
    fn views_follow_the_load_or_come_without_it() {
        let views = "view=soft&page=%2Fa%2F1%23%2Fb&inp=24&cls=0.05&x=1&view=back_forward_cache&page=%2Fa&lcp=12.5&fcp=12.5&ttfb=0&cls=0";
        for (load, is_load) in [("&nav=navigate&ttfb=20&inp=8", true), ("", false)] {
            let page = Page::read(format!("id={ID}{load}&{views}").as_bytes()).expect("a page");
            assert_eq!((page.is_load, page.is_last, page.views.len()), (is_load, false, 2), "{load}");
            assert_eq!(page.measures.get(Metric::Interaction).is_some(), is_load);
            let [soft, back] = &page.views[..] else { panic!("two views") };
            assert_eq!((soft.kind, soft.path.as_deref()), (Navigation::Soft, Some("/a/1#/b")));
            assert_eq!((back.kind, back.path.as_deref()), (Navigation::BackForwardCache, Some("/a")));
            let has =
                |view: &View| OF_RETURN.iter().filter(|metric| view.measures.get(**metric).is_some()).count();
            assert_eq!((has(soft), has(back)), (2, 4));
        }
        assert!(Page::read(b"view=soft&end=1").expect("a page").is_last);
        for form in ["nav=reload", "ttfb=1", "brisk=0123456789abcdef0011223344556677"] {
            assert!(Page::read(form.as_bytes()).expect("a page").is_load, "{form}");
        }
    }

    #[test]
    fn views_that_cannot_be_are_refused() {
        let many = format!("{}view=soft", "view=soft&".repeat(MOST_VIEWS));
        let long = format!("view=soft&page=/{}", "x".repeat(LONGEST_PATH));
        for form in [
            "view=navigate",
            "view=reload",
            "view=",
            "view=soft&lcp=100",
            "view=soft&ttfb=1",
            "view=soft&load=1",
            "view=soft&inp=1&inp=2",
            "view=soft&inp=1e3",
            "view=soft&page=a",
            "view=soft&page=/a&page=/b",
            "view=back_forward_cache&bytes=7",
            &many,
            &long,
        ] {
            assert_eq!(Page::read(form.as_bytes()), Err(Refusal::Malformed), "{form}");
        }
        for form in ["view=soft&inp=-1", "view=soft&inp=600001"] {
            assert_eq!(Page::read(form.as_bytes()), Err(Refusal::Implausible), "{form}");
        }
    }

    #[test]
    fn numbers_are_digits() {
        assert_eq!(number("12.5"), Some(12.5));
        assert_eq!(number("-1"), Some(-1.0));
        for wrong in ["", "inf", "NaN", "1e9", "0x1", "1.2.3", "1 ", "1111111111111111111111111"] {
            assert_eq!(number(wrong), None, "{wrong}");
        }
    }
}
