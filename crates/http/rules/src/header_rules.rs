//! Headers that an operator sets, adds and removes, in requests for upstreams and in responses.

use std::rc::Rc;
use std::sync::Arc;

use brisk_http::claims;
use brisk_http::message::{HeaderList, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};

use crate::{Filled, Template, Values, Variable};

/// Headers that frame a message or control its connection. The gateway sets these itself, so [`HeaderRules`] may not.
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
#[derive(Clone, Debug, Default)]
pub struct HeaderRules {
    /// Headers that are removed with all their lines.
    pub remove: Vec<HeaderName>,
    /// Headers that get this value instead of their values.
    pub set: Vec<HeaderRule>,
    /// Headers that get this value in addition to their values.
    pub add: Vec<HeaderRule>,
}

/// The [`HeaderRules`] of a route, or the general ones of a host or of the server.
#[derive(Clone, Debug, Default)]
pub struct RouteHeaders {
    /// Changes to request headers for upstreams. Default: none.
    pub requests: Option<Arc<HeaderRules>>,
    /// Changes to response headers. Default: none.
    pub responses: Option<Arc<HeaderRules>>,
}

/// A header with the value that it gets by [`HeaderRules::set`] or [`HeaderRules::add`].
#[derive(Clone, Debug)]
pub struct HeaderRule {
    /// Name of the header.
    pub name: HeaderName,
    /// Value.
    pub value: RuleValue,
    /// The responses that get the value; requests always get it.
    pub statuses: Statuses,
}

/// Responses that get the value of a [`HeaderRule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statuses {
    /// All responses.
    All,
    /// Responses with a status of 2xx or 3xx.
    Successful,
}

/// Value of a header in a rule.
#[derive(Clone, Debug)]
pub enum RuleValue {
    /// The same for all messages.
    Fixed(HeaderValue),
    /// Formed from the request. A header whose value is empty is not sent.
    Formed(Template),
}

impl From<Template> for RuleValue {
    fn from(template: Template) -> Self {
        template.fixed().map_or(Self::Formed(template), Self::Fixed)
    }
}

/// The formed values of one request, in the order of the rules.
pub type FilledValues = Vec<Filled>;

impl HeaderRules {
    /// Whether a rule may name `header`: none that frames a message, such as `Content-Length`.
    pub fn may_change(header: &HeaderName) -> bool {
        !FRAMING.contains(&header.as_str())
    }

    fn templates(&self) -> impl Iterator<Item = &Template> {
        self.set.iter().chain(&self.add).filter_map(|rule| match &rule.value {
            RuleValue::Fixed(_) => None,
            RuleValue::Formed(template) => Some(template),
        })
    }

    /// Whether values are formed from the request.
    pub fn has_templates(&self) -> bool {
        self.templates().next().is_some()
    }

    /// Forms the values of one request, for [`Self::apply_to_request`] and [`Self::apply_to_response`].
    pub fn fill(&self, values: &impl Values) -> FilledValues {
        self.templates().map(|template| template.fill(values)).collect()
    }

    /// The names of the headers that the rules remove or set. The recipient of a request must not find a value of the client in
    /// them.
    pub fn own_names(&self) -> impl Iterator<Item = &HeaderName> {
        self.remove.iter().chain(self.set.iter().map(|rule| &rule.name))
    }

    /// These rules, and those of `general` whose names they do not have.
    #[must_use]
    pub fn over(mut self, general: &Self) -> Self {
        // An operator who names a header at a route expects no other value of it, as in nginx.
        let own: Vec<_> = self.own_names().chain(self.add.iter().map(|rule| &rule.name)).cloned().collect();
        let others = |rules: &[HeaderRule]| -> Vec<HeaderRule> {
            rules.iter().filter(|rule| !own.contains(&rule.name)).cloned().collect()
        };
        self.remove.extend(general.remove.iter().filter(|name| !own.contains(name)).cloned());
        self.set.extend(others(&general.set));
        self.add.extend(others(&general.add));
        self
    }

    /// The removal of all headers that the rules [own](Self::own_names), without values.
    #[must_use]
    pub fn without_values(&self) -> Self {
        Self { remove: self.own_names().cloned().collect(), ..Self::default() }
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }

    /// Applies the rules to a request, like [`Self::apply_to_response`], where a name stands for all spellings that servers such as
    /// CGI do not distinguish.
    pub fn apply_to_request(&self, headers: &mut HeaderList, filled: &[Filled]) {
        for name in self.own_names() {
            claims::remove_named(headers, name);
        }
        let formed = filled.iter().map(|filled| filled.clone().header(&NoResponse)).collect();
        self.apply(headers, formed, true);
    }

    /// Applies the rules to a response with the formed values of the request. `server` is the address of the upstream server, empty
    /// for none. A 206 with several parts keeps its media type.
    pub fn apply_to_response<B>(&self, response: &mut Response<B>, filled: &[Filled], server: &str) {
        let is_successful = response.status().is_success() || response.status().is_redirection();
        // Values of the response are those before the rules.
        let values = ResponseValues { server, status: response.status(), headers: response.headers() };
        let formed = filled.iter().map(|filled| filled.clone().header(&values)).collect();
        let framing = parts_type(response).cloned();
        self.apply(response.headers_mut(), formed, is_successful);
        if let Some(kind) = framing {
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
        }
    }

