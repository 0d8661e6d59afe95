//! Mapping of origins to paths, and its application to URLs.

use std::ops::Range;
use std::str::FromStr;

use thiserror::Error;

use crate::origin::{Origin, is_host_byte, split_port};
use crate::text::{Syntax, Unit};

/// Longest authority that is compared: a host name has at most 253 bytes, a port 5.
const AUTHORITY: usize = 260;

/// A path that an `Origin` is served below, such as `/_s`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix(String);

/// Error for a text that is not a [`Prefix`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "it is a path as \"/_s\": a slash before each name of letters, digits, \"-\", \"_\", \".\" and \"~\", and none at its end"
)]
pub struct PrefixError;

impl Prefix {
    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path below this one for [`MappedOrigin::unchanged`].
    #[must_use]
    pub fn unchanged(&self) -> Self {
        Self(format!("{}/~unchanged", self.0))
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let is_name = |name: &str| {
            // No delimiter of HTML, CSS or JSON: an inserted prefix must not end the text around it.
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
            !matches!(name, "" | "." | "..") && name.bytes().all(is_plain)
        };
        let names = text.strip_prefix('/').ok_or(PrefixError)?;
        if names.split('/').all(is_name) && text.len() <= 64 {
            Ok(Self(text.to_owned()))
        } else {
            Err(PrefixError)
        }
    }
}

/// An `Origin` with the path that it is served below.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MappedOrigin {
    /// The `Origin`.
    pub origin: Origin,
    /// The path.
    pub prefix: Prefix,
    /// Path below [`prefix`](Self::prefix) at which style sheets with an `integrity` digest are served, byte by byte. `None`:
    /// they stay at the `Origin`.
    pub unchanged: Option<Prefix>,
}

/// All origins that one host serves below paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OriginMap {
    /// Each origin once; no prefix is a path below another.
    pub origins: Vec<MappedOrigin>,
}

/// Base that relative URLs of a document resolve against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The host that serves the document.
    Own,
    /// A `MappedOrigin`, by its index in [`OriginMap::origins`].
    Mapped(usize),
    /// Another origin. URLs relative to it cannot be expressed as paths of the host, so the document stays unchanged.
    Foreign,
}

/// Replacement of a range of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit<'m> {
    pub(crate) range: Range<usize>,
    pub(crate) prefix: &'m str,
    /// A slash follows the [`Prefix`], because the URL has no path.
    pub(crate) slash: bool,
}

impl Edit<'_> {
    /// Moves the range by `offset`.
    pub(crate) fn at(self, offset: usize) -> Self {
        Self { range: self.range.start + offset..self.range.end + offset, ..self }
    }

    pub(crate) fn write(&self, output: &mut Vec<u8>) {
        output.extend_from_slice(self.prefix.as_bytes());
        if self.slash {
            output.push(b'/');
        }
    }
}

