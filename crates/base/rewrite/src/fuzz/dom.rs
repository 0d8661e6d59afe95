//! Comparison of documents before and after rewriting, by the independent parser `html5ever`.

use std::collections::HashSet;

use html5ever::tendril::TendrilSink as _;
use html5ever::tree_builder::TreeBuilderOpts;
use html5ever::{ParseOpts, parse_document};
use markup5ever_rcdom::{Handle, NodeData, RcDom};

use crate::{Base, OriginMap};

/// A node or attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// Depth, kind and names, which rewriting never changes.
    pub(super) label: String,
    pub(super) value: String,
    holds: Holds,
}

/// Permitted changes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    /// None.
    Text,
    /// One URL, which must be rewritten if it has no special syntax.
    Url,
    /// One URL of a `link` or `base`, which may stay unchanged.
    UrlOrFixed,
    /// Text with URLs.
    Urls,
    /// A content security policy or a refresh.
    Meta,
}

/// All nodes and attributes of a document. `noscript` contains markup, as in a browser without scripts.
pub(super) fn items(document: &[u8]) -> Vec<Item> {
    let tree_builder = TreeBuilderOpts { scripting_enabled: false, ..TreeBuilderOpts::default() };
    let options = ParseOpts { tree_builder, ..ParseOpts::default() };
    let dom = parse_document(RcDom::default(), options).from_utf8().one(document);
    let mut found = Vec::new();
    // The root stays referenced: dropping it would remove the children of nodes that others still hold.
    let mut rest = vec![(0, Holds::Text, Handle::clone(&dom.document))];
    while let Some((depth, holds, node)) = rest.pop() {
        let mut add = |label: String, value: &str, holds| {
            found.push(Item { label: format!("{depth} {label}"), value: value.to_owned(), holds });
        };
        let mut children = Holds::Text;
        match &node.data {
            NodeData::Document => add("document".to_owned(), "", Holds::Text),
            NodeData::Doctype { name, public_id, system_id } => {
                add("doctype".to_owned(), &format!("{name} {public_id} {system_id}"), Holds::Text);
            }
            NodeData::Text { contents } => add("text".to_owned(), &contents.borrow(), holds),
            NodeData::Comment { contents } => add("comment".to_owned(), contents, Holds::Text),
            NodeData::ProcessingInstruction { target, contents } => {
                add(format!("instruction {target}"), contents, Holds::Text);
            }
            NodeData::Element { name, attrs, template_contents, .. } => {
                add(format!("element {name:?}"), "", Holds::Text);
                for attribute in attrs.borrow().iter() {
                    let holds = of_attribute(&name.local, &attribute.name.local);
                    add(format!("{:?}", attribute.name), &attribute.value, holds);
                }
                if &*name.local == "style" {
                    children = Holds::Urls;
                }
                let contents = template_contents.borrow();
                rest.extend(contents.iter().map(|content| (depth + 1, Holds::Text, content.clone())));
            }
        }
        rest.extend(node.children.borrow().iter().rev().map(|child| (depth + 1, children, child.clone())));
    }
    found
}

fn of_attribute(element: &str, attribute: &str) -> Holds {
    match (element, attribute) {
        (_, "style") => Holds::Urls,
        (custom, _) if custom.contains('-') => Holds::Text,
        ("link" | "base", "href") => Holds::UrlOrFixed,
        (_, "href" | "src" | "xlink:href")
        | ("form", "action")
        | ("button" | "input", "formaction")
        | ("video", "poster")
        | ("object", "data")
        | ("body" | "table" | "td" | "th" | "tr", "background") => Holds::Url,
        (_, "srcset" | "imagesrcset") => Holds::Urls,
        ("meta", "content") => Holds::Meta,
        _ => Holds::Text,
    }
}

/// Returns whether the positions of tags follow from the bytes alone.
///
/// The rewriter builds no tree. Within these elements, the tree decides whether `<![CDATA[` begins text, and whether
/// the text of `style`, `title` and others is markup.
pub(super) fn is_flat(document: &[u8]) -> bool {
    let lower = document.to_ascii_lowercase();
    let has =
        |names: &[&str]| names.iter().any(|name| memchr::memmem::find(&lower, name.as_bytes()).is_some());
    let changes = [
        "<![cdata[",
        "<iframe",
        "<noembed",
        "<noframes",
        "<textarea",
        "<title",
        "<xmp",
        "<script",
        "<style",
        "<plaintext",
    ];
    !has(&["<svg", "<math", "<select", "<frameset", "<template"]) || !has(&changes)
}

/// Returns whether each URL in an attribute must be rewritten.
///
/// In other documents it may stay: unknown character references and NUL prevent rewriting, a `base` changes the meaning
/// of URLs, and a tag may have too many attributes.
fn is_plain(document: &[u8]) -> bool {
    let has_base = memchr::memmem::find(&document.to_ascii_lowercase(), b"<base").is_some();
    !has_base && document.len() < 1000 && !document.iter().any(|byte| b"&\0".contains(byte))
}

