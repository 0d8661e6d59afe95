//! Targets of redirects with variables.

mod place;

use std::fmt::Write as _;
use std::sync::Arc;

use self::place::Place;
use crate::pattern::GroupPattern;
use crate::template::{Map, Maps, Part, Values, parse_with_groups, value_of};
use crate::variable::Variable;

/// Maximum length of a location in bytes.
const LONGEST: usize = 64 << 10;

/// Value of `Location`: text with variables.
///
/// The text alone decides about scheme and host, except for variables whose values no client invents: the host that the request
/// was accepted for, addresses and names of the connection, and tables. Values of all other variables are one component of a
/// path or query; they are percent-encoded there. The text of a group may be several segments of a path.
#[derive(Clone, Debug)]
pub struct RedirectTarget {
    pieces: Box<[Piece]>,
    /// The expression whose groups are variables, if one is used.
    expression: Option<GroupPattern>,
    /// Whether the text begins with a scheme or `//`.
    names_a_host: bool,
}

/// Reason for which a request has no location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLocation {
    /// The request names no host.
    Host,
    /// A variable in place of the host or of the whole location is empty.
    Empty,
    /// The location would be longer than 64 KiB.
    Length,
}

#[derive(Clone, Debug)]
enum Piece {
    Text(Box<str>),
    /// Part of the host.
    Host(Variable),
    /// Text of the operator; required in place of the host.
    Map(Arc<Map>, Need),
    /// Begins with `/`.
    Path(Variable),
    /// Segments of a path, not encoded; see [`PathPart`].
    Segments(Variable, PathPart),
    /// A value that already has the form of this part of a URL.
    Verbatim(Variable),
    /// Any value, as one component.
    Component(Variable),
}

/// Place of segments in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathPart {
    Begin,
    Rest,
}

/// Whether a value may be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Optional,
    Required,
}

