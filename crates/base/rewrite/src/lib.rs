//! Rewrites URLs in HTML, SVG, CSS, web app manifests and headers, so that resources of other origins load through
//! paths of the page's own host.
//!
//! Only the start of a URL changes: `https://static.example/a.css` becomes `/_s/a.css`. All other bytes are copied,
//! malformed markup included, and any construct that the crate does not understand stays unchanged. Documents are
//! streamed: pieces may end anywhere, at most [`HELD`] bytes are buffered, and longer tags and URLs are copied
//! unchanged. Nothing here performs I/O or blocks.
//!
//! The tokenizers find tags, attributes, and text that is not markup (scripts, comments); they build no tree. A misread
//! document cannot become unsafe: neither the removed nor the inserted bytes contain a delimiter of HTML, CSS or JSON.
//!
//! The crate `lol_html` (2.9) was measured as a replacement for the tokenizer of HTML, with a page of 103 kB and 440 URLs
//! of one origin in pieces of 16 KiB. It is faster, 180 MB/s against 113 MB/s of one core, and also copies unchanged tags
//! byte for byte. It is not used, because it writes a changed attribute anew: other quotes, `"` as `&quot;`, no space
//! before `>`. It offers values without decoding their character references (`&#104;ttps:`), and its CSS, XML, manifests
//! and headers would still need this crate.

mod css;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod headers;
mod html;
mod insert;
mod manifest;
mod map;
mod origin;
mod policy;
mod script;
mod tag;
mod text;

pub use headers::{link, map_bytes, refresh};
pub use insert::Insertion;
pub use map::{Base, MappedOrigin, OriginMap, Prefix, PrefixError};
pub use origin::{Origin, OriginError};
pub use policy::policy;

/// Maximum number of buffered bytes of a document. A longer tag is copied unchanged.
pub const HELD: usize = 64 << 10;

/// Version of the rewriting rules, part of the key of cached copies. Any change of the output must increase it.
pub const VERSION: u32 = 3;

/// Kinds of documents that contain URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentKind {
    /// HTML.
    Html,
    /// XML with elements of HTML or SVG.
    Xml,
    /// A style sheet.
    Css,
    /// A web application manifest.
    Manifest,
}

impl DocumentKind {
    /// The kind of a document with this `Content-Type`. `None` if it contains no URLs to rewrite, or if its charset is
    /// not ASCII-compatible.
    pub fn of(content_type: &str) -> Option<Self> {
        let (essence, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
        let essence = essence.trim();
        let is = |name: &str| essence.eq_ignore_ascii_case(name);
        let kind = if is("text/html") {
            Self::Html
        } else if is("application/xhtml+xml") || is("image/svg+xml") {
            Self::Xml
        } else if is("text/css") {
            Self::Css
        } else if is("application/manifest+json") {
            Self::Manifest
        } else {
            return None;
        };
        is_ascii_compatible(parameters).then_some(kind)
    }
}

/// Prefixes of charsets in which bytes below 128 may have another meaning than in ASCII.
const OTHERS: [&str; 5] = ["utf-16", "utf-32", "utf-7", "iso-2022", "hz-gb"];

fn is_ascii_compatible(parameters: &str) -> bool {
    parameters.split(';').all(|parameter| {
        let Some((name, value)) = parameter.split_once('=') else { return true };
        let value = value.trim().trim_matches('"').to_ascii_lowercase();
        !name.trim().eq_ignore_ascii_case("charset") || !OTHERS.iter().any(|other| value.starts_with(other))
    })
}

/// Origins that a document may refer to.
#[derive(Clone, Copy, Debug)]
pub struct RewriteContext<'m> {
    /// Origins that are served below paths.
    pub map: &'m OriginMap,
    /// Host and port of the requested document, in lower case and without port 443; empty if unknown.
    pub own: &'m str,
}

/// Rewrites one document.
#[derive(Debug)]
pub struct Rewriter(Inner);

#[derive(Debug)]
enum Inner {
    Markup(Box<html::Markup>),
    Css(css::Css),
    Manifest(manifest::Manifest),
    /// The document has ended.
    Passing,
}

