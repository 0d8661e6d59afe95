//! `ETag` of changed documents: the document's own tag with a digest of the changes, its [`Mark`].

use brisk_http::message::HeaderList;
use brisk_rewrite::OriginMap;
use http::{HeaderValue, header};

/// Separator after the document's own tag, followed by 16 digits of the digest and `s` or `w` for a strong or weak
/// original tag.
const MARK: &[u8] = b";brisk=";

/// Digest of the current changes, as it appears in tags.
#[derive(Clone, Debug)]
pub(super) struct Mark(String);

/// `If-None-Match`, joined into one line.
pub(super) fn known(headers: &HeaderList) -> Option<HeaderValue> {
    let lines: Vec<_> = headers.get_all(header::IF_NONE_MATCH).collect();
    match lines[..] {
        [] => None,
        [line] => Some(line.clone()),
        _ => HeaderValue::from_bytes(
            &lines.iter().map(|line| line.as_bytes()).collect::<Vec<_>>().join(&b", "[..]),
        )
        .ok(),
    }
}

impl Mark {
    /// The digest of a map. Equal on all gateways of a fleet.
    pub(super) fn of(map: &OriginMap) -> Self {
        let places = map.origins.iter().map(|place| {
            let unchanged = place.unchanged.as_ref().map_or("", |_| " unchanged");
            format!("{} {}{unchanged}\n", place.origin, place.prefix.as_str())
        });
        let text = format!("{}\n{}", brisk_rewrite::VERSION, places.collect::<String>());
        // FNV-1a, because it is the same in all builds; the standard library's hasher is not.
        let hashed = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self::new(hashed)
    }

    /// `changes` is a digest of everything that determines how documents are changed.
    pub(super) fn new(changes: u64) -> Self {
        Self(format!("{changes:016x}"))
    }

    /// The tag of a document after its changes.
    ///
    /// It is weak (RFC 9110 section 8.8.1): equal documents get equal changes, but flushed at different positions.
    pub(super) fn of_document(&self, tag: &HeaderValue) -> Option<HeaderValue> {
        let (kind, opaque) = read(tag.as_bytes())?;
        HeaderValue::from_bytes(&[b"W/\"", opaque, MARK, self.0.as_bytes(), kind, b"\""].concat()).ok()
    }

    /// Replaces tags in `If-None-Match` by the documents' own tags, and drops tags with another [`Mark`].
    ///
    /// Removes `If-Modified-Since` if the client has a changed document, because that time is independent of the
    /// changes.
    pub(super) fn change_known(&self, headers: &mut HeaderList) {
        let is_marked = |value: &HeaderValue| memchr::memmem::find(value.as_bytes(), MARK).is_some();
        if !headers.get_all(header::IF_NONE_MATCH).any(is_marked) {
            return;
        }
        let lines = headers.take_all(header::IF_NONE_MATCH);
        headers.remove(header::IF_MODIFIED_SINCE);
        let mut tags: Vec<Vec<u8>> = Vec::new();
        for line in &lines {
            tags.extend(split(line.as_bytes()).filter_map(|tag| self.own(tag)));
        }
        if let (false, Ok(value)) = (tags.is_empty(), HeaderValue::from_bytes(&tags.join(&b", "[..]))) {
            headers.insert(header::IF_NONE_MATCH, value);
        }
    }

    /// The client's tag of an unchanged document, if `tag` is the document's own.
    pub(super) fn known_as(&self, known: &HeaderValue, tag: &HeaderValue) -> Option<HeaderValue> {
        let marked = self.of_document(tag)?;
        split(known.as_bytes()).any(|known| known == marked.as_bytes()).then_some(marked)
    }

    /// The document's own tag, from a tag of a client; `None` if the client's copy has other changes.
    fn own(&self, tag: &[u8]) -> Option<Vec<u8>> {
        // The last mark is the one of `of_document`, which appends it; the document's own tag may contain
        // another one.
        let Some(at) = memchr::memmem::rfind(tag, MARK) else { return Some(tag.to_vec()) };
        let opaque = tag[..at].strip_prefix(b"W/\"")?;
        let kind = tag[at + MARK.len()..].strip_prefix(self.0.as_bytes())?;
        match kind {
            b"s\"" => Some([b"\"", opaque, b"\""].concat()),
            b"w\"" => Some([b"W/\"", opaque, b"\""].concat()),
            _ => None,
        }
    }
}