impl RedirectTarget {
    /// Reads a target. Tables come from `maps`. `{host}` is `{request.host}`, `{path}` is `{request.target}`, and `{1}` or `{name}` a
    /// group of `expression`, which matches the paths of requests.
    ///
    /// # Errors
    ///
    /// The reason, with the correction.
    pub fn new(text: &str, maps: &Maps, expression: Option<&GroupPattern>) -> Result<Self, String> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("the location has to be ASCII without spaces and control characters".to_owned());
        }
        let own = [("host", Variable::Host), ("path", Variable::Target)];
        let parts = parse_with_groups(text, &own, maps, expression)?;
        let mut place = Place::Start;
        let mut pieces = Vec::new();
        for part in parts {
            let piece = match part {
                Part::Text(text) => {
                    place = place.after(&text).ok_or_else(beginning)?;
                    Piece::Text(text)
                }
                Part::Map(map) => {
                    suits(&map)?;
                    let is_host = matches!(place, Place::AuthorityStart | Place::Authority);
                    let need = if is_host { Need::Required } else { Need::Optional };
                    place = place.after_map();
                    Piece::Map(map, need)
                }
                Part::Variable(variable) => {
                    let (piece, after) = place.variable(variable)?;
                    place = after;
                    piece
                }
            };
            pieces.push(piece);
        }
        let names_a_host = match pieces.first() {
            Some(Piece::Text(text)) => !text.starts_with('/') || text.starts_with("//"),
            Some(Piece::Verbatim(Variable::Scheme)) => true,
            _ => false,
        };
        if place == Place::AfterScheme {
            return Err(beginning());
        }
        // The search for groups costs the length of the path, so a target without groups makes none.
        let has_group =
            |piece: &Piece| matches!(piece, Piece::Segments(..) | Piece::Component(Variable::Group(_)));
        let expression = expression.filter(|_| pieces.iter().any(has_group)).cloned();
        Ok(Self { pieces: pieces.into(), expression, names_a_host })
    }

    /// Whether the location depends on the groups of an expression, and so on the normalized path.
    pub fn has_groups(&self) -> bool {
        self.expression.is_some()
    }

    /// Whether the target has a variable; those of tables do not count.
    pub fn has(&self, variable: &Variable) -> bool {
        self.pieces.iter().any(|piece| match piece {
            Piece::Host(own)
            | Piece::Path(own)
            | Piece::Segments(own, _)
            | Piece::Verbatim(own)
            | Piece::Component(own) => own == variable,
            Piece::Text(_) | Piece::Map(..) => false,
        })
    }

    /// The location for a request. `host` is its host, in brackets if it is an IPv6 address. `path` is its normalized path, in which
    /// groups are searched if [there are any](Self::has_groups).
    ///
    /// # Errors
    ///
    /// [`NoLocation`]: nothing is sent to the client then.
    pub fn location(
        &self,
        values: &impl Values,
        host: Option<&str>,
        path: &[u8],
    ) -> Result<String, NoLocation> {
        let groups = match &self.expression {
            None => None,
            Some(expression) => Some(expression.captures(path).ok_or(NoLocation::Empty)?),
        };
        let mut location = String::new();
        for piece in &self.pieces {
            let value = |variable: &Variable| value_of(variable, values, groups.as_ref());
            if could_name_host(piece, &location) {
                return Err(NoLocation::Empty);
            }
            match piece {
                Piece::Text(text) => location.push_str(text),
                Piece::Host(Variable::Host) => location.push_str(host.ok_or(NoLocation::Host)?),
                Piece::Host(variable) => append_host(&value(variable), &mut location)?,
                Piece::Map(map, need) => {
                    let text = map.find(values);
                    if text.is_empty() && *need == Need::Required {
                        return Err(NoLocation::Empty);
                    }
                    encode(&text, |byte| byte.is_ascii_graphic(), &mut location);
                }
                Piece::Path(variable) => {
                    append_path(&value(variable), |byte| byte.is_ascii_graphic(), &mut location);
                }
                Piece::Segments(variable, PathPart::Begin) => {
                    append_path(&value(variable), is_of_segments, &mut location);
                }
                Piece::Segments(variable, PathPart::Rest) => {
                    encode(&value(variable), is_of_segments, &mut location);
                }
                Piece::Verbatim(variable) => append_verbatim(variable, &value(variable), &mut location),
                Piece::Component(variable) => encode(&value(variable), is_unreserved, &mut location),
            }
            // Within the loop: a target may repeat a long value of the client.
            if location.len() > LONGEST {
                return Err(NoLocation::Length);
            }
        }
        if !self.names_a_host {
            keep_on_this_host(&mut location);
        }
        // A relative reference is resolved against the path of the request (RFC 3986 section 5.2), which the client chooses.
        if !(location.starts_with('/') || has_scheme(&location)) {
            return Err(NoLocation::Empty);
        }
        Ok(location)
    }
}

/// Whether a client's value for `piece` could take the place of the host: the value of a table may have ended before it.
fn could_name_host(piece: &Piece, location: &str) -> bool {
    match piece {
        Piece::Text(_) | Piece::Host(_) | Piece::Map(..) | Piece::Verbatim(Variable::Scheme) => false,
        Piece::Path(_) | Piece::Segments(_, PathPart::Begin) => host_end(location).is_none(),
        Piece::Verbatim(_) | Piece::Component(_) | Piece::Segments(_, PathPart::Rest) => {
            host_end(location).is_none_or(|end| end == location.len())
        }
    }
}

fn append_path(path: &[u8], is_permitted: impl Fn(u8) -> bool, location: &mut String) {
    if path.first() != Some(&b'/') {
        location.push('/');
    }
    encode(path, is_permitted, location);
}

/// Appends a value that already has the form of a part of a URL. An empty query also removes an `&` before it, because it adds no
/// parameter; [`UpstreamPath`](crate::UpstreamPath) follows this rule too.
fn append_verbatim(variable: &Variable, value: &[u8], location: &mut String) {
    if *variable == Variable::Query && value.is_empty() && location.ends_with('&') {
        location.pop();
    }
    encode(value, |byte| byte.is_ascii_graphic() && byte != b'#', location);
}

