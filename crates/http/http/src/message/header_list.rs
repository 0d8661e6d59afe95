//! [`HeaderList`].

use std::mem;
use std::ops::Index;
use std::{slice, vec};

use http::{HeaderMap, HeaderName, HeaderValue};

/// Header lines in the sequence of their arrival. Names may repeat.
///
/// A search compares every name, so an operation costs time proportional to the number of lines. Limits of heads bound this number:
/// 100 by default, at most 1,000. Code that searches names of a peer makes one pass with [`Self::retain`] instead. A search for a
/// name that no line has usually costs one comparison: the `marks` exclude it.
#[derive(Clone, Debug, Default)]
pub struct HeaderList {
    lines: Vec<(HeaderName, HeaderValue)>,
    /// The [`mark`] of each line that was ever added.
    marks: u64,
}

/// Name of a header in a call of [`HeaderList`].
pub trait LineName {
    /// Whether a line has this name. Letter case is ignored.
    fn is(&self, name: &HeaderName) -> bool;

    /// The name, in any case of its letters.
    fn text(&self) -> &str;

    /// The name of a new line. Panics if a text is not a valid name.
    fn into_name(self) -> HeaderName;
}

impl LineName for HeaderName {
    fn is(&self, name: &HeaderName) -> bool {
        self == name
    }

    fn text(&self) -> &str {
        self.as_str()
    }

    fn into_name(self) -> HeaderName {
        self
    }
}

impl LineName for &HeaderName {
    fn is(&self, name: &HeaderName) -> bool {
        *self == name
    }

    fn text(&self) -> &str {
        self.as_str()
    }

    fn into_name(self) -> HeaderName {
        self.clone()
    }
}

impl LineName for &str {
    fn is(&self, name: &HeaderName) -> bool {
        // A `HeaderName` is in lower case.
        name.as_str().eq_ignore_ascii_case(self)
    }

    fn text(&self) -> &str {
        self
    }

    fn into_name(self) -> HeaderName {
        HeaderName::from_bytes(self.as_bytes()).expect("the name of a header")
    }
}

/// The bit of a name in `HeaderList::marks`, the same for all cases of its letters. Several names have one bit.
fn mark(name: &str) -> u64 {
    let bytes = name.as_bytes();
    // Five bits of a letter are equal in both cases.
    let letter = |byte: Option<&u8>| usize::from(byte.copied().unwrap_or_default() & 0x1f);
    // A search of factors found these: the usual headers have other bits than those that are searched in messages without them.
    let number = bytes.len() + 41 * letter(bytes.first()) + 34 * letter(bytes.last());
    1 << (number % 64)
}

impl HeaderList {
    /// An empty list, without an allocation.
    pub const fn new() -> Self {
        Self { lines: Vec::new(), marks: 0 }
    }

    /// An empty list with space for `lines` lines.
    pub fn with_capacity(lines: usize) -> Self {
        Self { lines: Vec::with_capacity(lines), marks: 0 }
    }

    /// Number of lines.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there is no line.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Removes all lines, and keeps the allocation.
    pub fn clear(&mut self) {
        self.lines.clear();
        self.marks = 0;
    }