/// Appends `text` with `edits`, which must be sorted.
pub(crate) fn apply(text: &[u8], edits: &[Edit<'_>], output: &mut Vec<u8>) {
    let mut from = 0;
    for edit in edits {
        output.extend_from_slice(&text[from..edit.range.start]);
        edit.write(output);
        from = edit.range.end;
    }
    output.extend_from_slice(&text[from..]);
}

/// Start of a URL.
enum Begins {
    /// An authority, with `http:`, `https:` or no scheme before it.
    Authority {
        is_secure: bool,
    },
    /// An absolute path.
    Root,
    Other,
}

impl OriginMap {
    /// Maximum number of origins of a host: each one costs a comparison for every URL.
    pub const MOST_ORIGINS: usize = 32;

    /// Returns the [`Edit`] of a URL. `None` if it names no mapped origin or is not understood.
    ///
    /// A URL with a `..` segment (`/../x`) stays unchanged: below a prefix it could leave the [`MappedOrigin`] and
    /// reach paths of the host.
    pub(crate) fn edit(&self, base: Base, url: &[u8], syntax: Syntax) -> Option<Edit<'_>> {
        self.edit_below(base, url, syntax, |place| Some(&place.prefix))
    }

    /// Like [`edit`](Self::edit), for a style sheet with an `integrity` digest.
    pub(crate) fn edit_unchanged(&self, base: Base, url: &[u8], syntax: Syntax) -> Option<Edit<'_>> {
        self.edit_below(base, url, syntax, |place| place.unchanged.as_ref())
    }

    fn edit_below<'m>(
        &'m self,
        base: Base,
        url: &[u8],
        syntax: Syntax,
        prefix_of: impl Fn(&'m MappedOrigin) -> Option<&'m Prefix>,
    ) -> Option<Edit<'m>> {
        if base == Base::Foreign {
            return None;
        }
        let mut units = syntax.units(url).peekable();
        // URL parsers remove these characters, so the edit begins after them.
        while units.next_if(is_skipped).is_some() {}
        let first = units.peek()?.start;
        match begins(&mut units) {
            Begins::Root => {
                let Base::Mapped(index) = base else { return None };
                let prefix = prefix_of(self.origins.get(index)?)?.as_str();
                stays_below(units).then_some(Edit { range: first..first, prefix, slash: false })
            }
            Begins::Authority { is_secure } => {
                let mut authority = String::new();
                // A backslash ends an authority for browsers. As it is no byte of a
                // host, the URL stays unchanged.
                let ends = |unit: &Unit| matches!(unit.byte, Some(b'/' | b'?' | b'#'));
                while let Some(unit) = units.next_if(|unit| !ends(unit)) {
                    // Any other character, such as the `@` of user information or a `%`, means that the host cannot be
                    // compared.
                    let byte = unit.byte.filter(|byte| is_host_byte(*byte) || b":[]".contains(byte))?;
                    if authority.len() == AUTHORITY {
                        return None;
                    }
                    authority.push(char::from(byte.to_ascii_lowercase()));
                }
                let place = self.find(is_secure, &authority)?;
                let next = units.peek();
                let end = next.map_or(url.len(), |unit| unit.start);
                let slash = next.is_none_or(|unit| unit.byte != Some(b'/'));
                let prefix = prefix_of(place)?.as_str();
                stays_below(units).then_some(Edit { range: first..end, prefix, slash })
            }
            Begins::Other => None,
        }
    }

    /// Returns the [`Base`] after a `base` element with this URL, in a document of base `base` at the host `own`.
    pub(crate) fn base(&self, base: Base, url: &[u8], own: &str, syntax: Syntax) -> Base {
        let mut units = syntax.units(url).peekable();
        while units.next_if(is_skipped).is_some() {}
        let Begins::Authority { is_secure } = begins(&mut units) else {
            // `data:` and similar schemes: relative URLs resolve to nothing.
            let has_scheme = {
                let mut units = syntax.units(url);
                let stop = units.find(|unit| {
                    !unit.byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"+-. ".contains(&byte))
                });
                stop.is_some_and(|unit| unit.byte == Some(b':') || unit.byte.is_none())
            };
            return if has_scheme { Base::Foreign } else { base };
        };
        let mut authority = String::new();
        for unit in units {
            match unit.byte {
                Some(b'/' | b'?' | b'#') => break,
                Some(byte) if is_host_byte(byte) || b":[]".contains(&byte) => {
                    authority.push(char::from(byte.to_ascii_lowercase()));
                }
                _ => return Base::Foreign,
            }
            if authority.len() > AUTHORITY {
                return Base::Foreign;
            }
        }
        let named = split_port(&authority, is_secure);
        let index = named.and_then(|(host, port)| {
            self.origins.iter().position(|place| place.origin.is(is_secure, host, port))
        });
        match index {
            Some(index) => Base::Mapped(index),
            // Documents are served over TLS, so the same name with `http` is another origin.
            None if is_secure && !own.is_empty() && named == split_port(own, true) => Base::Own,
            None => Base::Foreign,
        }
    }

    /// The [`MappedOrigin`] with this scheme and authority.
    pub(crate) fn find(&self, is_secure: bool, authority: &str) -> Option<&MappedOrigin> {
        let (host, port) = split_port(authority, is_secure)?;
        self.origins.iter().find(|place| place.origin.is(is_secure, host, port))
    }

    /// Returns whether no segment of `path` leads to a parent, in any spelling.
    pub(crate) fn stays_below(path: &str) -> bool {
        stays_below(Syntax::Plain.units(path.as_bytes()))
    }

    /// Rewrites a URL of a header. `None` if it names no mapped origin and, relative to `base`, no path of one.
    pub fn url(&self, base: Base, url: &str) -> Option<String> {
        let edit = self.edit(base, url.as_bytes(), Syntax::Plain)?;
        let mut output = Vec::with_capacity(url.len());
        apply(url.as_bytes(), &[edit], &mut output);
        String::from_utf8(output).ok()
    }

    /// The `Origin` that is served at `path`, with the path at that origin.
    pub fn origin_of<'p>(&self, path: &'p str) -> Option<(&Origin, &'p str)> {
        self.origins.iter().find_map(|place| {
            let below = |prefix: &Prefix| {
                let rest = path.strip_prefix(prefix.as_str())?;
                // A path such as `/_static` is not below `/_s`.
                (rest.is_empty() || rest.starts_with(['/', '?'])).then_some((&place.origin, rest))
            };
            // The path of unchanged style sheets first, because it is below the other prefix.
            place.unchanged.as_ref().and_then(below).or_else(|| below(&place.prefix))
        })
    }
}

