//! Measurements of a page: beacons of the built-in script and of Boomerang.

use brisk_visits::{Measures, Metric, Navigation};

use crate::Refusal;
use crate::token::Token;

/// Measurements of a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The id that came with its answer.
    pub token: Option<Token>,
    /// The script here sent it, whose times of a connection are there only if the navigation opened one.
    pub is_own: bool,
    /// Time from the start of the navigation to its request in milliseconds, if the page reports no connection times.
    /// Chromium reports none if it expects HTTP/2 and opened the connection before it made the request.
    pub held: Option<f64>,
    /// Way in which the visitor reached the page.
    pub navigation: Option<Navigation>,
    /// Measured values.
    pub measures: Measures,
    /// Resources by the protocol that they came by; see `PROTOCOLS`.
    pub resources: [u32; PROTOCOLS.len()],
}

/// Protocols of resources, by their keys in a beacon.
pub(crate) const PROTOCOLS: [&str; 4] = ["h1", "h2", "h3", "other"];

/// Maximum number of fields of a beacon.
const MOST_FIELDS: usize = 1000;

/// Maximum length of a decoded value, in bytes.
const LONGEST_VALUE: usize = 64;

/// Maximum number of resources that a page reports: browsers keep 250 unless a page raises the limit.
const MOST_RESOURCES: u32 = 10_000;

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
    /// Reads a form or the query of a URL. The time is proportional to its length.
    pub fn read(form: &[u8]) -> Result<Self, Refusal> {
        let mut page = Self::default();
        let mut times = [None; TIMES.len()];
        let mut is_any = false;
        for (index, (key, value)) in form_urlencoded::parse(form).enumerate() {
            if index >= MOST_FIELDS {
                return Err(Refusal::Malformed);
            }
            is_any |= page.take(&key, &value, &mut times)?;
        }
        page.between(&times)?;
        if is_any { Ok(page) } else { Err(Refusal::Malformed) }
    }

    /// Processes a pair. Returns whether its key is known.
    fn take(
        &mut self,
        key: &str,
        value: &str,
        times: &mut [Option<f64>; TIMES.len()],
    ) -> Result<bool, Refusal> {
        // Unknown keys may have long values.
        let value = Some(value).filter(|value| value.len() <= LONGEST_VALUE).ok_or(Refusal::Malformed);
        if matches!(key, "id" | "brisk") {
            let token = Token::read(value?.as_bytes()).ok_or(Refusal::Malformed)?;
            self.is_own = key == "id";
            return fill(&mut self.token, token).map(|()| true);
        }
        if key == "nav" {
            let navigation = Navigation::named(value?).unwrap_or(Navigation::Other);
            return fill(&mut self.navigation, navigation).map(|()| true);
        }
        let read = || number(value?).ok_or(Refusal::Malformed);
        if let Some(place) = PROTOCOLS.iter().position(|known| *known == key) {
            let count = read()?;
            if !(0.0..=f64::from(MOST_RESOURCES)).contains(&count) {
                return Err(Refusal::Implausible);
            }
            self.resources[place] = count as u32;
            return Ok(true);
        }
        if let Some(place) = TIMES.iter().position(|known| *known == key) {
            return fill(&mut times[place], read()?).map(|()| true);
        }
        if key == "held" {
            return fill(&mut self.held, read()?).map(|()| true);
        }
        let own = OWN.iter().find(|metric| metric.name() == key).copied();
        let metric =
            own.or_else(|| BOOMERANG.iter().find(|(known, _)| *known == key).map(|(_, metric)| *metric));
        let Some(metric) = metric else { return Ok(false) };
        self.set(metric, read()?).map(|()| true)
    }

    /// Computes durations from Boomerang's points in time.
    fn between(&mut self, times: &[Option<f64>; TIMES.len()]) -> Result<(), Refusal> {
        let [dns_start, dns_end, connect_start, connect_end, tls_start, asked, answered] = *times;
        let tls_start = tls_start.filter(|start| *start > 0.0);
        for (metric, from, to) in [
            (Metric::Dns, dns_start, dns_end),
            (Metric::Connect, connect_start, tls_start.or(connect_end)),
            (Metric::Tls, tls_start, connect_end),
            (Metric::Wait, asked, answered),
        ] {
            if let (Some(from), Some(to)) = (from, to) {
                self.set(metric, to - from)?;
            }
        }
        Ok(())
    }

    fn set(&mut self, metric: Metric, value: f64) -> Result<(), Refusal> {
        if self.measures.get(metric).is_some() {
            return Err(Refusal::Malformed);
        }
        if self.measures.set(metric, value) { Ok(()) } else { Err(Refusal::Implausible) }
    }
}

/// Parses a number as scripts write them: digits, optionally with a point and a sign; no exponent and no words.
fn number(text: &str) -> Option<f64> {
    let is_plain = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-');
    (text.len() <= 24 && text.bytes().all(is_plain)).then(|| text.parse().ok())?
}

/// Sets an empty value. Fails if it was set before: duplicate keys are invalid.
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
    fn numbers_are_digits() {
        assert_eq!(number("12.5"), Some(12.5));
        assert_eq!(number("-1"), Some(-1.0));
        for wrong in ["", "inf", "NaN", "1e9", "0x1", "1.2.3", "1 ", "1111111111111111111111111"] {
            assert_eq!(number(wrong), None, "{wrong}");
        }
    }
}