/// Kind of the tag (strong or weak), and its text between the quotes.
fn read(tag: &[u8]) -> Option<(&'static [u8], &[u8])> {
    let (kind, rest): (&[u8], _) = match tag.strip_prefix(b"W/") {
        Some(rest) => (b"w", rest),
        None => (b"s", tag),
    };
    let opaque = rest.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    (!opaque.contains(&b'"')).then_some((kind, opaque))
}

/// The members of a list of tags. Commas inside quotes do not separate members.
fn split(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut is_quoted = false;
    let parts = list.split(move |byte| {
        is_quoted ^= *byte == b'"';
        *byte == b',' && !is_quoted
    });
    parts.map(<[u8]>::trim_ascii).filter(|tag| !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> HeaderValue {
        HeaderValue::from_str(text).expect("a value")
    }

    fn sent(mark: &Mark, text: &str) -> Option<String> {
        let mut headers = HeaderList::from_iter([(header::IF_NONE_MATCH, value(text))]);
        mark.change_known(&mut headers);
        headers.get(header::IF_NONE_MATCH).map(|value| value.to_str().expect("text").to_owned())
    }

    #[test]
    fn the_time_of_a_changed_document_says_nothing() {
        let mark = Mark::new(1);
        let marked = mark.of_document(&value("\"a\"")).expect("a tag");
        for (tag, is_kept) in [(value("\"a\""), true), (marked.clone(), false)] {
            let mut headers = HeaderList::new();
            headers.insert(header::IF_NONE_MATCH, tag);
            headers.insert(header::IF_MODIFIED_SINCE, value("x"));
            Mark::new(2).change_known(&mut headers);
            assert_eq!(headers.contains_key(header::IF_MODIFIED_SINCE), is_kept);
        }
        let mut headers = HeaderList::new();
        assert_eq!(known(&headers), None);
        headers.append(header::IF_NONE_MATCH, value("\"x\""));
        headers.append(header::IF_NONE_MATCH, marked.clone());
        let known = known(&headers).expect("two lines");
        assert_eq!(mark.known_as(&known, &value("\"a\"")), Some(marked));
    }

    #[test]
    fn the_mark_is_that_of_the_map_in_every_build() {
        let place = |prefix: &str| brisk_rewrite::MappedOrigin {
            origin: "https://static.example".parse().expect("an origin"),
            prefix: prefix.parse().expect("a prefix"),
            unchanged: None,
        };
        let mark = |prefix| Mark::of(&OriginMap { origins: vec![place(prefix)] }).0;
        assert_eq!(mark("/_s"), "f2c1f0bc0f247d30");
        assert_ne!(mark("/_s"), mark("/_t"));
    }

    #[test]
    fn tags_are_marked_and_come_back_as_they_were() {
        let mark = Mark::new(1);
        for tag in ["\"a,b\"", "W/\"a\"", "\"\""] {
            let marked = mark.of_document(&value(tag)).expect("a tag");
            let text = marked.to_str().expect("text").to_owned();
            assert!(text.starts_with("W/\""), "{text}");
            assert_eq!(sent(&mark, &text).as_deref(), Some(tag));
            assert_eq!(sent(&mark, &format!("\"x\", {text}")), Some(format!("\"x\", {tag}")));
            assert_eq!(sent(&Mark::new(2), &text), None, "other changes");
            assert_eq!(sent(&Mark::new(2), &format!("{text}, \"x\"")).as_deref(), Some("\"x\""));
            assert_eq!(mark.known_as(&marked, &value(tag)), Some(marked.clone()));
            assert_eq!(mark.known_as(&value(tag), &value(tag)), None);
        }
        for other in ["*", "\"a\"", "W/\"a\", \"b\""] {
            assert_eq!(sent(&mark, other).as_deref(), Some(other));
        }
        for wrong in ["a", "\"", "\"a\"b\""] {
            assert_eq!(mark.of_document(&value(wrong)), None, "{wrong}");
        }
    }
}
