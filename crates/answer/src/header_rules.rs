//! Headers that an operator sets, adds and removes, in requests for upstreams and in responses.

use std::rc::Rc;

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Headers that frame a message or control its connection. The gateway sets these itself.
const FRAMING: [&str; 10] = [
    "connection",
    "content-encoding",
    "content-length",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Changes to the headers of a message, in this order: remove, set, add.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderRules {
    /// Headers that are removed with all their lines.
    pub remove: Vec<HeaderName>,
    /// Headers that get this value instead of their values.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Headers that get this value in addition to their values.
    pub add: Vec<(HeaderName, HeaderValue)>,
}

impl HeaderRules {
    /// Whether a rule may name `header`.
    pub fn may_change(header: &HeaderName) -> bool {
        !FRAMING.contains(&header.as_str())
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }

    /// Applies the rules.
    pub(crate) fn apply(&self, headers: &mut HeaderMap) {
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value) in &self.set {
            headers.insert(name, value.clone());
        }
        for (name, value) in &self.add {
            headers.append(name, value.clone());
        }
    }
}

/// Headers of every response of a host, with their values as sent.
#[derive(Debug)]
pub(crate) struct ResponseHeaders {
    hsts: Option<HeaderValue>,
    others: HostHeaders,
}

impl ResponseHeaders {
    /// `hsts`, the value of `Strict-Transport-Security`, and `others`; `None` if there are none.
    pub(crate) fn new(hsts: Option<HeaderValue>, others: &HostHeaders) -> Option<Rc<Self>> {
        let is_used = hsts.is_some() || !others.0.is_empty();
        is_used.then(|| Rc::new(Self { hsts, others: others.clone() }))
    }

    /// Adds the headers to a response, which is sent over TLS if `is_secure`.
    pub(crate) fn apply(&self, is_secure: bool, headers: &mut HeaderMap) {
        // RFC 6797 section 7.2: never over plain HTTP.
        if let Some(hsts) = self.hsts.as_ref().filter(|_| is_secure) {
            headers.insert(header::STRICT_TRANSPORT_SECURITY, hsts.clone());
        }
        self.others.apply(headers);
    }
}

/// Headers added to every response of a host that does not contain them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostHeaders(pub Vec<(HeaderName, HeaderValue)>);

impl HostHeaders {
    fn apply(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.0 {
            if let header::Entry::Vacant(place) = headers.entry(name) {
                place.insert(value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &'static str, value: &'static str) -> (HeaderName, HeaderValue) {
        (HeaderName::from_static(name), HeaderValue::from_static(value))
    }

    #[test]
    fn headers_are_removed_then_set_then_added() {
        let mut headers: HeaderMap =
            [pair("x-a", "1"), pair("x-b", "1"), pair("x-c", "1"), pair("x-d", "1")].into_iter().collect();
        headers.append("x-b", HeaderValue::from_static("2"));
        let rules = HeaderRules {
            remove: vec![HeaderName::from_static("x-a"), HeaderName::from_static("x-d")],
            set: vec![pair("x-b", "3"), pair("x-d", "4")],
            add: vec![pair("x-c", "5"), pair("x-d", "6")],
        };
        rules.apply(&mut headers);
        let all = |name: &str| {
            headers.get_all(name).iter().map(|value| value.to_str().expect("text")).collect::<Vec<_>>()
        };
        assert!(all("x-a").is_empty());
        assert_eq!((all("x-b"), all("x-c"), all("x-d")), (vec!["3"], vec!["1", "5"], vec!["4", "6"]));
    }

    #[test]
    fn what_frames_a_message_is_no_matter_of_rules() {
        assert!(FRAMING.iter().all(|name| !HeaderRules::may_change(&HeaderName::from_static(name))));
        assert!(HeaderRules::may_change(&header::CACHE_CONTROL));
    }

    #[test]
    fn a_response_keeps_what_it_brings() {
        let mut headers: HeaderMap = [pair("x-frame-options", "DENY")].into_iter().collect();
        HostHeaders(vec![pair("x-frame-options", "SAMEORIGIN"), pair("x-new", "1")]).apply(&mut headers);
        assert_eq!(headers["x-frame-options"], "DENY");
        assert_eq!(headers["x-new"], "1");
    }
}
