//! Normalised path of a request, so that no spelling of a path evades a route.
//!
//! Routes compare the path after percent-decoding, resolution of dot segments, and merging of repeated slashes, and without
//! the parameters of its segments (`;` and the text after it, RFC 3986 section 3.3), which many servers drop too. Upstreams
//! receive the path as the client sent it, with one exception: dot segments, also encoded ones, are resolved (RFC 3986
//! section 6.2.2.3, as browsers do), since an upstream that does not resolve them would see the path of another route. Paths
//! that sensible servers interpret differently are refused:
//!
//! - `..` above the root, and `..` in a path that also has empty segments or encoded separators;
//! - a dot segment hidden by an encoded slash or by parameters (`..;x`);
//! - a backslash, encoded or not, which servers on Windows treat as a slash;
//! - an incomplete or invalid percent-encoding, an encoded control character.
//!
//! An encoded slash separates segments for routes, because many servers treat it as a separator; it is forwarded unchanged.
//! Text that is encoded twice is decoded once (RFC 3986 section 2.4).

use std::borrow::Cow;

/// Error: the path is ambiguous. The response is `400`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmbiguousPath;

/// Path of a request, for routes and for the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestPath<'a> {
    /// Path for comparison with routes. May contain any bytes.
    pub decoded: Cow<'a, [u8]>,
    /// Path to forward, percent-encoded.
    pub forwarded: Cow<'a, str>,
}

impl<'a> RequestPath<'a> {
    /// Normalises the path of a target in origin form. Usually costs one pass over the bytes and no allocation.
    pub fn read(raw: &'a str) -> Result<Self, AmbiguousPath> {
        if is_plain(raw.as_bytes()) {
            return Ok(Self { decoded: Cow::Borrowed(raw.as_bytes()), forwarded: Cow::Borrowed(raw) });
        }
        Segments::read(raw)?.finish(raw)
    }

    /// Part of the forwarded path behind `prefix`, which this path is known to equal or be below; begins with [one
    /// slash](one_leading_slash).
    ///
    /// Fails if the client spelled the prefix differently, since its end in the forwarded path is ambiguous then.
    pub fn below(&self, prefix: &str) -> Result<Cow<'_, str>, AmbiguousPath> {
        let rest = self.forwarded.strip_prefix(prefix.trim_end_matches('/')).ok_or(AmbiguousPath)?;
        match rest.as_bytes().first() {
            Some(b'/') => Ok(Cow::Borrowed(one_leading_slash(rest))),
            None => Ok(Cow::Borrowed("/")),
            Some(_) => Err(AmbiguousPath),
        }
    }
}

/// `path` with one slash in place of several at its beginning.
///
/// Two slashes, or a slash and a backslash, would begin the authority of a URL (RFC 3986 section 4.2). A server that redirects to
/// a path, for example to add a final slash, would then redirect to a host of the client's choice. Backslashes in paths are
/// [refused](AmbiguousPath).
pub fn one_leading_slash(path: &str) -> &str {
    let slashes = path.bytes().take_while(|byte| *byte == b'/').count();
    &path[slashes.saturating_sub(1)..]
}

/// Owned form of [`RequestPath`]. Stores only forms that differ from the path as written, so a plain path costs no
/// allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NormalizedPath {
    decoded: Option<Vec<u8>>,
    forwarded: Option<String>,
}

impl NormalizedPath {
    /// Normalises the path of a target in origin form, like [`RequestPath::read`].
    pub fn read(raw: &str) -> Result<Self, AmbiguousPath> {
        let RequestPath { decoded, forwarded } = RequestPath::read(raw)?;
        Ok(Self { decoded: changed(decoded), forwarded: changed(forwarded) })
    }

    /// Path that matches no route.
    pub fn empty() -> Self {
        Self { decoded: Some(Vec::new()), forwarded: Some(String::new()) }
    }

    /// Returns the path. `raw` is the text that was passed to [`Self::read`].
    pub fn of<'a>(&'a self, raw: &'a str) -> RequestPath<'a> {
        RequestPath {
            decoded: Cow::Borrowed(self.decoded.as_deref().unwrap_or(raw.as_bytes())),
            forwarded: Cow::Borrowed(self.forwarded.as_deref().unwrap_or(raw)),
        }
    }
}

/// Owned form of a changed text; `None` for a borrowed one, which is the path as written.
fn changed<T: ToOwned + ?Sized>(text: Cow<'_, T>) -> Option<T::Owned> {
    match text {
        Cow::Borrowed(_) => None,
        Cow::Owned(text) => Some(text),
    }
}

/// Whether a path has the same meaning for every server without normalisation.
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
    /// Length of `decoded` before each segment in `raw`.
    starts: Vec<usize>,
    decoded: Vec<u8>,
    dots: Dots,
    /// Whether the last segment is empty, so that the path is that of a folder.
    folder: bool,
    /// Whether there are empty segments or encoded separators, for which servers disagree about the result of `..`.
    uneven: bool,
}

/// Dot segments so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Dots {
    #[default]
    None,
    /// `.` only.
    Current,
    /// `..`
    Parent,
}

impl<'a> Segments<'a> {
    fn read(raw: &'a str) -> Result<Self, AmbiguousPath> {
        let mut segments = Self::default();
        let mut rest = raw.strip_prefix('/').ok_or(AmbiguousPath)?;
        // Split before the segments are decoded: an encoded slash is forwarded as a part of its segment.
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

    /// Adds the last segment. A dot segment at the end stands for the folder: `/a/.` is `/a/`.
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
            // Refused: a server that decodes separators or drops parameters would resolve this dot segment.
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

/// Percent-decodes a segment.
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
    // Some servers end a path at a control character such as NUL, and then see another path.
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
        assert_eq!(below("/api//x//y", "/api").as_deref(), Ok("/x//y"));
        assert_eq!(below("/api///", "/api").as_deref(), Ok("/"));
        assert_eq!(below("//x", "/").as_deref(), Ok("/x"));
        assert_eq!(below("/%61pi/x", "/api"), Err(AmbiguousPath));
        assert_eq!(below("/api%2fx", "/api"), Err(AmbiguousPath));
    }
}