/// Returns whether URL parsers skip the character before a URL. NUL is not skipped: HTML and CSS replace it by U+FFFD,
/// which is part of the URL.
fn is_skipped(unit: &Unit) -> bool {
    unit.byte.is_some_and(|byte| (1..=b' ').contains(&byte))
}

fn begins(units: &mut std::iter::Peekable<impl Iterator<Item = Unit>>) -> Begins {
    let mut is = |wanted: u8| {
        units.next_if(|unit| unit.byte.is_some_and(|byte| byte.eq_ignore_ascii_case(&wanted))).is_some()
    };
    if is(b'/') {
        if is(b'/') {
            return Begins::Authority { is_secure: true };
        }
        // The URL Standard treats a backslash as a slash here, so an authority would follow; such URLs stay unchanged.
        return if is(b'\\') { Begins::Other } else { Begins::Root };
    }
    if !b"http".iter().all(|letter| is(*letter)) {
        return Begins::Other;
    }
    let is_secure = is(b's');
    if b"://".iter().all(|byte| is(*byte)) { Begins::Authority { is_secure } } else { Begins::Other }
}

/// Returns whether no segment of a path leads to a parent, in any spelling. The leading slash may be missing. Query and
/// fragment are not checked.
fn stays_below(units: impl Iterator<Item = Unit>) -> bool {
    let mut segment = Segment::default();
    for unit in units {
        match unit.byte {
            Some(b'/') => {
                if segment.climbs() {
                    return false;
                }
                segment = Segment::default();
            }
            Some(b'?' | b'#') => break,
            // URL parsers remove tabs and line ends and treat a backslash as a slash,
            // so these could hide a `..`.
            Some(b'\\' | 0..=0x1f) | None => return false,
            Some(byte) => segment.push(byte),
        }
    }
    !segment.climbs()
}

/// The first bytes of a path segment, enough to recognise `..` in any spelling.
#[derive(Default)]
struct Segment {
    bytes: [u8; 6],
    length: usize,
}

