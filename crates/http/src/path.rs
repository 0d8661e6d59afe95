//! The path of a request as routes see it, so that no spelling of a path dodges a route.
//!
//! Routes compare the path with its percent-encoding undone, dot segments resolved, repeated slashes merged, and without
//! the parameters of its segments (`;` and what follows it, RFC 3986 section 3.3), which many servers leave out too.
//! Upstreams get what the client sent, with one exception: dot segments, also encoded ones, are resolved in what is
//! forwarded too (RFC 3986 section 6.2.2.3, as every browser does before it sends), since an upstream that does not
//! resolve them would see the path of another route. Paths on which sensible servers disagree are refused:
//!
//! - `..` above the root, and `..` in a path that also has empty segments or encoded separators;
//! - a dot segment hidden by an encoded slash or by parameters (`..;x`);
//! - a backslash, encoded or not, which servers on Windows take for a slash;
//! - an unfinished or wrong percent-encoding, an encoded control character.
//!
//! An encoded slash separates segments for routes, because many servers take it so; it is forwarded as it came. What is
//! encoded twice is decoded once, as RFC 3986 section 2.4 has it.

use std::borrow::Cow;

/// A path that is refused with 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmbiguousPath;

/// A request's path, for routes and for the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestPath<'a> {
    /// The path that routes are compared with. May hold any bytes.
    pub decoded: Cow<'a, [u8]>,
    /// The path that is forwarded, percent-encoded.
    pub forwarded: Cow<'a, str>,
}

impl<'a> RequestPath<'a> {
    /// Reads the path of a request target in origin form. Costs one pass over the bytes as a rule.
    pub fn read(raw: &'a str) -> Result<Self, AmbiguousPath> {
        if is_plain(raw.as_bytes()) {
            return Ok(Self { decoded: Cow::Borrowed(raw.as_bytes()), forwarded: Cow::Borrowed(raw) });
        }
        Segments::read(raw)?.finish(raw)
    }

    /// The part of the path after `prefix`, a path that this one was found to be at or below; begins with a slash.
    /// Fails where the client spelled the prefix in another way, since its end is then ambiguous.
    pub fn below(&self, prefix: &str) -> Result<Cow<'_, str>, AmbiguousPath> {
        let rest = self.forwarded.strip_prefix(prefix.trim_end_matches('/')).ok_or(AmbiguousPath)?;
        match rest.as_bytes().first() {
            Some(b'/') => Ok(Cow::Borrowed(rest)),
            None => Ok(Cow::Borrowed("/")),
            Some(_) => Err(AmbiguousPath),
        }
    }
}

/// A [`RequestPath`] that borrows nothing from its request: only the forms that differ from the path as written are kept,
/// so a plain path costs no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NormalizedPath {
    decoded: Option<Vec<u8>>,
    forwarded: Option<String>,
}

impl NormalizedPath {
    /// Reads the path of a request target in origin form, as [`RequestPath::read`] does.
    pub fn read(raw: &str) -> Result<Self, AmbiguousPath> {
        let RequestPath { decoded, forwarded } = RequestPath::read(raw)?;
        Ok(Self { decoded: changed(decoded), forwarded: changed(forwarded) })
    }

    /// A path that no route takes.
    pub fn empty() -> Self {
        Self { decoded: Some(Vec::new()), forwarded: Some(String::new()) }
    }

    /// The path for routes and upstreams; `raw` is the text that [`read`](Self::read) got.
    pub fn of<'a>(&'a self, raw: &'a str) -> RequestPath<'a> {
        RequestPath {
            decoded: Cow::Borrowed(self.decoded.as_deref().unwrap_or(raw.as_bytes())),
            forwarded: Cow::Borrowed(self.forwarded.as_deref().unwrap_or(raw)),
        }
    }
}

/// The owned form of a text; a borrowed one is the whole path as written.
fn changed<T: ToOwned + ?Sized>(text: Cow<'_, T>) -> Option<T::Owned> {
    match text {
        Cow::Borrowed(_) => None,
        Cow::Owned(text) => Some(text),
    }
}

/// Whether a path means the same to every server, without normalisation.
fn is_plain(raw: &[u8]) -> bool {
    let mut after_slash = false;
    for &byte in raw {
        match byte {
            b'%' | b'\\' | b';' => return false,
            b'/' | b'.' if after_slash => return false,
            _ => after_slash = byte == b'/',
        }
    }
    raw.first() == Some(&b'/')
}

