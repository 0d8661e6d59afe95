//! Targets of redirects with variables.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::template::{Map, Maps, Part, Values, parse, part};
use crate::variable::Variable;

/// Maximum length of a location in bytes.
const LONGEST: usize = 64 << 10;

/// Value of `Location`: text with variables.
///
/// The text alone decides about scheme and host, except for variables whose values no client invents: the host that the request
/// was accepted for, addresses and names of the connection, and tables. Values of all other variables are one component of a
/// path or query; they are percent-encoded there.
#[derive(Clone, Debug)]
pub struct RedirectTarget {
    pieces: Box<[Piece]>,
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
    /// A value that already has the form of this part of a URL.
    Verbatim(Variable),
    /// Any value, as one component.
    Component(Variable),
}

/// Whether a value may be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Optional,
    Required,
}

/// Place in a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Start,
    /// After a table, whose value can be a scheme and host, or a path.
    AfterMap,
    AfterScheme,
    /// After `//`.
    AuthorityStart,
    Authority,
    /// After a scheme without a host, as in `app:///`. Browsers skip slashes there.
    NoAuthority,
    Path,
    /// In a query; at the start of a parameter or behind it.
    Query {
        begins: bool,
    },
    Fragment,
}

impl RedirectTarget {
    /// Reads a target. Tables come from `maps`. `{host}` is `{request.host}`, `{path}` is `{request.target}`.
    ///
    /// # Errors
    ///
    /// The reason, with the correction.
    pub fn new(text: &str, maps: &Maps) -> Result<Self, String> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("the location has to be ASCII without spaces and control characters".to_owned());
        }
        let parts = parse(text, |name| match name {
            "host" => Ok(Part::Variable(Variable::Host)),
            "path" => Ok(Part::Variable(Variable::Target)),
            _ => part(name, maps),
        })?;
        let mut place = Place::Start;
        let mut pieces = Vec::new();
        for part in parts {
            let piece = match part {
                Part::Text(text) => {
                    place = place.after(&text).ok_or_else(beginning)?;
                    Piece::Text(text)
                }
                Part::Map(map) if map.has_groups() => {
                    return Err(
                        "a client could choose the host by a table whose results have groups: use one with fixed results"
                            .to_owned(),
                    );
                }
                Part::Map(map) => {
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
        Ok(Self { pieces: pieces.into(), names_a_host })
    }

    /// Whether the target has a variable; those of tables do not count.
    pub fn has(&self, variable: &Variable) -> bool {
        self.pieces.iter().any(|piece| match piece {
            Piece::Host(own) | Piece::Path(own) | Piece::Verbatim(own) | Piece::Component(own) => {
                own == variable
            }
            Piece::Text(_) | Piece::Map(..) => false,
        })
    }

    /// The location for a request. `host` is its host, in brackets if it is an IPv6 address.
    ///
    /// # Errors
    ///
    /// [`NoLocation`]: nothing is sent to the client then.
    pub fn location(&self, values: &impl Values, host: Option<&str>) -> Result<String, NoLocation> {
        let mut location = String::new();
        for piece in &self.pieces {
            let value = |variable: &Variable| {
                let mut value = Vec::new();
                values.append(variable, &mut value);
                value
            };
            // The value of a table could have ended before the host, where a client's value would replace it.
            let is_open = match piece {
                Piece::Text(_) | Piece::Host(_) | Piece::Map(..) | Piece::Verbatim(Variable::Scheme) => false,
                Piece::Path(_) => host_end(&location).is_none(),
                Piece::Verbatim(_) | Piece::Component(_) => {
                    host_end(&location).is_none_or(|end| end == location.len())
                }
            };
            if is_open {
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
                    let path = value(variable);
                    if path.first() != Some(&b'/') {
                        location.push('/');
                    }
                    encode(&path, |byte| byte.is_ascii_graphic(), &mut location);
                }
                Piece::Verbatim(variable) => {
                    encode(&value(variable), |byte| byte.is_ascii_graphic() && byte != b'#', &mut location);
                }
                Piece::Component(variable) => encode(&value(variable), is_unreserved, &mut location),
            }
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

impl Place {
    /// The place after `text`. `None` if a URL cannot begin so.
    fn after(self, text: &str) -> Option<Self> {
        let (place, rest) = match self {
            Self::Start if text.starts_with("//") => (Self::AuthorityStart, &text[2..]),
            Self::Start if text.starts_with('/') => (Self::Path, text),
            Self::Start => {
                let (scheme, rest) = text.split_once("://")?;
                if !is_scheme(scheme) {
                    return None;
                }
                (Self::AuthorityStart, rest)
            }
            Self::AfterScheme => (Self::AuthorityStart, text.strip_prefix("://")?),
            Self::AfterMap if text.starts_with("://") => (Self::AuthorityStart, &text[3..]),
            Self::AfterMap if text.starts_with("//") => (Self::AuthorityStart, &text[2..]),
            place => (place, text),
        };
        Some(rest.bytes().fold(place, |place, byte| match (place, byte) {
            (Self::AuthorityStart, b'/' | b'\\' | b'?' | b'#') | (Self::NoAuthority, _) => Self::NoAuthority,
            (Self::AuthorityStart, _) => Self::Authority,
            (Self::Fragment, _) | (_, b'#') => Self::Fragment,
            (Self::Query { .. }, byte) => Self::Query { begins: byte == b'&' },
            (_, b'?') => Self::Query { begins: true },
            (Self::Authority | Self::AfterMap, b'/' | b'\\') => Self::Path,
            (place, _) => place,
        }))
    }

    fn after_map(self) -> Self {
        match self {
            Self::Start | Self::AfterMap => Self::AfterMap,
            Self::AfterScheme | Self::AuthorityStart | Self::Authority => Self::Authority,
            Self::Query { .. } => Self::Query { begins: false },
            Self::NoAuthority | Self::Path | Self::Fragment => self,
        }
    }

    /// The treatment of a variable here, and the place after it.
    fn variable(self, variable: Variable) -> Result<(Piece, Self), String> {
        use Variable as V;
        let is_path = matches!(variable, V::Path | V::Target);
        Ok(match self {
            _ if variable == V::Upstream => {
                return Err("{upstream.address} is known with the response of an upstream only".to_owned());
            }
            Self::Start if variable == V::Scheme => (Piece::Verbatim(variable), Self::AfterScheme),
            Self::Start | Self::AfterMap | Self::Authority if is_path => (Piece::Path(variable), Self::Path),
            Self::Path if is_path => (Piece::Verbatim(variable), self),
            Self::AuthorityStart | Self::Authority
                if matches!(variable, V::Host | V::TlsServerName | V::ServerAddress | V::ServerPort) =>
            {
                (Piece::Host(variable), Self::Authority)
            }
            Self::Query { begins: true } if variable == V::Query => {
                (Piece::Verbatim(variable), Self::Query { begins: false })
            }
            Self::Start | Self::AfterScheme => return Err(beginning()),
            Self::AfterMap | Self::AuthorityStart | Self::Authority | Self::NoAuthority => {
                return Err(
                    "a client could choose the host by a variable in this place: write a slash before it, or \
                     a [map.NAME] with the permitted hosts"
                        .to_owned(),
                );
            }
            Self::Query { .. } => (Piece::Component(variable), Self::Query { begins: false }),
            Self::Path | Self::Fragment => (Piece::Component(variable), self),
        })
    }
}

fn beginning() -> String {
    "it begins with a slash, a scheme as \"https://\", {path}, {request.scheme}:// or a {map.NAME}".to_owned()
}

/// Appends a name, an address or a port; an IPv6 address in brackets.
fn append_host(value: &[u8], location: &mut String) -> Result<(), NoLocation> {
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
                default: (*value).to_owned(),
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
        let target = RedirectTarget::new(text, &maps()).expect(text);
        target.location(&Request(header), Some("[::2]"))
    }

    #[test]
    fn variables_are_parts_of_a_url() {
        for (text, expected) in [
            ("https://{host}/new{path}", "https://[::2]/new/a/b?c=d&e"),
            ("https://a.example{path}", "https://a.example/a/b?c=d&e"),
            ("{request.scheme}://{request.host}:444/", "https://[::2]:444/"),
            ("https://{server.address}/", "https://[::1]/"),
            ("/login?next={path}&x", "/login?next=%2Fa%2Fb%3Fc%3Dd%26e&x"),
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
        let target = RedirectTarget::new("https://{host}/", &maps()).expect("a target");
        assert_eq!(target.location(&Request(""), None), Err(NoLocation::Host));
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
        ] {
            let error = RedirectTarget::new(text, &maps()).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
