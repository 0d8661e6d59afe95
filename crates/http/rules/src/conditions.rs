//! Conditions of routes on more than the path: method, headers, query, cookies, client network, and regular expressions.

use std::fmt;
use std::net::IpAddr;

use brisk_http::message::HeaderList;
use http::{HeaderName, Method, StatusCode};
use ipnet::IpNet;

use crate::pairs::{Pairs, Parameter, value_of};
use crate::pattern::Pattern;

/// Maximum length in bytes of a path in which an expression is searched, and of the values with one name together. A request
/// beyond it is refused: a condition that did not hold for it could be one that protects the upstream.
const LONGEST: usize = 4096;

/// Conditions of a route in addition to its path. A request has to meet all of them.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// Permitted methods; none permits all. `GET` includes `HEAD`.
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
#[derive(Debug)]
pub struct Examined<'a> {
    /// Method.
    pub method: &'a Method,
    /// Whether the request opens a tunnel (RFC 8441). Over HTTP/1.1 the same request has the method `GET`.
    pub is_tunnel: bool,
    /// Normalized path.
    pub path: &'a [u8],
    /// Query as the client sent it.
    pub query: Option<&'a str>,
    /// Headers.
    pub headers: &'a HeaderList,
    /// IP address of the client.
    pub client: IpAddr,
    /// Parameters and cookies, split for all conditions together.
    pub pairs: Pairs<'a>,
}

impl Conditions {
    /// Whether `request` meets all conditions.
    ///
    /// # Errors
    ///
    /// The [`Excess`] of a request that cannot be examined: it must be refused with [`Excess::status`].
    pub fn hold(&self, request: &Examined<'_>) -> Result<bool, Excess> {
        match self.failing(request) {
            None => Ok(true),
            Some(Failing::Excess(excess)) => Err(excess),
            Some(_) => Ok(false),
        }
    }

    /// The first condition that `request` does not meet; `None` if it meets all. The cheapest are examined first.
    pub fn failing(&self, request: &Examined<'_>) -> Option<Failing<'_>> {
        if !self.permits_method(request) {
            return Some(Failing::Method(&self.methods));
        }
        if !self.permits_client(request.client) {
            return Some(Failing::Networks(&self.networks));
        }
        self.failing_value(request).unwrap_or_else(|excess| Some(Failing::Excess(excess)))
    }

    fn failing_value(&self, request: &Examined<'_>) -> Result<Option<Failing<'_>>, Excess> {
        for (name, test) in &self.headers {
            let values = request.headers.get_all(name).map(http::HeaderValue::as_bytes);
            if !test.passes(values).map_err(|TooLong| Excess::Headers)? {
                return Ok(Some(Failing::Value("header", name.as_str(), test)));
            }
        }
        for (name, test) in &self.cookies {
            let cookies = request.pairs.cookies(request.headers).ok_or(Excess::Headers)?;
            let values = cookies.iter().filter_map(|cookie| value_of(cookie, name));
            if !test.passes(values).map_err(|TooLong| Excess::Headers)? {
                return Ok(Some(Failing::Value("cookie", name, test)));
            }
        }
        for (name, test) in &self.query {
            let parameters = request.pairs.parameters(request.query).ok_or(Excess::Query)?;
            let values = parameters.iter().filter(|parameter| parameter.has_name(name));
            if !test.passes_parameters(values).map_err(|TooLong| Excess::Query)? {
                return Ok(Some(Failing::Value("query parameter", name, test)));
            }
        }
        // Last: an expression costs more than the other conditions.
        let Some(pattern) = &self.path else { return Ok(None) };
        if request.path.len() > LONGEST {
            return Err(Excess::Path);
        }
        Ok((!pattern.is_match(request.path)).then_some(Failing::Path(pattern)))
    }

    fn permits_method(&self, request: &Examined<'_>) -> bool {
        // The method of a WebSocket depends on the version of HTTP, and a condition must not.
        let method = if request.is_tunnel { &Method::GET } else { request.method };
        let is_one = |permitted: &Method| {
            permitted == method || (*permitted == Method::GET && *method == Method::HEAD)
        };
        self.methods.is_empty() || self.methods.iter().any(is_one)
    }

    fn permits_client(&self, client: IpAddr) -> bool {
        // A socket of IPv6 reports clients with IPv4 as mapped addresses.
        let client = client.to_canonical();
        self.networks.is_empty() || self.networks.iter().any(|network| network.contains(&client))
    }
}

/// A condition that a request does not meet.
#[derive(Clone, Copy, Debug)]
pub enum Failing<'a> {
    /// The method is none of these.
    Method(&'a [Method]),
    /// The client is in none of these networks.
    Networks(&'a [IpNet]),
    /// Kind, name and test of a value.
    Value(&'static str, &'a str, &'a ValueTest),
    /// The path does not match.
    Path(&'a Pattern),
    /// The request is refused, because the condition cannot be examined.
    Excess(Excess),
}

/// The part of a request that is too long, or has too many pairs, for the conditions of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// A path of more than 4 KiB, for an expression.
    Path,
    /// More than 1,000 parameters, or values of more than 4 KiB for an expression.
    Query,
    /// More than 1,000 cookies, or values of more than 4 KiB for an expression.
    Headers,
}

impl Excess {
    /// Status of the response: `414` for [`Self::Path`] and [`Self::Query`], `431` for [`Self::Headers`].
    pub fn status(self) -> StatusCode {
        match self {
            Self::Path | Self::Query => StatusCode::URI_TOO_LONG,
            Self::Headers => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        }
    }
}

impl fmt::Display for Excess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Path => "the path has more than 4 KiB, for an expression",
            Self::Query => "the query has more than 1,000 parameters, or more than 4 KiB for an expression",
            Self::Headers => {
                "there are more than 1,000 cookies, or values of more than 4 KiB for an expression"
            }
        })
    }
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
            Self::Excess(excess) => excess.fmt(formatter),
        }
    }
}