#[derive(Default)]
struct Segments<'a> {
    raw: Vec<&'a str>,
    /// Length of `decoded` before each of `raw`.
    starts: Vec<usize>,
    decoded: Vec<u8>,
    dots: Dots,
    /// The last segment has no name: the path is that of a folder.
    folder: bool,
    /// There are empty segments or encoded separators, which make servers disagree about what `..` leaves.
    uneven: bool,
}

/// The dot segments met so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Dots {
    #[default]
    None,
    /// `.` and no other.
    Current,
    /// `..`
    Parent,
}

impl<'a> Segments<'a> {
    fn read(raw: &'a str) -> Result<Self, AmbiguousPath> {
        let mut segments = Self::default();
        let mut rest = raw.strip_prefix('/').ok_or(AmbiguousPath)?;
        while let Some((segment, after)) = rest.split_once('/') {
            segments.push(segment)?;
            rest = after;
        }
        segments.push_last(rest)?;
        Ok(segments)
    }

    fn push(&mut self, raw: &'a str) -> Result<(), AmbiguousPath> {
        let decoded = decode(raw)?;
        match &*decoded {
            b".." => self.climb()?,
            b"." => self.dots = self.dots.max(Dots::Current),
            segment => {
                self.uneven |= segment.is_empty();
                self.keep(raw, segment)?;
            }
        }
        Ok(())
    }

    /// A dot segment at the end stands for the folder: `/a/.` is `/a/`.
    fn push_last(&mut self, raw: &'a str) -> Result<(), AmbiguousPath> {
        match &*decode(raw)? {
            b"" => self.keep("", b""),
            b"." | b".." => {
                self.push(raw)?;
                self.keep("", b"")
            }
            _ => self.push(raw),
        }
    }

    fn climb(&mut self) -> Result<(), AmbiguousPath> {
        self.dots = Dots::Parent;
        self.raw.pop();
        let start = self.starts.pop().ok_or(AmbiguousPath)?;
        self.decoded.truncate(start);
        Ok(())
    }

    fn keep(&mut self, raw: &'a str, segment: &[u8]) -> Result<(), AmbiguousPath> {
        self.raw.push(raw);
        self.starts.push(self.decoded.len());
        self.uneven |= segment.contains(&b'/');
        for part in segment.split(|byte| *byte == b'/') {
            let name = without_parameters(part);
            // Encoded separators and parameters must not hide what a decoding server would resolve.
            if matches!(name, b"." | b"..") {
                return Err(AmbiguousPath);
            }
            self.folder = name.is_empty();
            self.uneven |= name.len() < part.len() && name.is_empty();
            if !name.is_empty() {
                self.decoded.push(b'/');
                self.decoded.extend_from_slice(name);
            }
        }
        Ok(())
    }

