//! Conditions of routes on more than the path: method, headers, query, cookies, client network, and regular expressions.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use http::{HeaderMap, HeaderName, Method, header};
use ipnet::IpNet;

use crate::pattern::Pattern;

/// Conditions of a route in addition to its path. A request has to meet all of them.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// Permitted methods; none permits all. GET includes HEAD.
    pub methods: Vec<Method>,
    /// Networks of clients; none permits all.
    pub networks: Vec<IpNet>,
    /// Headers of the request.
    pub headers: Vec<(HeaderName, ValueTest)>,
    /// Cookies of the request.
    pub cookies: Vec<(String, ValueTest)>,
    /// Parameters of the query, decoded.
    pub query: Vec<(String, ValueTest)>,
    /// Expression for the normalized path.
    pub path: Option<Pattern>,
}

/// Test of the values with one name. One of several values is sufficient, except for [`Absent`](Self::Absent).
#[derive(Clone, Debug)]
pub enum ValueTest {
    /// There is a value.
    Present,
    /// There is no value.
    Absent,
    /// A value is this text.
    Is(String),
    /// A value matches.
    Matches(Pattern),
}

/// The parts of a request that conditions examine.
#[derive(Clone, Copy, Debug)]
pub struct Examined<'a> {
    /// Method.
    pub method: &'a Method,
    /// Whether the request opens a tunnel (RFC 8441). Over HTTP/1.1 the same request has the method GET.
    pub is_tunnel: bool,
    /// Normalized path.
    pub path: &'a [u8],
    /// Query as the client sent it.
    pub query: Option<&'a str>,
    /// Headers.
    pub headers: &'a HeaderMap,
    /// IP address of the client.
    pub client: IpAddr,
}

impl Conditions {
    /// Whether `request` meets all conditions.
    pub fn hold(&self, request: &Examined<'_>) -> bool {
        self.failing(request).is_none()
    }

    /// The first condition that `request` does not meet. The cheapest are examined first.
    pub fn failing(&self, request: &Examined<'_>) -> Option<Failing<'_>> {
        if !self.permits_method(request) {
            return Some(Failing::Method(&self.methods));
        }
        if !self.permits_client(request.client) {
            return Some(Failing::Networks(&self.networks));
        }
        let header =
            |(name, test): &&(HeaderName, ValueTest)| !test.passes(header_values(request.headers, name));
        if let Some((name, test)) = self.headers.iter().find(header) {
            return Some(Failing::Value("header", name.as_str(), test));
        }
        let cookie = |(name, test): &&(String, ValueTest)| !test.passes(cookies(request.headers, name));
        if let Some((name, test)) = self.cookies.iter().find(cookie) {
            return Some(Failing::Value("cookie", name, test));
        }
        let parameter = |(name, test): &&(String, ValueTest)| !test.passes(parameters(request.query, name));
        if let Some((name, test)) = self.query.iter().find(parameter) {
            return Some(Failing::Value("query parameter", name, test));
        }
        self.path.as_ref().filter(|pattern| !pattern.is_match(request.path)).map(Failing::Path)
    }

    fn permits_method(&self, request: &Examined<'_>) -> bool {
        let method = if request.is_tunnel { &Method::GET } else { request.method };
        let is_one = |permitted: &Method| {
            permitted == method || (*permitted == Method::GET && *method == Method::HEAD)
        };
        self.methods.is_empty() || self.methods.iter().any(is_one)
    }

    fn permits_client(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        self.networks.is_empty() || self.networks.iter().any(|network| network.contains(&client))
    }
}

/// A condition that a request does not meet.
#[derive(Clone, Copy, Debug)]
pub enum Failing<'a> {
    Method(&'a [Method]),
    Networks(&'a [IpNet]),
    /// Kind, name and test of a value.
    Value(&'static str, &'a str, &'a ValueTest),
    Path(&'a Pattern),
}

impl fmt::Display for Failing<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method(methods) => write!(formatter, "the method is not {}", listed(methods)),
            Self::Networks(networks) => write!(formatter, "the client is not in {}", listed(networks)),
            Self::Value(kind, name, ValueTest::Present) => write!(formatter, "there is no {kind} {name}"),
            Self::Value(kind, name, ValueTest::Absent) => write!(formatter, "there is a {kind} {name}"),
            Self::Value(kind, name, ValueTest::Is(text)) => write!(formatter, "no {kind} {name} is {text:?}"),
            Self::Value(kind, name, ValueTest::Matches(pattern)) => {
                write!(formatter, "no {kind} {name} matches {:?}", pattern.as_str())
            }
            Self::Path(pattern) => {
                write!(formatter, "the path does not match {:?}", pattern.as_str())
            }
        }
    }
}

fn listed(values: &[impl ToString]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

impl ValueTest {
    fn passes<'a>(&self, mut values: impl Iterator<Item = Cow<'a, [u8]>>) -> bool {
        match self {
            Self::Present => values.next().is_some(),
            Self::Absent => values.next().is_none(),
            Self::Is(text) => values.any(|value| *value == *text.as_bytes()),
            Self::Matches(pattern) => values.any(|value| pattern.is_match(&value)),
        }
    }
}

fn header_values<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = Cow<'a, [u8]>> {
    headers.get_all(name).iter().map(|value| Cow::Borrowed(value.as_bytes()))
}