    /// `formed` has the values of the rules with variables, in their order.
    fn apply(&self, headers: &mut HeaderList, formed: Vec<Option<HeaderValue>>, is_successful: bool) {
        for name in &self.remove {
            headers.remove(name);
        }
        let mut formed = formed.into_iter();
        let mut value_of = |rule: &HeaderRule| match &rule.value {
            RuleValue::Fixed(value) => Some(value.clone()),
            RuleValue::Formed(_) => formed.next().flatten(),
        };
        let concerns = |rule: &HeaderRule| is_successful || rule.statuses == Statuses::All;
        for rule in &self.set {
            // `value_of` is called for each rule, also for other statuses, because it advances in `formed`.
            match value_of(rule) {
                _ if !concerns(rule) => {}
                Some(value) => drop(headers.insert(&rule.name, value)),
                // The recipient would take a value of the client for that of the rule.
                None => drop(headers.remove(&rule.name)),
            }
        }
        for rule in &self.add {
            if let Some(value) = value_of(rule).filter(|_| concerns(rule)) {
                headers.append(&rule.name, value);
            }
        }
    }
}

/// The media type of a response with several parts, which has the boundary between them (RFC 9110 section 14.6).
fn parts_type<B>(response: &Response<B>) -> Option<&HeaderValue> {
    let kind = response.headers().get(header::CONTENT_TYPE)?;
    let is_parts = kind.as_bytes().to_ascii_lowercase().starts_with(b"multipart/byteranges");
    (response.status() == StatusCode::PARTIAL_CONTENT && is_parts).then_some(kind)
}

/// Values of a response.
struct ResponseValues<'a> {
    server: &'a str,
    status: StatusCode,
    headers: &'a HeaderList,
}

impl Values for ResponseValues<'_> {
    fn append(&self, variable: &Variable, out: &mut Vec<u8>) {
        match variable {
            Variable::Upstream => out.extend_from_slice(self.server.as_bytes()),
            Variable::ResponseStatus => out.extend_from_slice(self.status.as_str().as_bytes()),
            Variable::ResponseHeader(name) => {
                out.extend_from_slice(self.headers.get(name).map_or(&[], |value| value.as_bytes()));
            }
            _ => {}
        }
    }
}

/// Values of a request for its upstream, which has no response yet.
struct NoResponse;

impl Values for NoResponse {
    fn append(&self, _: &Variable, _: &mut Vec<u8>) {}
}

/// Headers of every response of a host, with their values as sent.
#[derive(Debug)]
pub struct ResponseHeaders {
    hsts: Option<HeaderValue>,
    others: HostHeaders,
}

impl ResponseHeaders {
    /// `hsts`, the value of `Strict-Transport-Security`, and `others`; `None` if there are none.
    pub fn new(hsts: Option<HeaderValue>, others: &HostHeaders) -> Option<Rc<Self>> {
        let is_used = hsts.is_some() || !others.0.is_empty();
        is_used.then(|| Rc::new(Self { hsts, others: others.clone() }))
    }