    /// All lines.
    pub fn iter(&self) -> Lines<'_> {
        Lines(self.lines.iter())
    }

    /// All lines, whose values may be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&HeaderName, &mut HeaderValue)> {
        self.lines.iter_mut().map(|(name, value)| (&*name, value))
    }

    /// The names of all lines. A name with several lines comes several times.
    pub fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.lines.iter().map(|(name, _)| name)
    }

    /// The first value of `name`.
    pub fn get(&self, name: impl LineName) -> Option<&HeaderValue> {
        self.get_all(name).next()
    }

    /// The first value of `name`, to be changed.
    pub fn get_mut(&mut self, name: impl LineName) -> Option<&mut HeaderValue> {
        self.get_all_mut(name).next()
    }

    /// All values of `name`.
    pub fn get_all<N: LineName>(&self, name: N) -> GetAll<'_, N> {
        let lines = if self.may_have(&name) { self.lines.iter() } else { slice::Iter::default() };
        GetAll { lines, name }
    }

    /// All values of `name`, to be changed.
    pub fn get_all_mut(&mut self, name: impl LineName) -> impl Iterator<Item = &mut HeaderValue> {
        let lines = if self.may_have(&name) { self.lines.iter_mut() } else { slice::IterMut::default() };
        lines.filter(move |line| name.is(&line.0)).map(|(_, value)| value)
    }

    /// Whether a line has this name.
    pub fn contains_key(&self, name: impl LineName) -> bool {
        self.get(name).is_some()
    }

    /// Adds a line behind all others. Panics if `name` is a text that is not a valid name.
    pub fn append(&mut self, name: impl LineName, value: HeaderValue) {
        let name = name.into_name();
        self.marks |= mark(name.as_str());
        self.lines.push((name, value));
    }

    /// Replaces all lines of `name` by one, in the place of the first. Returns the first value. Panics as [`Self::append`].
    pub fn insert(&mut self, name: impl LineName, value: HeaderValue) -> Option<HeaderValue> {
        let Some(first) = self.position(&name) else {
            self.append(name, value);
            return None;
        };
        // Lines behind the first mean the same to most readers, and another value to some.
        self.lines.extract_if(first + 1.., move |line| name.is(&line.0)).for_each(drop);
        Some(mem::replace(&mut self.lines[first].1, value))
    }

    /// Adds a line if there is none of `name`.
    pub fn insert_missing(&mut self, name: impl LineName, value: impl FnOnce() -> HeaderValue) {
        if self.position(&name).is_none() {
            self.append(name, value());
        }
    }

    /// Removes all lines of `name`. Returns the first value.
    pub fn remove(&mut self, name: impl LineName) -> Option<HeaderValue> {
        if !self.may_have(&name) {
            return None;
        }
        // One pass for all lines: each removal by itself would move all later lines.
        let mut removed = self.lines.extract_if(.., move |line| name.is(&line.0));
        let first = removed.next();
        removed.for_each(drop);
        first.map(|(_, value)| value)
    }

    /// Removes all lines of `name`. Returns their values.
    pub fn take_all(&mut self, name: impl LineName) -> Vec<HeaderValue> {
        if !self.may_have(&name) {
            return Vec::new();
        }
        self.lines.extract_if(.., move |line| name.is(&line.0)).map(|(_, value)| value).collect()
    }

    /// Keeps the lines for which `is_kept` returns `true`.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&HeaderName, &HeaderValue) -> bool) {
        self.lines.retain(|(name, value)| is_kept(name, value));
    }

    /// Whether a line may have this name. Removed lines leave their [`mark`], since another line may have the same one.
    fn may_have(&self, name: &impl LineName) -> bool {
        self.marks & mark(name.text()) != 0
    }

    /// Index of the first line of `name`.
    fn position(&self, name: &impl LineName) -> Option<usize> {
        if self.may_have(name) { self.lines.iter().position(|line| name.is(&line.0)) } else { None }
    }
}

impl PartialEq for HeaderList {
    fn eq(&self, other: &Self) -> bool {
        self.lines == other.lines
    }
}

impl Eq for HeaderList {}

impl<N: LineName> Index<N> for HeaderList {
    type Output = HeaderValue;

    /// The first value of a name. Panics without one.
    fn index(&self, name: N) -> &HeaderValue {
        self.get(name).expect("a line of this name")
    }
}

/// All lines of a [`HeaderList`], see [`HeaderList::iter`].
#[derive(Clone, Debug)]
pub struct Lines<'a>(slice::Iter<'a, (HeaderName, HeaderValue)>);

impl<'a> Iterator for Lines<'a> {
    type Item = (&'a HeaderName, &'a HeaderValue);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(name, value)| (name, value))
    }
}

impl<'a> IntoIterator for &'a HeaderList {
    type Item = (&'a HeaderName, &'a HeaderValue);
    type IntoIter = Lines<'a>;

    fn into_iter(self) -> Lines<'a> {
        self.iter()
    }
}

impl IntoIterator for HeaderList {
    type Item = (HeaderName, HeaderValue);
    type IntoIter = vec::IntoIter<(HeaderName, HeaderValue)>;

    fn into_iter(self) -> Self::IntoIter {
        self.lines.into_iter()
    }
}

impl FromIterator<(HeaderName, HeaderValue)> for HeaderList {
    fn from_iter<I: IntoIterator<Item = (HeaderName, HeaderValue)>>(lines: I) -> Self {
        let mut list = Self::new();
        list.extend(lines);
        list
    }
}

impl Extend<(HeaderName, HeaderValue)> for HeaderList {
    fn extend<I: IntoIterator<Item = (HeaderName, HeaderValue)>>(&mut self, lines: I) {
        let lines = lines.into_iter();
        self.lines.reserve(lines.size_hint().0);
        for (name, value) in lines {
            self.append(name, value);
        }
    }
}

impl From<HeaderMap> for HeaderList {
    fn from(map: HeaderMap) -> Self {
        let mut list = Self::with_capacity(map.len());
        // A name comes with its first value only.
        let mut last = None;
        for (name, value) in map {
            last = name.or(last);
            list.extend(last.clone().map(|name| (name, value)));
        }
        list
    }
}

impl From<HeaderList> for HeaderMap {
    fn from(list: HeaderList) -> Self {
        // Each growth of a map hashes all names again.
        let mut map = Self::with_capacity(list.len());
        for (name, value) in list {
            map.append(name, value);
        }
        map
    }
}

/// Values of one name, see [`HeaderList::get_all`].
#[derive(Clone, Debug)]
pub struct GetAll<'a, N> {
    lines: slice::Iter<'a, (HeaderName, HeaderValue)>,
    name: N,
}

impl<'a, N: LineName> Iterator for GetAll<'a, N> {
    type Item = &'a HeaderValue;

