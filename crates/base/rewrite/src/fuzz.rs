//! Fuzz target for rewriting.
//!
//! Invariants: the division into pieces does not matter, the buffer is bounded, a second pass changes nothing, and an
//! independent HTML parser finds the same document except for the starts of URLs.

mod dom;

use crate::{Base, DocumentKind, HELD, Insertion, MappedOrigin, OriginMap, RewriteContext, Rewriter};

/// Host of all documents.
const OWN: &str = "www.example";

/// A map with one origin below `/_s`.
pub(crate) fn map() -> OriginMap {
    let origin = "https://static.example".parse().expect("an origin");
    OriginMap {
        origins: vec![MappedOrigin { origin, prefix: "/_s".parse().expect("a prefix"), unchanged: None }],
    }
}

pub(crate) fn context(map: &OriginMap) -> RewriteContext<'_> {
    RewriteContext { map, own: OWN }
}

/// Rewrites a text whole and in pieces of 1 to 7 bytes, and requires equal results.
#[cfg(test)]
pub(crate) fn in_pieces(text: &[u8], rewrite: impl Fn(&[&[u8]]) -> Vec<u8>) -> String {
    let whole = rewrite(&[text]);
    for length in 1..=7 {
        let pieces: Vec<_> = text.chunks(length).collect();
        assert_eq!(rewrite(&pieces), whole, "in pieces of {length}: {:?}", String::from_utf8_lossy(text));
    }
    String::from_utf8(whole).expect("text stays text")
}

/// Runs the target. The first two bytes select kind, base and length of pieces; the remainder is the document.
pub fn rewriting(bytes: &[u8]) {
    let Some((&[choice, step], document)) = bytes.split_first_chunk::<2>() else { return };
    let kind = [
        DocumentKind::Html,
        DocumentKind::Html,
        DocumentKind::Xml,
        DocumentKind::Css,
        DocumentKind::Manifest,
    ][usize::from(choice % 5)];
    let base = [Base::Own, Base::Mapped(0), Base::Foreign][usize::from(choice / 5 % 3)];
    let map = map();
    let whole = rewritten(kind, base, &map, &[document]);
    let pieces: Vec<_> = document.chunks(usize::from(step % 61) + 1).collect();
    assert_eq!(rewritten(kind, base, &map, &pieces), whole, "pieces make a difference");
    if base != Base::Mapped(0) {
        // Excluded: policies gain a source in each pass, and a rewritten `base` no longer names a mapped origin.
        let lower = document.to_ascii_lowercase();
        let has = |word: &[u8]| memchr::memmem::find(&lower, word).is_some();
        if !has(b"meta") && !has(b"base") {
            assert_eq!(rewritten(kind, base, &map, &[&whole]), whole, "a second time changes something");
        }
    }
    if base == Base::Foreign && matches!(kind, DocumentKind::Css | DocumentKind::Manifest) {
        assert_eq!(whole, document);
    }
    if kind == DocumentKind::Html {
        if dom::is_flat(document) {
            dom::compare(document, &whole, base, &map);
        }
        inserting(document, &pieces);
    }
    headers(document, &map);
}

fn rewritten(kind: DocumentKind, base: Base, map: &OriginMap, pieces: &[&[u8]]) -> Vec<u8> {
    let (mut rewriter, mut output) = (Rewriter::new(kind, base), Vec::new());
    for piece in pieces {
        rewriter.write(piece, context(map), &mut output);
        assert!(rewriter.held() <= 2 * HELD);
    }
    rewriter.finish(context(map), &mut output);
    output
}

/// The inserted tag.
const TAG: &[u8] = b"<script src=brisktag></script>";

/// Inserts [`TAG`] and requires that it becomes a script element of the head and that nothing else changes.
fn inserting(document: &[u8], pieces: &[&[u8]]) {
    let insert = |pieces: &[&[u8]]| {
        let (mut insertion, mut output) = (Insertion::default(), Vec::new());
        for piece in pieces {
            insertion.write(piece, TAG, &mut output);
        }
        insertion.finish(&mut output);
        (output, insertion.is_done())
    };
    let (whole, is_done) = insert(&[document]);
    assert_eq!(insert(pieces), (whole.clone(), is_done), "pieces make a difference");
    let own = memchr::memmem::find(document, b"brisktag").is_some();
    if is_done != Some(true) {
        assert_eq!(whole, document);
    } else if !own {
        let mut found = dom::items(&whole);
        let tag = found.iter().position(|item| item.value == "brisktag").expect("the tag is in the document");
        let element = &found[tag - 1].label;
        assert!(element.starts_with("3 element") && element.contains("script"), "{element:?}");
        found.drain(tag - 1..=tag);
        assert_eq!(found, dom::items(document), "another document");
    }
}

/// Calls the header functions with arbitrary text and bounds the growth of their results.
fn headers(bytes: &[u8], map: &OriginMap) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for base in [Base::Own, Base::Mapped(0)] {
        for changed in [crate::link(text, base, map), crate::refresh(text, base, map), map.url(base, text)] {
            assert!(changed.is_none_or(|changed| changed.len() <= 4 * text.len() + 8));
        }
    }
    if let Some(changed) = crate::policy(text, map, OWN) {
        let others = |text: &str| -> Vec<String> {
            let words = text.split(|c: char| c.is_ascii_whitespace() || c == ';' || c == ',');
            let is_other = |word: &&str| !word.is_empty() && !word.starts_with("https://www.example/_s/");
            words.filter(is_other).map(str::to_owned).collect()
        };
        assert_eq!(others(&changed), others(text));
        assert!(changed.len() <= 2 * text.len() + (4 << 10));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_rewriting() {
        let words: &[&[u8]] = &[
            b"<img src=",
            b"<a href='",
            b"<base href=\"",
            b"<style>",
            b"</style>",
            b"<script>",
            b"</script>",
            b"<svg>",
            b"</svg>",
            b"<!--",
            b"-->",
            b"<![CDATA[",
            b"]]>",
            b"<meta http-equiv=refresh content='0;url=",
            b" srcset=\"",
            b" style='a:url(",
            b"https://static.example",
            b"//static.example/",
            b"/x/../y",
            b"url(",
            b"@import ",
            b"image-set(",
            b"\"src\":",
            b"&#x2f;",
            b"&quot;",
            b"<textarea>",
            b"<title>",
            b"<plaintext>",
            b">",
            b"\">",
            b"'/>",
            b", ",
            b"{",
            b"}",
        ];
        brisk_testkit::fuzz::drive("rewriting", words, super::rewriting);
    }
}
