//! [`HeaderList`].

use std::mem;
use std::ops::Index;
use std::{slice, vec};

use http::{HeaderMap, HeaderName, HeaderValue};

/// Header lines in the sequence of their arrival. Names may repeat.
///
/// A search compares every name, so an operation costs time proportional to the number of lines. Limits of heads bound this number:
/// 100 by default, at most 1,000. Code that searches names of a peer makes one pass with [`Self::retain`] instead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderList {
    lines: Vec<(HeaderName, HeaderValue)>,
}

/// Name of a header in a call of [`HeaderList`].
pub trait LineName {
    /// Whether a line has this name. Letter case is ignored.
    fn is(&self, name: &HeaderName) -> bool;

    /// The name of a new line. Panics if a text is not a valid name.
    fn into_name(self) -> HeaderName;
}

impl LineName for HeaderName {
    fn is(&self, name: &HeaderName) -> bool {
        self == name
    }

    fn into_name(self) -> HeaderName {
        self
    }
}

impl LineName for &HeaderName {
    fn is(&self, name: &HeaderName) -> bool {
        *self == name
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

    fn into_name(self) -> HeaderName {
        HeaderName::from_bytes(self.as_bytes()).expect("the name of a header")
    }
}

impl HeaderList {
    /// An empty list, without an allocation.
    pub const fn new() -> Self {
        Self { lines: Vec::new() }
    }

    /// An empty list with space for `lines` lines.
    pub fn with_capacity(lines: usize) -> Self {
        Self { lines: Vec::with_capacity(lines) }
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
        GetAll { lines: self.lines.iter(), name }
    }

    /// All values of `name`, to be changed.
    pub fn get_all_mut(&mut self, name: impl LineName) -> impl Iterator<Item = &mut HeaderValue> {
        self.lines.iter_mut().filter(move |line| name.is(&line.0)).map(|(_, value)| value)
    }

    /// Whether a line has this name.
    pub fn contains_key(&self, name: impl LineName) -> bool {
        self.get(name).is_some()
    }

    /// Adds a line behind all others. Panics if `name` is a text that is not a valid name.
    pub fn append(&mut self, name: impl LineName, value: HeaderValue) {
        self.lines.push((name.into_name(), value));
    }

    /// Replaces all lines of `name` by one, in the place of the first. Returns the first value. Panics as [`Self::append`].
    pub fn insert(&mut self, name: impl LineName, value: HeaderValue) -> Option<HeaderValue> {
        let Some(first) = self.lines.iter().position(|line| name.is(&line.0)) else {
            self.append(name, value);
            return None;
        };
        // Lines behind the first mean the same to most readers, and another value to some.
        self.lines.extract_if(first + 1.., move |line| name.is(&line.0)).for_each(drop);
        Some(mem::replace(&mut self.lines[first].1, value))
    }

    /// Adds a line if there is none of `name`.
    pub fn insert_missing(&mut self, name: impl LineName, value: impl FnOnce() -> HeaderValue) {
        if !self.lines.iter().any(|line| name.is(&line.0)) {
            self.append(name, value());
        }
    }

    /// Removes all lines of `name`. Returns the first value.
    pub fn remove(&mut self, name: impl LineName) -> Option<HeaderValue> {
        // One pass for all lines: each removal by itself would move all later lines.
        let mut removed = self.lines.extract_if(.., move |line| name.is(&line.0));
        let first = removed.next();
        removed.for_each(drop);
        first.map(|(_, value)| value)
    }

    /// Removes all lines of `name`. Returns their values.
    pub fn take_all(&mut self, name: impl LineName) -> Vec<HeaderValue> {
        self.lines.extract_if(.., move |line| name.is(&line.0)).map(|(_, value)| value).collect()
    }

    /// Keeps the lines for which `is_kept` returns `true`.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&HeaderName, &HeaderValue) -> bool) {
        self.lines.retain(|(name, value)| is_kept(name, value));
    }
}

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
        Self { lines: lines.into_iter().collect() }
    }
}

impl Extend<(HeaderName, HeaderValue)> for HeaderList {
    fn extend<I: IntoIterator<Item = (HeaderName, HeaderValue)>>(&mut self, lines: I) {
        self.lines.extend(lines);
    }
}

impl From<HeaderMap> for HeaderList {
    fn from(map: HeaderMap) -> Self {
        let mut list = Self::with_capacity(map.len());
        // A name comes with its first value only.
        let mut last = None;
        for (name, value) in map {
            last = name.or(last);
            list.lines.extend(last.clone().map(|name| (name, value)));
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
    fn a_map_has_the_same_lines() {
        let headers = list(&[("host", "a"), ("cookie", "1"), ("cookie", "2")]);
        let map = HeaderMap::from(headers.clone());
        assert_eq!(map.get_all(COOKIE).iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(HeaderList::from(map), headers);
    }
}