    /// Adds the headers to a response, which is sent over TLS if `is_secure`; otherwise without `Strict-Transport-Security`.
    pub fn apply(&self, is_secure: bool, headers: &mut HeaderList) {
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
    fn apply(&self, headers: &mut HeaderList) {
        for (name, value) in &self.0 {
            headers.insert_missing(name, || value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Maps;

    use super::*;

    fn pair(name: &'static str, value: &'static str) -> (HeaderName, HeaderValue) {
        (HeaderName::from_static(name), HeaderValue::from_static(value))
    }

    fn rule(name: &'static str, value: &str) -> HeaderRule {
        let template = Template::new(value, &Maps::new()).expect("a template");
        HeaderRule {
            name: HeaderName::from_static(name),
            value: template.into(),
            statuses: Statuses::Successful,
        }
    }

    fn lines(headers: &HeaderList) -> Vec<(&str, &str)> {
        headers.iter().map(|(name, value)| (name.as_str(), value.to_str().expect("text"))).collect()
    }

    /// A request by POST.
    struct Post;

    impl Values for Post {
        fn append(&self, variable: &Variable, out: &mut Vec<u8>) {
            if *variable == Variable::Method {
                out.extend_from_slice(b"POST");
            }
        }
    }

    #[test]
    fn formed_values_follow_the_request_and_empty_ones_are_not_sent() {
        let rules = HeaderRules {
            remove: Vec::new(),
            set: vec![
                rule("x-a", "{request.query}"),
                rule("x-b", "1"),
                rule("x-c", "{request.method} {upstream.address}"),
            ],
            add: vec![rule("x-d", "{request.method}"), rule("x-e", "{client.address}")],
        };
        assert!(rules.has_templates());
        let headers: HeaderList = [pair("x-a", "sent"), pair("x-d", "sent")].into_iter().collect();
        let mut response = Response::new(());
        *response.headers_mut() = headers;
        rules.apply_to_response(&mut response, &rules.fill(&Post), "10.0.0.1:80");
        let headers = response.headers();
        let found: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let expected: [(&str, &[u8]); 4] =
            [("x-d", b"sent"), ("x-d", b"POST"), ("x-b", b"1"), ("x-c", b"POST 10.0.0.1:80")];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        assert!(expected.iter().all(|pair| found.contains(pair)), "{found:?}");
    }

    #[test]
    fn headers_are_removed_then_set_then_added() {
        let mut headers: HeaderList =
            [pair("x-a", "1"), pair("x-b", "1"), pair("x-c", "1"), pair("x-d", "1")].into_iter().collect();
        headers.append("x-b", HeaderValue::from_static("2"));
        let rules = HeaderRules {
            remove: vec![HeaderName::from_static("x-a"), HeaderName::from_static("x-d")],
            set: vec![rule("x-b", "3"), rule("x-d", "4")],
            add: vec![rule("x-c", "5"), rule("x-d", "6")],
        };
        rules.apply(&mut headers, Vec::new(), true);
        let all =
            |name: &str| headers.get_all(name).map(|value| value.to_str().expect("text")).collect::<Vec<_>>();
        assert!(all("x-a").is_empty());
        assert_eq!((all("x-b"), all("x-c"), all("x-d")), (vec!["3"], vec!["1", "5"], vec!["4", "6"]));
    }

    #[test]
    fn rules_for_a_request_concern_all_spellings_of_a_name() {
        let mut headers: HeaderList =
            [pair("x-a", "1"), pair("x_a", "1"), pair("x.b", "1"), pair("x~b", "1"), pair("x-bc", "1")]
                .into_iter()
                .collect();
        let rules = HeaderRules {
            remove: vec![HeaderName::from_static("x-a")],
            set: vec![rule("x-b", "2")],
            add: vec![rule("x-a", "3")],
        };
        rules.apply_to_request(&mut headers, &[]);
        let mut left: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        left.sort_unstable();
        assert_eq!(left, [("x-a", &b"3"[..]), ("x-b", b"2"), ("x-bc", b"1")]);
    }

    #[test]
    fn a_response_with_an_error_gets_only_the_values_for_all_messages() {
        let always = |rule| HeaderRule { statuses: Statuses::All, ..rule };
        let rules = HeaderRules {
            remove: vec![HeaderName::from_static("x-a")],
            set: vec![rule("x-b", "{request.method}"), always(rule("x-c", "{request.method} 3"))],
            add: vec![rule("x-d", "4"), always(rule("x-e", "5"))],
        };
        for (status, expected) in [
            (404, &[("x-b", "own"), ("x-c", "POST 3"), ("x-e", "5")][..]),
            (200, &[("x-b", "POST"), ("x-c", "POST 3"), ("x-d", "4"), ("x-e", "5")]),
            (304, &[("x-b", "POST"), ("x-c", "POST 3"), ("x-d", "4"), ("x-e", "5")]),
        ] {
            let mut response = Response::new(());
            *response.status_mut() = StatusCode::from_u16(status).expect("a status");
            *response.headers_mut() = [pair("x-a", "own"), pair("x-b", "own")].into_iter().collect();
            rules.apply_to_response(&mut response, &rules.fill(&Post), "");
            assert_eq!(lines(response.headers()), expected, "{status}");
        }
    }

    #[test]
    fn rules_take_the_place_of_general_ones_with_the_same_names() {
        let general = HeaderRules {
            remove: vec![HeaderName::from_static("x-a"), HeaderName::from_static("x-b")],
            set: vec![rule("x-c", "general"), rule("x-d", "general")],
            add: vec![rule("x-e", "general"), rule("x-f", "general"), rule("x-f", "general 2")],
        };
        let own = HeaderRules {
            remove: vec![HeaderName::from_static("x-c")],
            set: vec![rule("x-a", "own")],
            add: vec![rule("x-e", "own"), rule("x-e", "own 2")],
        };
        let rules = own.over(&general);
        let mut headers: HeaderList =
            ["x-a", "x-b", "x-c"].map(|name| pair(name, "client")).into_iter().collect();
        rules.apply(&mut headers, Vec::new(), true);
        let expected = [
            ("x-a", "own"),
            ("x-d", "general"),
            ("x-e", "own"),
            ("x-e", "own 2"),
            ("x-f", "general"),
            ("x-f", "general 2"),
        ];
        assert_eq!(lines(&headers), expected);
    }

    #[test]
    fn what_frames_a_message_is_no_matter_of_rules() {
        assert!(FRAMING.iter().all(|name| !HeaderRules::may_change(&HeaderName::from_static(name))));
        assert!(HeaderRules::may_change(&header::CACHE_CONTROL));
    }

    #[test]
    fn a_response_keeps_what_it_brings() {
        let mut headers: HeaderList = [pair("x-frame-options", "DENY")].into_iter().collect();
        HostHeaders(vec![pair("x-frame-options", "SAMEORIGIN"), pair("x-new", "1")]).apply(&mut headers);
        assert_eq!(headers["x-frame-options"], "DENY");
        assert_eq!(headers["x-new"], "1");
    }
}