/// Whether a table may stand in a location; otherwise the reason.
fn suits(map: &Map) -> Result<(), String> {
    if map.has_groups() {
        return Err(
            "a client could choose the host by a table whose results have groups: use one with fixed results"
                .to_owned(),
        );
    }
    if map.has_variables() {
        return Err("a client could choose the host by a table whose results have variables: use one with fixed results"
            .to_owned());
    }
    if map.from.needs_response() {
        return Err("a table of the response is known with the response of an upstream only".to_owned());
    }
    Ok(())
}

fn beginning() -> String {
    "it begins with a slash, a scheme as \"https://\", {path}, {request.scheme}:// or a {map.NAME}".to_owned()
}

/// Appends a name, an address or a port; an IPv6 address in brackets.
fn append_host(value: &[u8], location: &mut String) -> Result<(), NoLocation> {
    // Other bytes, such as `@` or `/` in a server name, would begin another part of the URL.
    let is_host = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':');
    let text =
        str::from_utf8(value).ok().filter(|text| !text.is_empty() && text.bytes().all(|byte| is_host(&byte)));
    let text = text.ok_or(NoLocation::Empty)?;
    let (open, close) = if text.contains(':') { ("[", "]") } else { ("", "") };
    // A string takes all text.
    let _ = write!(location, "{open}{text}{close}");
    Ok(())
}

