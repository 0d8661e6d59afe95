//! Tokenizer for a tag, and changes of its attributes.

use std::ops::Range;

use crate::RewriteContext;
use crate::css;
use crate::headers::{LinkKind, refresh_edit};
use crate::map::{Base, Edit, apply};
use crate::policy::policy;
use crate::text::{Syntax, decoded};

/// Maximum number of stored bytes of an element's name.
pub(crate) const NAME: usize = 32;

/// State within a [`Tag`] (HTML sections 13.2.5.8 and 13.2.5.32 to 13.2.5.40).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TagState {
    Name,
    BeforeAttribute,
    Attribute,
    AfterAttribute,
    BeforeValue,
    Double,
    Single,
    Unquoted,
    AfterValue,
    Slash,
}

impl TagState {
    /// The state after `byte`; `None` at the end of the [`Tag`].
    #[expect(clippy::match_same_arms, reason = "the first arm that fits decides")]
    pub(crate) fn next(self, byte: u8) -> Option<Self> {
        let is_space = matches!(byte, b'\t' | b'\n' | 0x0c | b'\r' | b' ');
        Some(match (self, byte) {
            (Self::Double, b'"') | (Self::Single, b'\'') => Self::AfterValue,
            (Self::Double | Self::Single, _) => self,
            (_, b'>') => return None,
            (Self::BeforeValue, b'"') => Self::Double,
            (Self::BeforeValue, b'\'') => Self::Single,
            (Self::BeforeValue, _) if is_space => self,
            (Self::BeforeValue, _) => Self::Unquoted,
            (Self::Attribute | Self::AfterAttribute, b'=') => Self::BeforeValue,
            (Self::Attribute | Self::AfterAttribute, _) if is_space => Self::AfterAttribute,
            (Self::Unquoted, b'/') => self,
            (_, b'/') => Self::Slash,
            (_, _) if is_space => Self::BeforeAttribute,
            (Self::Name | Self::Unquoted, _) => self,
            _ => Self::Attribute,
        })
    }
}

/// Maximum number of attributes that are read. A [`Tag`] with more stays unchanged, which bounds time and memory.
const MOST: usize = 500;

/// A tag, from `<` to `>`.
#[derive(Debug)]
pub(crate) struct Tag<'t> {
    bytes: &'t [u8],
    name: &'t [u8],
    attributes: Vec<Attribute>,
}

#[derive(Clone, Debug, Default)]
struct Attribute {
    name: Range<usize>,
    /// The range of the value without quotes.
    value: Range<usize>,
}

/// Syntax of an attribute's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Url,
    /// URL of a style sheet with an `integrity` digest.
    DigestedUrl,
    /// The candidates of a `srcset`.
    Candidates,
    Style,
    Refresh,
    Policy,
    Base,
}

impl<'t> Tag<'t> {
    /// Reads the attributes of a start tag with a known name.
    pub(crate) fn read(bytes: &'t [u8], name: &'t [u8]) -> Self {
        let mut attributes: Vec<Attribute> = Vec::new();
        let mut place = TagState::Name;
        for (at, &byte) in bytes.iter().enumerate().skip(1) {
            let next = place.next(byte);
            if place == TagState::Attribute && next != Some(TagState::Attribute) {
                attributes.last_mut().expect("one began").name.end = at;
            } else if place == TagState::Unquoted && next != Some(TagState::Unquoted) {
                attributes.last_mut().expect("one began").value.end = at;
            }
            match next {
                Some(TagState::Attribute) if place != TagState::Attribute => {
                    attributes.push(Attribute { name: at..at, value: 0..0 });
                }
                Some(TagState::Double | TagState::Single) if place == TagState::BeforeValue => {
                    attributes.last_mut().expect("one began").value = at + 1..at + 1;
                }
                Some(TagState::Unquoted) if place == TagState::BeforeValue => {
                    attributes.last_mut().expect("one began").value = at..at;
                }
                Some(TagState::AfterValue) if matches!(place, TagState::Double | TagState::Single) => {
                    attributes.last_mut().expect("one began").value.end = at;
                }
                None => break,
                _ => {}
            }
            place = next.unwrap_or(place);
        }
        if attributes.len() > MOST {
            attributes.clear();
        }
        Self { bytes, name, attributes }
    }