impl Segment {
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte.to_ascii_lowercase();
        }
        self.length += 1;
    }

    fn climbs(&self) -> bool {
        let segment = self.bytes.get(..self.length);
        segment.is_some_and(|segment| {
            // URL parsers remove white space at the end of a URL.
            [&b".."[..], b".%2e", b"%2e.", b"%2e%2e"].contains(&segment.trim_ascii_end())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn map() -> OriginMap {
        let place = |origin: &str, prefix: &str| MappedOrigin {
            origin: origin.parse().expect("an origin"),
            prefix: prefix.parse().expect("a prefix"),
            unchanged: None,
        };
        OriginMap {
            origins: vec![place("https://static.example", "/_s"), place("http://[::1]:8080", "/_i/6")],
        }
    }

    fn edited(base: Base, url: &str) -> Option<String> {
        map().url(base, url)
    }

    #[test]
    fn an_unchanged_resource_has_its_own_path_and_its_origin() {
        let mut map = map();
        let url = b"https://static.example/a.css";
        assert_eq!(map.edit_unchanged(Base::Own, url, Syntax::Plain), None);
        let place = &mut map.origins[0];
        place.unchanged = Some(place.prefix.unchanged());
        let prefix = |base, url: &[u8]| map.edit_unchanged(base, url, Syntax::Plain).map(|edit| edit.prefix);
        assert_eq!(prefix(Base::Own, url), Some("/_s/~unchanged"));
        assert_eq!(prefix(Base::Mapped(0), b"/a.css"), Some("/_s/~unchanged"));
        assert_eq!(prefix(Base::Own, b"/a.css"), None);
        for path in ["/_s/~unchanged/a.css", "/_s/a.css"] {
            let (origin, rest) = map.origin_of(path).expect("an origin");
            assert_eq!((origin.to_string().as_str(), rest), ("https://static.example", "/a.css"));
        }
    }

    #[test]
    fn what_names_an_origin_is_put_below_its_path() {
        for (url, becomes) in [
            ("https://static.example/a.css?b#c", "/_s/a.css?b#c"),
            ("  HTTPS://Static.Example:443/a", "  /_s/a"),
            ("//static.example/a", "/_s/a"),
            ("https://static.example", "/_s/"),
            ("https://static.example?q=/../x", "/_s/?q=/../x"),
            ("https://static.example#x", "/_s/#x"),
            ("http://[::1]:8080/x", "/_i/6/x"),
            ("https://static.example/..a/.b./...", "/_s/..a/.b./..."),
            ("https://static.example//other.example/", "/_s//other.example/"),
        ] {
            assert_eq!(edited(Base::Own, url).as_deref(), Some(becomes), "{url}");
            assert_eq!(edited(Base::Mapped(1), url).as_deref(), Some(becomes), "{url}");
            assert_eq!(edited(Base::Foreign, url), None, "{url}");
        }
    }

    #[test]
    fn what_names_no_origin_or_is_not_understood_stays() {
        for url in [
            "",
            "a.css",
            "../a.css",
            "#https://static.example/",
            "https:/static.example/a",
            "https:static.example/a",
            "https:\\\\static.example/a",
            "https://static.example.evil/a",
            "https://static.example@evil/a",
            "https://user@static.example/a",
            "https://static.example:8443/a",
            "https://static.example:x/a",
            "http://static.example/a",
            "https://static%2eexample/a",
            "https://st\tatic.example/a",
            "wss://static.example/a",
            "//static.example.evil",
            "https://static.example\\a",
            "/\\static.example/a",
            "\0https://static.example/a",
        ] {
            assert_eq!(edited(Base::Own, url), None, "{url}");
            if !url.starts_with('/') {
                assert_eq!(edited(Base::Mapped(0), url), None, "{url}");
            }
        }
    }

    #[test]
    fn no_path_climbs_out_of_its_origin() {
        for url in [
            "https://static.example/../logout",
            "https://static.example/a/../../logout",
            "https://static.example/a/%2E%2e/x",
            "https://static.example/.%2e",
            "https://static.example/a\\..\\x",
            "https://static.example/.\n./x",
            "/../logout",
        ] {
            assert_eq!(edited(Base::Mapped(0), url), None, "{url}");
        }
    }

    #[test]
    fn paths_from_the_root_are_those_of_the_base() {
        assert_eq!(edited(Base::Mapped(0), "/img/a.png").as_deref(), Some("/_s/img/a.png"));
        assert_eq!(edited(Base::Mapped(0), "/").as_deref(), Some("/_s/"));
        assert_eq!(edited(Base::Mapped(1), "/_i/6/x").as_deref(), Some("/_i/6/_i/6/x"));
        for base in [Base::Own, Base::Foreign] {
            assert_eq!(edited(base, "/img/a.png"), None);
        }
    }

    #[test]
    fn a_base_is_an_origin_of_the_map_or_the_host_or_foreign() {
        let base = |from, url: &str| map().base(from, url.as_bytes(), "www.example:8443", Syntax::Plain);
        assert_eq!(base(Base::Own, "https://static.example/x/"), Base::Mapped(0));
        assert_eq!(base(Base::Mapped(0), "//WWW.example:8443/"), Base::Own);
        assert_eq!(base(Base::Own, "https://other.example/"), Base::Foreign);
        assert_eq!(base(Base::Own, "data:,x"), Base::Foreign);
        for relative in ["/x/", "x/", "", "?a:b", "./a:b"] {
            assert_eq!(base(Base::Mapped(0), relative), Base::Mapped(0), "{relative}");
        }
    }

    #[test]
    fn prefixes_are_read_or_refused() {
        for right in ["/_s", "/a/b.c", "/~x"] {
            assert_eq!(right.parse::<Prefix>().map(|prefix| prefix.0).as_deref(), Ok(right));
        }
        for wrong in ["", "/", "_s", "/a/", "//a", "/a//b", "/..", "/a b", "/\"", "/a%20", "/ü"] {
            assert_eq!(wrong.parse::<Prefix>(), Err(PrefixError), "{wrong}");
        }
    }
}