    fn next(&mut self) -> Option<&'a HeaderValue> {
        self.lines.by_ref().find(|line| self.name.is(&line.0)).map(|(_, value)| value)
    }
}

impl<N: LineName> DoubleEndedIterator for GetAll<'_, N> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.lines.by_ref().rev().find(|line| self.name.is(&line.0)).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use http::header::{ACCEPT, COOKIE, HOST};

    use super::*;

    fn list(lines: &[(&'static str, &'static str)]) -> HeaderList {
        let line = |(name, value): &(&'static str, &'static str)| {
            (name.into_name(), HeaderValue::from_static(value))
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn lines_keep_their_sequence() {
        let mut headers = list(&[("host", "a"), ("cookie", "1"), ("accept", "x"), ("cookie", "2")]);
        assert_eq!(headers.get_all(COOKIE).collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!((headers.get("Cookie").map(HeaderValue::as_bytes), headers.len()), (Some(&b"1"[..]), 4));
        assert_eq!(headers.insert(COOKIE, HeaderValue::from_static("3")).expect("the first"), "1");
        assert_eq!(headers, list(&[("host", "a"), ("cookie", "3"), ("accept", "x")]));
        headers.append(HOST, HeaderValue::from_static("b"));
        assert_eq!(headers.remove(&HOST).expect("the first"), "a");
        assert_eq!(headers, list(&[("cookie", "3"), ("accept", "x")]));
        assert_eq!(headers.remove(HOST), None);
        assert_eq!(headers.insert(HOST, HeaderValue::from_static("c")), None);
        headers.insert_missing(ACCEPT, || HeaderValue::from_static("y"));
        headers.insert_missing("x-own", || HeaderValue::from_static("z"));
        assert_eq!(headers, list(&[("cookie", "3"), ("accept", "x"), ("host", "c"), ("x-own", "z")]));
        headers.retain(|name, _| *name != COOKIE);
        assert_eq!(headers.names().collect::<Vec<_>>(), ["accept", "host", "x-own"]);
    }

    #[test]
    fn a_line_is_found_however_it_was_added() {
        let value = || HeaderValue::from_static("1");
        let mut headers = HeaderList::new();
        headers.append("X-Appended", value());
        headers.insert("X-Inserted", value());
        headers.insert_missing("x-missing", value);
        headers.extend(list(&[("x-extended", "1")]));
        let converted = HeaderList::from(HeaderMap::from(headers.clone()));
        for headers in [&headers, &converted] {
            for name in ["x-appended", "x-inserted", "X-Missing", "x-extended"] {
                assert!(headers.contains_key(name) && headers.clone().remove(name).is_some(), "{name}");
            }
        }
        let mut emptied = headers.clone();
        emptied.retain(|_, _| false);
        assert_eq!(emptied, HeaderList::new());
    }

    #[test]
    fn a_mark_ignores_the_case_of_letters_and_may_be_that_of_several_names() {
        assert_eq!(mark("Content-Type"), mark("content-type"));
        let names: Vec<_> = (0..1_000).map(|number| format!("x-{number}")).collect();
        let headers: HeaderList =
            names.iter().map(|name| (name.as_str().into_name(), HeaderValue::from_static("1"))).collect();
        assert!(names.iter().all(|name| headers.get_all(&**name).count() == 1));
        assert_eq!(headers.get("x-1000"), None);
    }

    #[test]
    fn a_search_for_a_usual_header_that_is_missing_ends_at_its_mark() {
        let requests = (
            "host user-agent accept accept-encoding accept-language cookie referer sec-fetch-site sec-fetch-mode \
             sec-fetch-dest sec-ch-ua sec-ch-ua-mobile sec-ch-ua-platform upgrade-insecure-requests priority",
            "connection upgrade transfer-encoding te expect content-length content-type range if-range if-match \
             if-none-match if-modified-since authorization x-forwarded-for x-forwarded-proto x-forwarded-host forwarded \
             x-request-id traceparent tracestate max-forwards early-data cookie priority origin cache-control pragma",
        );
        let responses = (
            "date server content-type content-length vary etag last-modified cache-control accept-ranges",
            "location refresh content-range content-encoding transfer-encoding connection upgrade retry-after link \
             www-authenticate x-accel-redirect x-sendfile alt-svc use-as-dictionary date server etag vary last-modified \
             cache-control content-type content-length accept-ranges",
        );
        for (usual, searched) in [requests, responses] {
            for searched in searched.split(' ') {
                let same = usual.split(' ').find(|usual| *usual != searched && mark(usual) == mark(searched));
                assert_eq!(same, None, "{searched}");
            }
        }
    }

    #[test]
    fn a_map_has_the_same_lines() {
        let headers = list(&[("host", "a"), ("cookie", "1"), ("cookie", "2")]);
        let map = HeaderMap::from(headers.clone());
        assert_eq!(map.get_all(COOKIE).iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(HeaderList::from(map), headers);
    }
}