    /// Appends the [`Tag`] with its changes. The first `base` element of a document changes the [`Base`] of later URLs;
    /// further ones have no effect (HTML section 4.2.3).
    pub(crate) fn write(
        &self,
        base: &mut Base,
        has_base: &mut bool,
        context: RewriteContext<'_>,
        output: &mut Vec<u8>,
    ) {
        let mut from = 0;
        let link = if same(self.name, "link") { self.link_kind() } else { LinkKind::Usual };
        let meta = if same(self.name, "meta") { self.meta() } else { None };
        for attribute in &self.attributes {
            let Some(content) = self.content(attribute, link, meta) else { continue };
            let value = &self.bytes[attribute.value.clone()];
            if value.is_empty() {
                continue;
            }
            output.extend_from_slice(&self.bytes[from..attribute.value.start]);
            from = attribute.value.end;
            match content {
                Content::Base if *has_base => apply(value, &[], output),
                Content::Base => {
                    *has_base = true;
                    // Before the change: the URL of the element itself does not resolve against itself.
                    write_url(value, *base, context, output);
                    *base = context.map.base(*base, value, context.own, Syntax::Html);
                }
                Content::Url => write_url(value, *base, context, output),
                Content::DigestedUrl => {
                    let edit = context.map.edit_unchanged(*base, value, Syntax::Html);
                    apply(value, edit.as_slice(), output);
                }
                Content::Candidates => apply(value, &candidates(value, *base, context), output),
                Content::Style => write_style(value, *base, context, output),
                Content::Refresh => {
                    let edit = refresh_edit(value, *base, context.map, Syntax::Html);
                    apply(value, edit.as_slice(), output);
                }
                Content::Policy => self.write_policy(attribute, context, output),
            }
        }
        output.extend_from_slice(&self.bytes[from..]);
    }

    /// The [`Syntax`] of an attribute's value; `None` if it contains no URL to rewrite. `link` is the kind of a
    /// `link` element, `meta` is the syntax of a `meta` element's content.
    fn content(&self, attribute: &Attribute, link: LinkKind, meta: Option<Content>) -> Option<Content> {
        let is_one_of = |names: &[&str]| names.iter().any(|name| same(self.name, name));
        let name = self.bytes[attribute.name.clone()].to_ascii_lowercase();
        // The attributes of custom elements have no defined meaning. A name that was cut to [`NAME`] bytes may be one
        // of a custom element.
        let is_custom = self.name.contains(&b'-') || self.name.len() == NAME;
        match &name[..] {
            b"style" => Some(Content::Style),
            _ if is_custom => None,
            b"href" if is_one_of(&["base"]) => Some(Content::Base),
            b"href" if link == LinkKind::Canonical => None,
            b"href" if link == LinkKind::Digested => Some(Content::DigestedUrl),
            b"href" | b"src" | b"xlink:href" => Some(Content::Url),
            b"srcset" | b"imagesrcset" => Some(Content::Candidates),
            b"action" if is_one_of(&["form"]) => Some(Content::Url),
            b"formaction" if is_one_of(&["button", "input"]) => Some(Content::Url),
            b"poster" if is_one_of(&["video"]) => Some(Content::Url),
            b"data" if is_one_of(&["object"]) => Some(Content::Url),
            b"background" if is_one_of(&["body", "table", "td", "th", "tr"]) => Some(Content::Url),
            b"content" => meta,
            _ => None,
        }
    }