fn listed(values: &[impl ToString]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

/// The values are too long for an expression.
struct TooLong;

impl ValueTest {
    fn passes<'a>(&self, mut values: impl Iterator<Item = &'a [u8]>) -> Result<bool, TooLong> {
        Ok(match self {
            Self::Present => values.next().is_some(),
            Self::Absent => values.next().is_none(),
            Self::Is(text) => values.any(|value| *value == *text.as_bytes()),
            Self::Matches(pattern) => return matches(pattern, values.map(Some)),
        })
    }

    /// The test of parameters, of which only values of a suitable length are decoded.
    fn passes_parameters<'a>(
        &self,
        mut values: impl Iterator<Item = &'a Parameter<'a>>,
    ) -> Result<bool, TooLong> {
        Ok(match self {
            Self::Present => values.next().is_some(),
            Self::Absent => values.next().is_none(),
            Self::Is(text) => {
                // A longer value cannot be equal, so it is not decoded.
                let mut values = values.filter_map(|value| value.value_within(text.len()));
                values.any(|value| *value == *text.as_bytes())
            }
            Self::Matches(pattern) => {
                return matches(pattern, values.map(|value| value.value_within(LONGEST)));
            }
        })
    }
}

/// Whether one of `values` matches; `None` is a value that is too long.
fn matches<V: AsRef<[u8]>>(
    pattern: &Pattern,
    values: impl Iterator<Item = Option<V>>,
) -> Result<bool, TooLong> {
    let mut left = LONGEST;
    for value in values {
        let value = value.ok_or(TooLong)?;
        // The sum is limited: a query of many short values costs as much as one long value.
        left = left.checked_sub(value.as_ref().len()).ok_or(TooLong)?;
        if pattern.is_match(value.as_ref()) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use brisk_http::message::Request;
    use http::HeaderValue;

    use super::*;

    fn holds(conditions: &Conditions, target: &str, headers: &[(&'static str, &str)]) -> bool {
        checked(conditions, target, headers).expect("a request within the limits")
    }

    fn checked(
        conditions: &Conditions,
        target: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<bool, Excess> {
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
            pairs: Pairs::default(),
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
            let (headers, client) = (&HeaderList::new(), IpAddr::from([127, 0, 0, 1]));
            let pairs = Pairs::default();
            let examined = Examined { method, is_tunnel, path: b"/", query: None, headers, client, pairs };
            conditions.hold(&examined).expect("a short request")
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
        let path = format!("/{}", "a".repeat(LONGEST - 2));
        assert!(holds(&conditions, &path, &[]) && !holds(&conditions, &format!("{path}!"), &[]));
    }

    #[test]
    fn what_is_too_long_for_an_expression_is_refused_and_not_passed_by() {
        let matches = || ValueTest::Matches(pattern("^a+$"));
        let path = Conditions { path: Some(pattern("^/a")), ..Conditions::default() };
        assert_eq!(checked(&path, &format!("/{}", "a".repeat(LONGEST)), &[]), Err(Excess::Path));
        let query = Conditions { query: vec![("q".to_owned(), matches())], ..Conditions::default() };
        for (length, expected) in [(LONGEST, Ok(true)), (LONGEST + 1, Err(Excess::Query))] {
            assert_eq!(checked(&query, &format!("/?q={}", "a".repeat(length)), &[]), expected);
            assert_eq!(checked(&query, &format!("/?q={}", "%61".repeat(length)), &[]), expected);
        }
        assert_eq!(checked(&query, &format!("/?{}", "q=b&".repeat(999)), &[]), Ok(false));
        let long = "b".repeat(40);
        assert_eq!(
            checked(&query, &format!("/?{}", format!("q={long}&").repeat(900)), &[]),
            Err(Excess::Query)
        );
        let header = (HeaderName::from_static("x-a"), matches());
        let header = Conditions { headers: vec![header], ..Conditions::default() };
        let long = "a".repeat(LONGEST + 1);
        assert_eq!(checked(&header, "/", &[("x-a", &long)]), Err(Excess::Headers));
        assert_eq!(checked(&header, "/", &[("x-b", &long)]), Ok(false));
    }

    #[test]
    fn pairs_beyond_the_limit_are_refused_and_hide_nothing() {
        let absent = |name: &str| vec![(name.to_owned(), ValueTest::Absent)];
        let query = Conditions { query: absent("debug"), ..Conditions::default() };
        assert_eq!(checked(&query, &format!("/?{}", "a&".repeat(999)), &[]), Ok(true));
        assert_eq!(checked(&query, &format!("/?{}debug", "a&".repeat(1_000)), &[]), Err(Excess::Query));
        let cookies = Conditions { cookies: absent("debug"), ..Conditions::default() };
        let line = format!("{}debug=1", ";".repeat(1_000));
        assert_eq!(checked(&cookies, "/", &[("cookie", &line)]), Err(Excess::Headers));
    }

    #[test]
    fn a_query_is_split_once_for_all_conditions() {
        // Every route examines the same split query: the number of its parameters is counted once.
        let conditions: Vec<_> = (0..200)
            .map(|number| Conditions {
                query: vec![(format!("n{number}"), ValueTest::Present)],
                ..Conditions::default()
            })
            .collect();
        let query = "a&".repeat(900);
        let (headers, client) = (HeaderList::new(), IpAddr::from([127, 0, 0, 1]));
        let examined = Examined {
            method: &Method::GET,
            is_tunnel: false,
            path: b"/",
            query: Some(&query),
            headers: &headers,
            client,
            pairs: Pairs::default(),
        };
        for conditions in &conditions {
            assert_eq!(conditions.hold(&examined), Ok(false));
        }
        let split = examined.pairs.parameters(Some(&query)).expect("few parameters").as_ptr();
        assert_eq!(examined.pairs.parameters(Some("other")).expect("the same").as_ptr(), split);
    }
}