impl Rewriter {
    /// A rewriter for a document of `kind`. `base` is the `Base` of its URLs.
    pub fn new(kind: DocumentKind, base: Base) -> Self {
        Self(match kind {
            DocumentKind::Html => Inner::Markup(Box::new(html::Markup::new(base, false))),
            DocumentKind::Xml => Inner::Markup(Box::new(html::Markup::new(base, true))),
            DocumentKind::Css => Inner::Css(css::Css::new(base)),
            DocumentKind::Manifest => Inner::Manifest(manifest::Manifest::new(base)),
        })
    }

    /// Processes the next piece and appends all decided bytes to `output`. The time is proportional to the length of
    /// `input`.
    pub fn write(&mut self, input: &[u8], context: RewriteContext<'_>, output: &mut Vec<u8>) {
        match &mut self.0 {
            Inner::Markup(markup) => markup.write(input, context, output),
            Inner::Css(css) => css.write(input, context, output),
            Inner::Manifest(manifest) => manifest.write(input, context, output),
            Inner::Passing => output.extend_from_slice(input),
        }
    }

    /// Ends the document: appends the buffered bytes to `output`.
    pub fn finish(&mut self, context: RewriteContext<'_>, output: &mut Vec<u8>) {
        match &mut self.0 {
            Inner::Markup(markup) => markup.finish(context, output),
            Inner::Css(css) => css.finish(context, output),
            Inner::Manifest(manifest) => manifest.finish(context, output),
            Inner::Passing => {}
        }
        self.0 = Inner::Passing;
    }

    /// Copies an incomplete tag or URL to `output` unchanged, as one longer than [`HELD`], and frees its memory.
    pub fn pass(&mut self, output: &mut Vec<u8>) {
        match &mut self.0 {
            Inner::Markup(markup) => markup.pass(output),
            Inner::Css(css) => css.pass(output),
            Inner::Manifest(manifest) => manifest.pass(output),
            Inner::Passing => {}
        }
    }

    /// Size of the buffers in bytes.
    pub fn held(&self) -> usize {
        match &self.0 {
            Inner::Markup(markup) => markup.held(),
            Inner::Css(css) => css.held(),
            Inner::Manifest(manifest) => manifest.held(),
            Inner::Passing => 0,
        }
    }
}

/// Frees an empty buffer of more than 1 KiB.
fn trim(buffer: &mut Vec<u8>) {
    // A small buffer stays for the next tag or URL.
    if buffer.is_empty() && buffer.capacity() > 1 << 10 {
        *buffer = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::{context, map};

    #[test]
    fn what_is_passed_keeps_its_urls_and_later_ones_change() {
        let long = "x".repeat(5_000);
        for (kind, first, second, rest) in [
            (
                DocumentKind::Html,
                format!("<img alt=\"{long}"),
                "\" src=https://static.example/a>",
                ("<img src=https://static.example/b>", "<img src=/_s/b>"),
            ),
            (
                DocumentKind::Html,
                format!("<style>a{{b:url(https://static.example/{long}"),
                ")}",
                ("c{d:url(https://static.example/e)}</style>", "c{d:url(/_s/e)}</style>"),
            ),
            (
                DocumentKind::Css,
                format!("@import \"https://static.example/{long}"),
                "\";",
                ("@import \"https://static.example/a\";", "@import \"/_s/a\";"),
            ),
            (
                DocumentKind::Manifest,
                format!("{{\"icons\":[{{\"src\":\"https://static.example/{long}"),
                "\"},",
                ("{\"src\":\"https://static.example/a\"}]}", "{\"src\":\"/_s/a\"}]}"),
            ),
        ] {
            let (map, mut rewriter, mut output) = (map(), Rewriter::new(kind, Base::Own), Vec::new());
            rewriter.write(first.as_bytes(), context(&map), &mut output);
            assert!(rewriter.held() >= 5_000, "{kind:?}");
            rewriter.pass(&mut output);
            assert!(rewriter.held() <= 1 << 10, "{kind:?}: {}", rewriter.held());
            for text in [second, rest.0] {
                rewriter.write(text.as_bytes(), context(&map), &mut output);
            }
            rewriter.finish(context(&map), &mut output);
            assert_eq!(String::from_utf8_lossy(&output), format!("{first}{second}{}", rest.1), "{kind:?}");
        }
    }
}