/// Percent-encodes all bytes that are not permitted (RFC 3986 section 2.1).
fn encode(value: &[u8], is_permitted: impl Fn(u8) -> bool, out: &mut String) {
    for &byte in value {
        if is_permitted(byte) {
            out.push(char::from(byte));
        } else {
            // A string takes all text.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

/// RFC 3986 section 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// RFC 3986 section 3.3, without `;`, which would begin parameters.
fn is_of_segments(byte: u8) -> bool {
    is_unreserved(byte) || b"/:@!$&'()*+,=".contains(&byte)
}

/// RFC 3986 section 3.1.
fn is_scheme(text: &str) -> bool {
    let rest = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.bytes().all(rest)
}

fn has_scheme(location: &str) -> bool {
    location.split_once(':').is_some_and(|(scheme, _)| is_scheme(scheme))
}

/// End of scheme and host in `location`: 0 if it is empty or begins with a path. `None` if a host is to follow.
fn host_end(location: &str) -> Option<usize> {
    let begin = if has_scheme(location) { location.find(':')? + 1 } else { 0 };
    if begin == 0 && !location.starts_with("//") {
        return Some(0);
    }
    let authority = location[begin..].strip_prefix("//")?;
    // Browsers treat a backslash as a slash.
    let length = authority.find(['/', '\\', '?', '#']).unwrap_or(authority.len());
    (length > 0).then_some(begin + 2 + length)
}

/// Replaces leading slashes by one: two slashes would name another host (RFC 3986 section 4.2), and browsers treat a
/// backslash as a slash.
fn keep_on_this_host(location: &mut String) {
    let extra = location.bytes().take_while(|byte| matches!(byte, b'/' | b'\\')).count();
    if extra > 1 {
        location.replace_range(..extra, "/");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::map_pattern::MapPattern;
    use crate::pattern::GroupPattern;
    use crate::template::Template;

    /// Fixed values, and one for every header.
    struct Request(&'static str);

    impl Values for Request {
        fn append(&self, variable: &Variable, out: &mut Vec<u8>) {
            out.extend_from_slice(match variable {
                Variable::Target => b"/a/b?c=d&e",
                Variable::Path => b"//evil.example/",
                Variable::Query => b"c=d&e",
                Variable::QueryPart => b"?c=d&e",
                Variable::Scheme => b"https",
                Variable::ServerAddress => b"::1",
                Variable::Header(_) => self.0.as_bytes(),
                _ => b"",
            });
        }
    }

    fn maps() -> Maps {
        let values = [
            ("empty", ""),
            ("path", "/new"),
            ("host", "b.example"),
            ("url", "https://c.example"),
            ("slashes", "https:/"),
            ("scheme", "https:"),
        ];
        let map = |(key, value): &(&str, &str)| {
            let map = Map {
                from: Template::default(),
                default: (*value).into(),
                values: BTreeMap::new(),
                ..Map::default()
            };
            ((*key).to_owned(), Arc::new(map))
        };
        let expression = GroupPattern::new("(.*)").expect("an expression");
        let groups = MapPattern::formed(expression, "{1}").expect("a group");
        let groups = ("groups".to_owned(), Arc::new(Map { patterns: vec![groups], ..Map::default() }));
        values.iter().map(map).chain([groups]).collect()
    }

    fn location(text: &str, header: &'static str) -> Result<String, NoLocation> {
        let target = RedirectTarget::new(text, &maps(), None).expect(text);
        target.location(&Request(header), Some("[::2]"), b"")
    }

    #[test]
    fn variables_are_parts_of_a_url() {
        for (text, expected) in [
            ("https://{host}/new{path}", "https://[::2]/new/a/b?c=d&e"),
            ("https://a.example{path}", "https://a.example/a/b?c=d&e"),
            ("{request.scheme}://{request.host}:444/", "https://[::2]:444/"),
            ("https://{server.address}/", "https://[::1]/"),
            ("/login?next={path}&x", "/login?next=%2Fa%2Fb%3Fc%3Dd%26e&x"),
            ("/new{request.query_part}&f", "/new?c=d&e&f"),
            ("/new?{request.query}&{request.query}#{path}", "/new?c=d&e&c=d&e#%2Fa%2Fb%3Fc%3Dd%26e"),
            ("https://{map.host}{path}", "https://b.example/a/b?c=d&e"),
            ("{map.url}/{request.header.x}", "https://c.example/v"),
            ("{map.path}/{request.header.x}", "/new/v"),
            ("{map.url}", "https://c.example"),
            ("app:///{{x}", "app:///{x}"),
        ] {
            assert_eq!(location(text, "v").as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn an_empty_query_leaves_no_separator_at_the_end() {
        struct Empty;

        impl Values for Empty {
            fn append(&self, _: &Variable, _: &mut Vec<u8>) {}
        }

        for (text, expected) in [
            ("/new?a=b&{request.query}", "/new?a=b"),
            ("/new?a=b&{request.query}&c#d", "/new?a=b&c#d"),
            ("/new?{request.query}", "/new?"),
            ("/new?a&{request.header.x}", "/new?a&"),
        ] {
            let target = RedirectTarget::new(text, &maps(), None).expect(text);
            assert_eq!(target.location(&Empty, None, b"").as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn groups_of_the_path_are_segments_or_components() {
        let expression = GroupPattern::new("^/old(/(?P<rest>.*?))(/|)$").expect("an expression");
        let location = |text: &str, path: &str| {
            let target = RedirectTarget::new(text, &maps(), Some(&expression)).expect(text);
            target.location(&Request(""), Some("a.example"), path.as_bytes())
        };
        for (text, path, expected) in [
            ("/new/{2}", "/old/a/b", "/new/a/b"),
            ("/new{1}?{request.query}", "/old/a b%/c?", "/new/a%20b%25/c%3F?c=d&e"),
            ("{1}", "/old/a/", "/a"),
            ("{rest}", "/old/a:b", "/a:b"),
            ("https://{host}{1}", "/old/x", "https://a.example/x"),
            ("https://{host}{2}", "/old/.evil.example", "https://a.example/.evil.example"),
            ("https://b.example/?page={2}", "/old/a/b&c", "https://b.example/?page=a%2Fb%26c"),
            ("{map.url}/{2}", "/old/x", "https://c.example/x"),
            // A client chooses no host.
            ("{1}", "/old//evil.example", "/evil.example"),
            ("{2}", "/old/\\evil.example", "/%5Cevil.example"),
            ("{2}", "/old/javascript:1", "/javascript:1"),
            ("/{2}", "/old//evil.example", "/evil.example"),
        ] {
            assert_eq!(location(text, path).as_deref(), Ok(expected), "{text} {path}");
        }
        assert_eq!(location("/{1}", "/other"), Err(NoLocation::Empty));
        for (text, reason) in [
            ("https://{2}.example/", "choose the host"),
            ("https://{2}", "choose the host"),
            ("{4}", "write one into `when.path_regex`"),
        ] {
            let error = RedirectTarget::new(text, &maps(), Some(&expression)).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn a_client_chooses_neither_host_nor_header() {
        for (text, header, expected) in [
            ("/{request.header.x}", "/evil.example", "/%2Fevil.example"),
            ("/{request.header.x}", "\\evil.example", "/%5Cevil.example"),
            ("/a{request.header.x}", "\r\nset-cookie: a", "/a%0D%0Aset-cookie%3A%20a"),
            ("/?a={request.header.x}", "b&c=d#e", "/?a=b%26c%3Dd%23e"),
            ("/x?{request.header.x}", "b&c", "/x?b%26c"),
            ("{request.path}", "", "/evil.example/"),
            ("{map.empty}{request.path}", "", "/evil.example/"),
            ("https://a.example{request.path}", "", "https://a.example//evil.example/"),
            ("{map.url}{request.path}", "", "https://c.example//evil.example/"),
        ] {
            assert_eq!(location(text, header).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn without_a_host_there_is_no_location() {
        for text in [
            "https://{map.empty}{request.path}",
            "https://{tls.server_name}/",
            "{map.empty}",
            "{map.host}/",
            "{map.slashes}/{request.header.x}",
            "{map.slashes}{path}",
            "{map.scheme}{path}",
            "{map.slashes}/{map.empty}{path}",
        ] {
            assert_eq!(location(text, "evil.example"), Err(NoLocation::Empty), "{text}");
        }
        let target = RedirectTarget::new("https://{host}/", &maps(), None).expect("a target");
        assert_eq!(target.location(&Request(""), None, b""), Err(NoLocation::Host));
        let long: &str = Box::leak("x".repeat(LONGEST).into());
        assert_eq!(location("/{request.header.x}", long), Err(NoLocation::Length));
    }

    #[test]
    fn a_wrong_target_is_refused_with_the_correction() {
        for (text, reason) in [
            ("", "ASCII without spaces"),
            ("/a b", "ASCII without spaces"),
            ("/\u{fc}", "ASCII without spaces"),
            ("/{pth}", "{pth} is no variable"),
            ("/{path", "has no closing brace"),
            ("example.org/", "begins with a slash"),
            ("1://x/", "begins with a slash"),
            ("{host}/x", "begins with a slash"),
            ("{request.scheme}:{path}", "begins with a slash"),
            ("{request.scheme}", "begins with a slash"),
            ("{request.header.x}/", "begins with a slash"),
            ("https://{request.header.x}/", "choose the host"),
            ("https://{client.address}.example/", "choose the host"),
            ("https://a.example{request.query}", "choose the host"),
            ("//{request.cookie.x}", "choose the host"),
            ("https://{path}", "choose the host"),
            ("https:///{path}", "choose the host"),
            ("{map.url}{request.header.x}", "choose the host"),
            ("{map.url}://{request.header.x}/", "choose the host"),
            ("/{upstream.address}", "known with the response"),
            ("/{map.x}", "there is no table [map.x]"),
            ("/{map.groups}", "table whose results have groups"),
            ("/{1}", "write one into `when.path_regex`"),
            ("/a?b={request.query_part}", "behind a path"),
            ("https://a.example{request.query_part}", "behind a path"),
        ] {
            let error = RedirectTarget::new(text, &maps(), None).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