    fn finish(mut self, raw: &'a str) -> Result<RequestPath<'a>, AmbiguousPath> {
        if self.dots == Dots::Parent && self.uneven {
            return Err(AmbiguousPath);
        }
        if self.folder || self.decoded.is_empty() {
            self.decoded.push(b'/');
        }
        let forwarded = if self.dots > Dots::None { Cow::Owned(self.join()) } else { Cow::Borrowed(raw) };
        Ok(RequestPath { decoded: Cow::Owned(self.decoded), forwarded })
    }

    fn join(&self) -> String {
        self.raw.iter().flat_map(|segment| ["/", segment]).collect()
    }
}

fn without_parameters(segment: &[u8]) -> &[u8] {
    segment.split(|byte| *byte == b';').next().unwrap_or_default()
}

/// Undoes the percent-encoding of one segment.
fn decode(raw: &str) -> Result<Cow<'_, [u8]>, AmbiguousPath> {
    let bytes = raw.as_bytes();
    if bytes.contains(&b'\\') {
        return Err(AmbiguousPath);
    }
    if !bytes.contains(&b'%') {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter();
    while let Some(&byte) = rest.next() {
        decoded.push(if byte == b'%' { escaped(rest.next(), rest.next())? } else { byte });
    }
    Ok(Cow::Owned(decoded))
}

fn escaped(high: Option<&u8>, low: Option<&u8>) -> Result<u8, AmbiguousPath> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16)).ok_or(AmbiguousPath);
    let value = (digit(high)? * 16 + digit(low)?) as u8;
    if value.is_ascii_control() || value == b'\\' { Err(AmbiguousPath) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(raw: &str) -> (String, String) {
        let path = RequestPath::read(raw).expect(raw);
        (String::from_utf8_lossy(&path.decoded).into_owned(), path.forwarded.into_owned())
    }

    #[test]
    fn plain_paths_stay_as_they_are_without_a_copy() {
        for raw in ["/", "/a", "/a/b.c/", "/a/b..c", "/~x,y=1"] {
            let path = RequestPath::read(raw).expect(raw);
            assert!(matches!(path.decoded, Cow::Borrowed(_)), "{raw}");
            assert_eq!(read(raw), (raw.to_owned(), raw.to_owned()));
        }
    }

    #[test]
    fn a_normalized_path_is_the_same_without_its_request() {
        for raw in ["/", "/a/b", "/%61dmin/x", "/a/../b", "/a;x/b", "//a"] {
            let normalized = NormalizedPath::read(raw).expect(raw);
            assert_eq!(normalized.of(raw), RequestPath::read(raw).expect(raw), "{raw}");
        }
        assert_eq!(NormalizedPath::read("/a/b"), Ok(NormalizedPath::default()));
        assert_eq!(NormalizedPath::read("/a\\b"), Err(AmbiguousPath));
    }

    #[test]
    fn every_spelling_of_a_path_looks_alike_to_routes() {
        for raw in [
            "/admin/x",
            "//admin//x",
            "/%61dmin/x",
            "/a/../admin/x",
            "/a/%2e%2E/admin/x",
            "/./admin/./x",
            "/admin%2Fx",
            "/a/.%2e/admin/x",
            "/admin;a=1/x;b=2",
            "/admin%3bx/x",
            "/;x/admin/;y/x",
        ] {
            assert_eq!(read(raw).0, "/admin/x", "{raw}");
        }
    }

    #[test]
    fn only_dot_segments_are_resolved_in_what_is_forwarded() {
        assert_eq!(read("/a/../b%20c/./d").1, "/b%20c/d");
        assert_eq!(read("/a/%2e%2e/b").1, "/b");
        assert_eq!(read("/a%2Fb//c").1, "/a%2Fb//c");
        assert_eq!(read("/.well-known/x").1, "/.well-known/x");
        assert_eq!(read("/a;x=1/./b;y").1, "/a;x=1/b;y");
    }

    #[test]
    fn the_slash_at_the_end_is_kept() {
        assert_eq!(read("/a/.."), ("/".to_owned(), "/".to_owned()));
        assert_eq!(read("/a/b/.."), ("/a/".to_owned(), "/a/".to_owned()));
        assert_eq!(read("/a/."), ("/a/".to_owned(), "/a/".to_owned()));
        assert_eq!(read("/%61/").0, "/a/");
        assert_eq!(read("//").0, "/");
        assert_eq!(read("/a%2f").0, "/a/");
        assert_eq!(read("/a/;x"), ("/a/".to_owned(), "/a/;x".to_owned()));
        assert_eq!(read("/a;x").0, "/a");
        assert_eq!(read("/a/;x/c;y/").0, "/a/c/");
    }

    #[test]
    fn paths_on_which_servers_disagree_are_refused() {
        for raw in [
            "",
            "a",
            "*",
            "/..",
            "/a/../..",
            "/%2e%2e/a",
            "/a//../b",
            "/a%2f../b",
            "/a/%2f/../b",
            "/a/..%2fb",
            "/a/..%5cb",
            "/a/..;/b",
            "/a/.;x/b",
            "/a/%2e%2e%3bx/b",
            "/a/;x/../b",
            "/a\\b",
            "/a%5cb",
            "/a%5Cb",
            "/a%",
            "/a%2",
            "/a%zz",
            "/a%00b",
            "/a%0d%0ab",
        ] {
            assert_eq!(RequestPath::read(raw), Err(AmbiguousPath), "{raw:?}");
        }
    }

    #[test]
    fn what_is_below_a_route_begins_with_a_slash() {
        let below =
            |raw, prefix| RequestPath::read(raw).and_then(|path| path.below(prefix).map(Cow::into_owned));
        assert_eq!(below("/api/users", "/api").as_deref(), Ok("/users"));
        assert_eq!(below("/api/users", "/api/").as_deref(), Ok("/users"));
        assert_eq!(below("/api", "/api").as_deref(), Ok("/"));
        assert_eq!(below("/x", "/").as_deref(), Ok("/x"));
        assert_eq!(below("/api//x", "/api").as_deref(), Ok("//x"));
        assert_eq!(below("/%61pi/x", "/api"), Err(AmbiguousPath));
        assert_eq!(below("/api%2fx", "/api"), Err(AmbiguousPath));
    }
}
