//! Tags of documents that are changed: the document's own, and what it was changed by.

use http::{HeaderMap, HeaderValue, header};

/// What a tag has after that of the document: changes by 16 digits, and whether the document's own tag is strong or weak.
const MARK: &[u8] = b";brisk=";

/// The end of tags of documents that were changed as they are now.
#[derive(Clone, Debug)]
pub(super) struct Mark(String);

impl Mark {
    /// `changes` stands for all that decides how documents are changed.
    pub(super) fn new(changes: u64) -> Self {
        Self(format!("{changes:016x}"))
    }

    /// The tag of a document after its changes, which is weak (RFC 9110 section 8.8.1): they are the same for the same
    /// document, but for what is held back to be flushed.
    pub(super) fn of_document(&self, tag: &HeaderValue) -> Option<HeaderValue> {
        let (kind, opaque) = read(tag.as_bytes())?;
        HeaderValue::from_bytes(&[b"W/\"", opaque, MARK, self.0.as_bytes(), kind, b"\""].concat()).ok()
    }

    /// Puts the documents' own tags into `If-None-Match`, and leaves out those of documents with other changes.
    pub(super) fn change_known(&self, headers: &mut HeaderMap) {
        let header::Entry::Occupied(entry) = headers.entry(header::IF_NONE_MATCH) else { return };
        if !entry.iter().any(|value| memchr::memmem::find(value.as_bytes(), MARK).is_some()) {
            return;
        }
        let lines: Vec<_> = entry.remove_entry_mult().1.collect();
        let mut tags: Vec<Vec<u8>> = Vec::new();
        for line in &lines {
            tags.extend(split(line.as_bytes()).filter_map(|tag| self.own(tag)));
        }
        if let (false, Ok(value)) = (tags.is_empty(), HeaderValue::from_bytes(&tags.join(&b", "[..]))) {
            headers.insert(header::IF_NONE_MATCH, value);
        }
    }

    /// The tag that the client has of a document that has not changed, if this is the document's own tag.
    pub(super) fn known_as(&self, known: &HeaderValue, tag: &HeaderValue) -> Option<HeaderValue> {
        let marked = self.of_document(tag)?;
        split(known.as_bytes()).any(|known| known == marked.as_bytes()).then_some(marked)
    }

    /// The document's own tag of one that a client has.
    fn own(&self, tag: &[u8]) -> Option<Vec<u8>> {
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

/// Strong or weak, and what is between the quotes.
fn read(tag: &[u8]) -> Option<(&'static [u8], &[u8])> {
    let (kind, rest): (&[u8], _) = match tag.strip_prefix(b"W/") {
        Some(rest) => (b"w", rest),
        None => (b"s", tag),
    };
    let opaque = rest.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    (!opaque.contains(&b'"')).then_some((kind, opaque))
}

/// The members of a list of tags, whose quoted parts may have commas.
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

    fn known(mark: &Mark, text: &str) -> Option<String> {
        let mut headers = HeaderMap::from_iter([(header::IF_NONE_MATCH, value(text))]);
        mark.change_known(&mut headers);
        headers.get(header::IF_NONE_MATCH).map(|value| value.to_str().expect("text").to_owned())
    }

    #[test]
    fn tags_are_marked_and_come_back_as_they_were() {
        let mark = Mark::new(1);
        for tag in ["\"a,b\"", "W/\"a\"", "\"\""] {
            let marked = mark.of_document(&value(tag)).expect("a tag");
            let text = marked.to_str().expect("text").to_owned();
            assert!(text.starts_with("W/\""), "{text}");
            assert_eq!(known(&mark, &text).as_deref(), Some(tag));
            assert_eq!(known(&mark, &format!("\"x\", {text}")), Some(format!("\"x\", {tag}")));
            assert_eq!(known(&Mark::new(2), &text), None, "other changes");
            assert_eq!(known(&Mark::new(2), &format!("{text}, \"x\"")).as_deref(), Some("\"x\""));
            assert_eq!(mark.known_as(&marked, &value(tag)), Some(marked.clone()));
            assert_eq!(mark.known_as(&value(tag), &value(tag)), None);
        }
        for other in ["*", "\"a\"", "W/\"a\", \"b\""] {
            assert_eq!(known(&mark, other).as_deref(), Some(other));
        }
        for wrong in ["a", "\"", "\"a\"b\""] {
            assert_eq!(mark.of_document(&value(wrong)), None, "{wrong}");
        }
    }
}