/// Requires that both documents are equal except for URLs that must or may change.
pub(super) fn compare(document: &[u8], rewritten: &[u8], base: Base, map: &OriginMap) {
    let (before, after) = (items(document), items(rewritten));
    let is_plain = is_plain(document);
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before.label, after.label, "another document");
        let (from, to) = (&before.value, &after.value);
        let url = |base| map.url(base, from).unwrap_or_else(|| from.clone());
        let is_right = match before.holds {
            Holds::Text => from == to,
            Holds::Url if is_plain => *to == url(base),
            Holds::Url | Holds::UrlOrFixed => {
                from == to || [Base::Own, Base::Mapped(0)].iter().any(|base| *to == url(*base))
            }
            Holds::Urls => is_mapped(from.as_bytes(), to.as_bytes(), false),
            Holds::Meta => is_mapped(from.as_bytes(), to.as_bytes(), true),
        };
        assert!(is_right, "{}: {from:?} became {to:?}", before.label);
    }
    assert_eq!(before.len(), after.len(), "another document");
}

/// Returns whether `after` equals `before`, with prefixes in place of origins or before paths, and with additional
/// sources in a policy.
fn is_mapped(before: &[u8], after: &[u8], is_meta: bool) -> bool {
    const PREFIX: &[u8] = b"/_s";
    let mut seen = HashSet::new();
    let mut rest = vec![(0, 0)];
    // Several alignments are possible: a prefix may be inserted, or be a part of the original text.
    while let Some((from, to)) = rest.pop() {
        if !seen.insert((from, to)) {
            continue;
        }
        let (was, is) = (&before[from..], &after[to..]);
        if was.is_empty() && is.is_empty() {
            return true;
        }
        if is_meta && is.starts_with(b" https://www.example/_s/") {
            let ends = |byte: &u8| byte.is_ascii_whitespace() || b";,".contains(byte);
            let length = is[1..].iter().position(ends).map_or(is.len(), |length| length + 1);
            rest.push((from, to + length));
        }
        if is.starts_with(PREFIX) {
            if was.first() == Some(&b'/') && was.get(1) != Some(&b'/') {
                rest.push((from, to + PREFIX.len()));
            }
            if let Some(length) = origin(was) {
                if was.get(length) == Some(&b'/') {
                    rest.push((from + length, to + PREFIX.len()));
                } else if is.get(PREFIX.len()) == Some(&b'/') {
                    rest.push((from + length, to + PREFIX.len() + 1));
                }
            }
        }
        if !was.is_empty() && was.first() == is.first() {
            rest.push((from + 1, to + 1));
        }
    }
    false
}

/// The length of the mapped origin at the start of `text`.
fn origin(text: &[u8]) -> Option<usize> {
    let begins = |at: usize, word: &[u8]| {
        text.get(at..at + word.len()).is_some_and(|found| found.eq_ignore_ascii_case(word))
    };
    let start = if begins(0, b"https:") { 6 } else { 0 };
    let host = b"//static.example";
    if !begins(start, host) {
        return None;
    }
    let mut end = start + host.len();
    if text.get(end) == Some(&b':') {
        let digits = text[end + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let port = std::str::from_utf8(&text[end + 1..end + 1 + digits]).ok()?;
        if !port.is_empty() && port.trim_start_matches('0') != "443" {
            return None;
        }
        end += 1 + digits;
    }
    let goes_on = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:@".contains(byte);
    (!text.get(end).is_some_and(goes_on)).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::map;

    #[test]
    fn the_whole_tree_is_compared() {
        let found = items(b"<p title=a>b<!--c--><style>d</style>");
        for value in ["a", "b", "c", "d"] {
            assert!(found.iter().any(|item| item.value == value), "{value}: {found:?}");
        }
    }

    #[test]
    fn what_is_no_url_of_the_map_must_stay() {
        let is_same = |before: &str, after: &str| {
            let run = || compare(before.as_bytes(), after.as_bytes(), Base::Own, &map());
            std::panic::catch_unwind(run).is_ok()
        };
        let url = "https://static.example:0443/a";
        for (before, after, is_right) in [
            ("<img src='URL'>", "<img src='/_s/a'>", true),
            ("<img src='URL'>", "<img src='URL'>", false),
            ("<img src='URL'>", "<img src='/_s/b'>", false),
            ("<p>URL", "<p>/_s/a", false),
            ("<p title='URL'>", "<p title='/_s/a'>", false),
            ("<!--URL-->", "<!--/_s/a-->", false),
            ("<style>url(URL)</style>", "<style>url(/_s/a)</style>", true),
            ("<style>url(URL)</style>", "<style>url(/_t/a)</style>", false),
            ("<b><p>x", "<b><p>y", false),
            ("<b><p>x", "<b><p>x<i>", false),
        ] {
            let put = |text: &str| text.replace("URL", url);
            assert_eq!(is_same(&put(before), &put(after)), is_right, "{before} to {after}");
        }
    }
}