/// Values of the cookies called `name` (RFC 6265 section 5.4). HTTP/2 clients may send several `Cookie` lines.
pub fn cookies<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = Cow<'a, [u8]>> {
    let lines = headers.get_all(header::COOKIE).iter();
    let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let value = pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(Cow::Borrowed(value))
    })
}

/// Decoded values of the query parameters called `name`.
pub fn parameters<'a>(query: Option<&'a str>, name: &'a str) -> impl Iterator<Item = Cow<'a, [u8]>> {
    let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    pairs.filter(move |(key, _)| key == name).map(|(_, value)| match value {
        Cow::Borrowed(value) => Cow::Borrowed(value.as_bytes()),
        Cow::Owned(value) => Cow::Owned(value.into_bytes()),
    })
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};

    use super::*;

    fn holds(conditions: &Conditions, target: &str, headers: &[(&'static str, &str)]) -> bool {
        let mut request = Request::get(target).body(()).expect("a request");
        for (name, value) in headers {
            request.headers_mut().append(*name, HeaderValue::from_str(value).expect("a value"));
        }
        conditions.hold(&Examined {
            method: request.method(),
            is_tunnel: false,
            path: request.uri().path().as_bytes(),
            query: request.uri().query(),
            headers: request.headers(),
            client: "::ffff:10.1.2.3".parse().expect("an address"),
        })
    }

    fn is(text: &str) -> ValueTest {
        ValueTest::Is(text.to_owned())
    }

    fn pattern(text: &str) -> Pattern {
        Pattern::new(text).expect("a pattern")
    }

    #[test]
    fn a_mapped_address_is_in_the_network_of_its_version_4() {
        let inside =
            Conditions { networks: vec!["10.0.0.0/8".parse().expect("a network")], ..Conditions::default() };
        let outside =
            Conditions { networks: vec!["::/0".parse().expect("a network")], ..Conditions::default() };
        assert!(holds(&inside, "/", &[]) && !holds(&outside, "/", &[]));
    }

    #[test]
    fn get_includes_head_and_tunnels_but_head_not_get() {
        let permits = |permitted: Method, method: &Method, is_tunnel| {
            let conditions = Conditions { methods: vec![permitted], ..Conditions::default() };
            let (headers, client) = (&HeaderMap::new(), IpAddr::from([127, 0, 0, 1]));
            conditions.hold(&Examined { method, is_tunnel, path: b"/", query: None, headers, client })
        };
        assert!(permits(Method::GET, &Method::HEAD, false) && permits(Method::GET, &Method::CONNECT, true));
        assert!(!permits(Method::HEAD, &Method::GET, false) && !permits(Method::POST, &Method::GET, false));
        assert!(!permits(Method::CONNECT, &Method::CONNECT, true));
    }

    #[test]
    fn cookies_are_found_in_every_line_by_their_whole_name() {
        let conditions = Conditions { cookies: vec![("ab".to_owned(), is("2"))], ..Conditions::default() };
        assert!(holds(&conditions, "/", &[("cookie", "a=1; ab=2")]));
        assert!(holds(&conditions, "/", &[("cookie", "a=1"), ("cookie", "ab=3;ab=2")]));
        for other in ["cab=2", "ab=23", "ab", "a=b; x=ab=2", "AB=2"] {
            assert!(!holds(&conditions, "/", &[("cookie", other)]), "{other}");
        }
    }

    #[test]
    fn parameters_are_compared_decoded() {
        let conditions = Conditions { query: vec![("a b".to_owned(), is("ü&"))], ..Conditions::default() };
        assert!(
            holds(&conditions, "/?x&a+b=%C3%BC%26", &[])
                && holds(&conditions, "/?%61%20b=1&a+b=%c3%bc%26", &[])
        );
        assert!(!holds(&conditions, "/?a+b=%C3%BC&", &[]) && !holds(&conditions, "/", &[]));
    }

    #[test]
    fn presence_and_absence_concern_every_value() {
        let test = |test| Conditions {
            headers: vec![(HeaderName::from_static("x-a"), test)],
            ..Conditions::default()
        };
        for (test, without, with) in [
            (test(ValueTest::Present), false, true),
            (test(ValueTest::Absent), true, false),
            (test(ValueTest::Matches(pattern("^b+$"))), false, true),
        ] {
            assert_eq!(holds(&test, "/", &[]), without, "{test:?}");
            assert_eq!(holds(&test, "/", &[("x-a", "a"), ("x-a", "bb")]), with, "{test:?}");
        }
    }

    #[test]
    fn a_pattern_that_backtracks_elsewhere_ends_on_a_long_path() {
        let conditions = Conditions { path: Some(pattern("^(/a+)+(a|aa)+$")), ..Conditions::default() };
        let path = format!("/{}", "a".repeat(65_000));
        assert!(holds(&conditions, &path, &[]) && !holds(&conditions, &format!("{path}!"), &[]));
    }
}