    /// The [`LinkKind`] of a `link` element.
    fn link_kind(&self) -> LinkKind {
        let has = |name, word: &str| {
            let value = self.value(name).unwrap_or_default();
            value.split(u8::is_ascii_whitespace).any(|found| same(found, word))
        };
        let is_style = has("rel", "stylesheet") || has("as", "style");
        if has("rel", "canonical") {
            LinkKind::Canonical
        } else if is_style && self.value("integrity").is_some_and(|value| !value.is_empty()) {
            LinkKind::Digested
        } else {
            LinkKind::Usual
        }
    }

    fn meta(&self) -> Option<Content> {
        let kind = self.value("http-equiv")?.trim_ascii();
        if same(kind, "refresh") {
            Some(Content::Refresh)
        } else if same(kind, "content-security-policy") {
            Some(Content::Policy)
        } else {
            None
        }
    }

    fn value(&self, name: &str) -> Option<&'t [u8]> {
        // HTML section 13.2.5.33: the first of several attributes with one name is effective.
        let found =
            self.attributes.iter().find(|attribute| same(&self.bytes[attribute.name.clone()], name))?;
        Some(&self.bytes[found.value.clone()])
    }

    fn write_policy(&self, attribute: &Attribute, context: RewriteContext<'_>, output: &mut Vec<u8>) {
        let value = &self.bytes[attribute.value.clone()];
        // Added sources contain spaces, which would end an unquoted value.
        let is_quoted = matches!(self.bytes[attribute.value.start - 1], b'"' | b'\'');
        // A value with character references would have to be encoded again.
        let text = std::str::from_utf8(value).ok().filter(|_| is_quoted && !value.contains(&b'&'));
        match text.and_then(|text| policy(text, context.map, context.own)) {
            Some(changed) => output.extend_from_slice(changed.as_bytes()),
            None => output.extend_from_slice(value),
        }
    }
}

fn same(bytes: &[u8], text: &str) -> bool {
    bytes.eq_ignore_ascii_case(text.as_bytes())
}

fn write_url(value: &[u8], base: Base, context: RewriteContext<'_>, output: &mut Vec<u8>) {
    apply(value, context.map.edit(base, value, Syntax::Html).as_slice(), output);
}

fn write_style(value: &[u8], base: Base, context: RewriteContext<'_>, output: &mut Vec<u8>) {
    // Only a function has a URL. A character reference could be its parenthesis.
    if !value.contains(&b'(') && !value.contains(&b'&') {
        return output.extend_from_slice(value);
    }
    let (text, starts) = decoded(value);
    let mut edits = css::edits(&text, base, context.map);
    for edit in &mut edits {
        edit.range = starts[edit.range.start]..starts[edit.range.end];
    }
    apply(value, &edits, output);
}

/// The [`Edit`]s of a `srcset` (HTML section 4.8.4.2.2): URLs up to white space, with descriptors up to a comma.
fn candidates<'m>(value: &[u8], base: Base, context: RewriteContext<'m>) -> Vec<Edit<'m>> {
    let mut edits = Vec::new();
    let mut at = 0;
    while at < value.len() {
        let skipped = value[at..].iter().take_while(|byte| byte.is_ascii_whitespace() || **byte == b',');
        at += skipped.count();
        let length = value[at..].iter().position(u8::is_ascii_whitespace).unwrap_or(value.len() - at);
        let url = &value[at..at + length];
        let trimmed = url.iter().rposition(|byte| *byte != b',').map_or(0, |last| last + 1);
        edits.extend(context.map.edit(base, &url[..trimmed], Syntax::Html).map(|edit| edit.at(at)));
        at += length;
        // HTML section 4.8.4.2.2: a comma at the end of a URL ends the candidate, without descriptors.
        if trimmed == url.len() {
            at += descriptors(&value[at..]);
        }
    }
    edits
}

/// The length of the descriptors of one candidate: up to a comma outside of parentheses.
fn descriptors(text: &[u8]) -> usize {
    let mut is_within = false;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'(' => is_within = true,
            b')' => is_within = false,
            b',' if !is_within => return at,
            _ => {}
        }
    }
    text.len()
}
