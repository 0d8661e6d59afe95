//! Finds URLs within HTML, CSS, SVG, web manifests and headers, and replaces those of origins that are served below a path
//! of another host.
//!
//! What is replaced is the beginning of a URL: `https://static.example/a.css` becomes `/_s/a.css`. Every other byte stays as
//! it is, also of what is malformed, and what is not understood is left alone. Documents come in pieces with borders anywhere;
//! what is held of one is bounded ([`HELD`]), and longer tags and URLs pass as they are. Nothing here reads or waits.
//!
//! Documents are read as far as it takes to find the URLs: tags, their attributes, and where text is no markup (scripts,
//! comments). A document that is read wrongly stays as safe as it was: neither what is taken out nor what is put in its
//! place has a character that separates anything in HTML, CSS or JSON.

mod css;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod headers;
mod html;
mod insert;
mod manifest;
mod map;
mod policy;
mod script;
mod tag;
mod text;

pub use headers::{link, of_bytes, refresh};
pub use insert::Insertion;
pub use map::{Base, Map, Origin, OriginError, Place, Prefix, PrefixError};
pub use policy::policy;

/// The most bytes of a document that are held: a tag that is longer passes as it is.
pub const HELD: usize = 64 << 10;

/// Goes up with every change of what becomes of a document: copies that were changed in another way are old.
pub const VERSION: u32 = 3;

/// Kinds of documents that have URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// HTML.
    Html,
    /// XML with the elements of HTML or SVG.
    Xml,
    /// A style sheet.
    Css,
    /// A web application manifest.
    Manifest,
}

impl Kind {
    /// The kind of what has this `Content-Type`; `None` where it has no URLs that are looked for, or a charset in which ASCII is
    /// not what it looks like.
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

/// Encodings in which bytes below 128 do not always stand for ASCII.
const OTHERS: [&str; 5] = ["utf-16", "utf-32", "utf-7", "iso-2022", "hz-gb"];

fn is_ascii_compatible(parameters: &str) -> bool {
    parameters.split(';').all(|parameter| {
        let Some((name, value)) = parameter.split_once('=') else { return true };
        let value = value.trim().trim_matches('"').to_ascii_lowercase();
        !name.trim().eq_ignore_ascii_case("charset") || !OTHERS.iter().any(|other| value.starts_with(other))
    })
}

/// What a document may name.
#[derive(Clone, Copy, Debug)]
pub struct Context<'m> {
    /// The origins that are served below paths.
    pub map: &'m Map,
    /// Host and port that the document was asked for at, in lower case and without port 443; empty if they are unknown.
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
    /// The document is over.
    Passing,
}

impl Rewriter {
    /// For a document of this kind. `base` is that of its URL.
    pub fn new(kind: Kind, base: Base) -> Self {
        Self(match kind {
            Kind::Html => Inner::Markup(Box::new(html::Markup::new(base, false))),
            Kind::Xml => Inner::Markup(Box::new(html::Markup::new(base, true))),
            Kind::Css => Inner::Css(css::Css::new(base)),
            Kind::Manifest => Inner::Manifest(manifest::Manifest::new(base)),
        })
    }

    /// Takes the next piece and appends what can be said of the document to `output`. Takes time in proportion to the piece.
    pub fn write(&mut self, input: &[u8], context: Context<'_>, output: &mut Vec<u8>) {
        match &mut self.0 {
            Inner::Markup(markup) => markup.write(input, context, output),
            Inner::Css(css) => css.write(input, context, output),
            Inner::Manifest(manifest) => manifest.write(input, context, output),
            Inner::Passing => output.extend_from_slice(input),
        }
    }

    /// The document ends: appends what was held of it.
    pub fn finish(&mut self, context: Context<'_>, output: &mut Vec<u8>) {
        match &mut self.0 {
            Inner::Markup(markup) => markup.finish(context, output),
            Inner::Css(css) => css.finish(context, output),
            Inner::Manifest(manifest) => manifest.finish(context, output),
            Inner::Passing => {}
        }
        self.0 = Inner::Passing;
    }

    /// Bytes that are held.
    pub fn held(&self) -> usize {
        match &self.0 {
            Inner::Markup(markup) => markup.held(),
            Inner::Css(css) => css.held(),
            Inner::Manifest(manifest) => manifest.held(),
            Inner::Passing => 0,
        }
    }
}
