//! Tokenizer and rewriter for HTML and XML: positions of tags, and text that is not markup (HTML section 13.2.5).

use memchr::memchr;

use crate::css::Css;
use crate::map::Base;
use crate::script::RawText;
use crate::tag::{NAME, Tag, TagState};
use crate::{HELD, RewriteContext, trim};

// Without `noscript`: browsers without scripts load the URLs in it.
/// Elements whose text is not markup, except within `svg` and `math`.
const RAW: [&[u8]; 6] = [b"iframe", b"noembed", b"noframes", b"textarea", b"title", b"xmp"];

/// Rewriter for one document.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Markup {
    base: Base,
    has_base: bool,
    is_xml: bool,
    /// Number of open `svg` and `math` elements.
    foreign: u32,
    state: State,
    /// Buffered bytes: a [`Tag`], or the possible start of one.
    held: Vec<u8>,
    /// The tag's name in lower case, cut to [`NAME`] bytes.
    name: Vec<u8>,
    is_end_tag: bool,
    /// The [`Tag`] exceeds [`HELD`] and is copied unchanged.
    passes: bool,
    raw: Option<RawText>,
    /// Rewriter of the raw text, if it is a style sheet.
    css: Option<Css>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Text,
    /// After `<`.
    Open,
    Tag(TagState),
    Comment(Comment),
    /// Up to the next `>`: document types and bogus comments (HTML section 13.2.5.41).
    Bogus,
    /// Up to `?>`; `true` after the question mark.
    Instruction(bool),
    /// Up to `]]>`; the number of brackets so far.
    Data(u8),
    Raw,
    Plaintext,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comment {
    Start,
    StartDash,
    Text,
    Dash,
    End,
    EndBang,
}

impl Comment {
    /// The state after `byte`; `None` at the end of the comment.
    pub(crate) fn next(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Start | Self::StartDash | Self::End | Self::EndBang, b'>') => return None,
            (Self::Start, b'-') => Self::StartDash,
            (Self::StartDash | Self::Dash | Self::End, b'-') => Self::End,
            (Self::Text | Self::EndBang, b'-') => Self::Dash,
            (Self::End, b'!') => Self::EndBang,
            _ => Self::Text,
        })
    }
}

impl Markup {
    pub(crate) fn new(base: Base, is_xml: bool) -> Self {
        Self {
            base,
            has_base: false,
            is_xml,
            foreign: 0,
            state: State::Text,
            held: Vec::new(),
            name: Vec::new(),
            is_end_tag: false,
            passes: false,
            raw: None,
            css: None,
        }
    }

    pub(crate) fn held(&self) -> usize {
        self.held.capacity()
            + self.raw.as_ref().map_or(0, RawText::held)
            + self.css.as_ref().map_or(0, Css::held)
    }

    /// Copies an incomplete tag or URL unchanged.
    pub(crate) fn pass(&mut self, output: &mut Vec<u8>) {
        if let Some(css) = &mut self.css {
            css.pass(output);
        }
        if matches!(self.state, State::Tag(_)) {
            self.passes = true;
            output.append(&mut self.held);
        }
        self.held.shrink_to_fit();
    }

    /// Processes the next piece.
    pub(crate) fn write(&mut self, input: &[u8], context: RewriteContext<'_>, output: &mut Vec<u8>) {
        let mut rest = input;
        while let Some(&byte) = rest.first() {
            let plain = match (self.state, &self.raw) {
                (State::Text, _) => memchr(b'<', rest).unwrap_or(rest.len()),
                (State::Raw, Some(raw)) if raw.passes() => memchr(b'<', rest).unwrap_or(rest.len()),
                (State::Plaintext, _) => rest.len(),
                _ => 0,
            };
            if plain > 0 {
                self.text(&rest[..plain], context, output);
                rest = &rest[plain..];
            } else if self.byte(byte, context, output) {
                rest = &rest[1..];
            }
        }
        trim(&mut self.held);
    }

    /// Ends the document.
    pub(crate) fn finish(&mut self, context: RewriteContext<'_>, output: &mut Vec<u8>) {
        if let Some(mut raw) = self.raw.take() {
            self.text(&raw.take(), context, output);
        }
        if let Some(mut css) = self.css.take() {
            css.finish(context, output);
        }
        output.append(&mut self.held);
    }

    /// Processes text of an element.
    fn text(&mut self, text: &[u8], context: RewriteContext<'_>, output: &mut Vec<u8>) {
        match &mut self.css {
            Some(css) => css.write(text, context, output),
            None => output.extend_from_slice(text),
        }
    }

    /// Processes one byte. Returns `false` if it must be processed again in the new state.
    fn byte(&mut self, byte: u8, context: RewriteContext<'_>, output: &mut Vec<u8>) -> bool {
        match self.state {
            State::Text => {
                self.held.push(byte);
                self.state = State::Open;
                return true;
            }
            State::Open => return self.open(byte, output),
            State::Tag(place) => {
                self.within_tag(place, byte, context, output);
                return true;
            }
            State::Raw => return self.within_raw(byte, context, output),
            State::Comment(comment) => self.state = comment.next(byte).map_or(State::Text, State::Comment),
            State::Bogus | State::Instruction(true) | State::Data(2) if byte == b'>' => {
                self.state = State::Text;
            }
            State::Instruction(_) => self.state = State::Instruction(byte == b'?'),
            State::Data(brackets) => {
                self.state = State::Data(if byte == b']' { (brackets + 1).min(2) } else { 0 });
            }
            State::Bogus | State::Plaintext => {}
        }
        output.push(byte);
        true
    }

    /// Processes a byte after `<`, `</`, or a part of `<!--` or `<![CDATA[`.
    fn open(&mut self, byte: u8, output: &mut Vec<u8>) -> bool {
        match (&self.held[..], byte) {
            (b"<" | b"</", _) if byte.is_ascii_alphabetic() => {
                self.is_end_tag = self.held.len() == 2;
                self.name.clear();
                self.passes = false;
                self.name.push(byte.to_ascii_lowercase());
                self.held.push(byte);
                self.state = State::Tag(TagState::Name);
                return true;
            }
            (b"<", b'/' | b'!') => {
                self.held.push(byte);
                return true;
            }
            // HTML section 13.2.5.6: `<?` begins a comment up to `>`. Only XML has processing instructions.
            (b"<", b'?') => self.state = if self.is_xml { State::Instruction(false) } else { State::Bogus },
            (b"<", _) => self.state = State::Text,
            // HTML section 13.2.5.7: `</>` is no tag, and other characters after `</` begin a comment.
            (b"</", b'>') => {
                self.held.push(byte);
                self.state = State::Text;
                output.append(&mut self.held);
                return true;
            }
            (b"</", _) => self.state = State::Bogus,
            _ => return self.declaration(byte, output),
        }
        output.append(&mut self.held);
        false
    }

    fn declaration(&mut self, byte: u8, output: &mut Vec<u8>) -> bool {
        let begins =
            |whole: &[u8]| whole.starts_with(&self.held) && whole.get(self.held.len()) == Some(&byte);
        // HTML section 13.2.5.42: elsewhere in HTML, `<![CDATA[` begins a comment up to `>`.
        let is_data = (self.is_xml || self.foreign > 0) && begins(b"<![CDATA[");
        if !is_data && !begins(b"<!--") {
            self.state = State::Bogus;
            output.append(&mut self.held);
            return false;
        }
        self.held.push(byte);
        let whole = match &self.held[..] {
            b"<!--" => State::Comment(Comment::Start),
            b"<![CDATA[" => State::Data(0),
            _ => return true,
        };
        self.state = whole;
        output.append(&mut self.held);
        true
    }

    fn within_tag(&mut self, place: TagState, byte: u8, context: RewriteContext<'_>, output: &mut Vec<u8>) {
        if self.passes {
            output.push(byte);
        } else {
            self.held.push(byte);
        }
        let Some(next) = place.next(byte) else {
            return self.tag_ended(place == TagState::Slash, context, output);
        };
        if next == TagState::Name && self.name.len() < NAME {
            self.name.push(byte.to_ascii_lowercase());
        }
        self.state = State::Tag(next);
        if self.held.len() >= HELD {
            self.passes = true;
            output.append(&mut self.held);
        }
    }

    fn tag_ended(&mut self, is_closed: bool, context: RewriteContext<'_>, output: &mut Vec<u8>) {
        // The attributes of end tags have no effect (HTML section 13.2.5), so they stay unchanged.
        if !self.passes && !self.is_end_tag {
            let tag = Tag::read(&self.held, &self.name);
            tag.write(&mut self.base, &mut self.has_base, context, output);
            self.held.clear();
        }
        output.append(&mut self.held);
        self.state = State::Text;
        let is_foreign = self.is_xml || self.foreign > 0;
        let opens_foreign = matches!(&self.name[..], b"svg" | b"math");
        if self.is_end_tag {
            self.foreign = self.foreign.saturating_sub(u32::from(opens_foreign));
        } else if opens_foreign && !is_closed {
            self.foreign = self.foreign.saturating_add(1);
        } else if &self.name[..] == b"plaintext" && !is_foreign {
            // HTML section 13.2.5.5: no end tag ends `plaintext`.
            self.state = State::Plaintext;
        } else if self.holds_raw_text(is_closed, is_foreign) {
            self.state = State::Raw;
            self.raw = Some(RawText::of(&self.name));
            self.css = (&self.name[..] == b"style").then(|| Css::new(self.base));
        }
    }

    fn holds_raw_text(&self, is_closed: bool, is_foreign: bool) -> bool {
        let name = &self.name[..];
        match name {
            // In XML and within `svg`, `<script/>` is an empty element; in HTML the slash is ignored.
            b"script" | b"style" => !(is_closed && is_foreign),
            _ => !is_foreign && RAW.contains(&name),
        }
    }

    fn within_raw(&mut self, byte: u8, context: RewriteContext<'_>, output: &mut Vec<u8>) -> bool {
        let Some(raw) = &mut self.raw else {
            self.state = State::Text;
            return false;
        };
        let mut text = Vec::new();
        // The byte after the name is processed again, as a part of the end tag.
        let ended = raw.byte(byte, &mut text).is_some();
        if ended {
            self.held = raw.take();
            self.name = raw.name().to_vec();
            self.raw = None;
            self.is_end_tag = true;
            self.passes = false;
            self.state = State::Tag(TagState::Name);
        }
        self.text(&text, context, output);
        if let Some(mut css) = self.css.take_if(|_| ended) {
            css.finish(context, output);
        }
        !ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::{context, in_pieces, map};

    fn rewritten_as(is_xml: bool, base: Base, text: &str) -> String {
        let map = map();
        in_pieces(text.as_bytes(), |pieces| {
            let (mut markup, mut output) = (Markup::new(base, is_xml), Vec::new());
            for piece in pieces {
                markup.write(piece, context(&map), &mut output);
            }
            markup.finish(context(&map), &mut output);
            output
        })
    }

    fn rewritten(text: &str) -> String {
        rewritten_as(false, Base::Own, text)
    }

    #[test]
    fn urls_of_attributes_are_changed_whatever_the_quotes() {
        for (text, becomes) in [
            ("<img src=\"https://static.example/a.png\" alt=x>", "<img src=\"/_s/a.png\" alt=x>"),
            ("<IMG SRC='//static.example/a'>", "<IMG SRC='/_s/a'>"),
            ("<a href=https://static.example>x</a>", "<a href=/_s/>x</a>"),
            (
                "<script src=\"https:&#x2F;&#x2F;static.example/a?b&amp;c\"></script>",
                "<script src=\"/_s/a?b&amp;c\"></script>",
            ),
            (
                "<img srcset=\"https://static.example/1, https://static.example/2 2x,/3 (a,b),https://static.example/4\">",
                "<img srcset=\"/_s/1, /_s/2 2x,/3 (a,b),/_s/4\">",
            ),
            (
                "<p style=\"a:url(&quot;https://static.example/x&quot;);b:url('//static.example/y')\">",
                "<p style=\"a:url(&quot;/_s/x&quot;);b:url('/_s/y')\">",
            ),
            ("<style>a{b:url(https://static.example/x)}</style>", "<style>a{b:url(/_s/x)}</style>"),
            (
                "<meta http-equiv=Refresh content=\"0; URL='https://static.example/x'\">",
                "<meta http-equiv=Refresh content=\"0; URL='/_s/x'\">",
            ),
            (
                "<meta content=\"img-src https://static.example\" http-equiv=content-security-policy>",
                "<meta content=\"img-src https://static.example https://www.example/_s/\" http-equiv=content-security-policy>",
            ),
            (
                "<video poster=//static.example/p><object data=//static.example/o><form action=//static.example/f>",
                "<video poster=/_s/p><object data=/_s/o><form action=/_s/f>",
            ),
            (
                "<svg><image xlink:href=\"https://static.example/i\"/><style/><a href=//static.example/x></svg><title><a href=//static.example/></title>",
                "<svg><image xlink:href=\"/_s/i\"/><style/><a href=/_s/x></svg><title><a href=//static.example/></title>",
            ),
        ] {
            assert_eq!(rewritten(text), becomes);
        }
    }

    #[test]
    fn text_scripts_comments_and_what_others_mean_stay() {
        for text in [
            "https://static.example/ <!-- <img src=https://static.example/a> -->",
            "<script>let a = '<img src=https://static.example/a>'</script>",
            "<script><!-- <script> </script> <img src=https://static.example/> --></script>",
            "<textarea><img src=https://static.example/a></textarea>",
            "<img data-src=https://static.example/a title=https://static.example/a>",
            "<x-image src=https://static.example/a>",
            "<anamethatiscutbeforeitsfirsthyphen-x src=https://static.example/a>",
            "<link rel=stylesheet integrity=sha384-x href=https://static.example/a.css>",
            "<link href=https://static.example/ rel=canonical>",
            "<!doctype html><!x src=https://static.example/><?x href=https://static.example/>",
            "<meta name=og:image content=https://static.example/a>",
            "< img src=https://static.example/a></ img src=https://static.example/>",
            "<img src=https://static.example/a",
            "<![CDATA[<!-- <img alt=\"<img src=https://static.example/>\">-->",
            "<plaintext><img src=https://static.example/></plaintext>",
        ] {
            assert_eq!(rewritten(text), text);
        }
        let long = format!("<img alt=\"{}\" src=https://static.example/a>", "x".repeat(HELD));
        assert_eq!(rewritten(&long), long, "longer than any tag");
        assert_eq!(
            rewritten(&format!("{long}<img src=//static.example/b>")),
            format!("{long}<img src=/_s/b>")
        );
    }

    #[test]
    fn the_base_of_a_document_is_respected() {
        let foreign = "<base href=https://other.example/><img src=https://static.example/a><style>a{b:url(//static.example/)}</style>";
        assert_eq!(rewritten(foreign), foreign);
        assert_eq!(
            rewritten("<base href=\"https://static.example/x/\"><img src=/a><img src=b>"),
            "<base href=\"/_s/x/\"><img src=/_s/a><img src=b>"
        );
        assert_eq!(
            rewritten("<base href=/x/><base href=https://other.example/><img src=//static.example/a>"),
            "<base href=/x/><base href=https://other.example/><img src=/_s/a>"
        );
        let placed = |text| rewritten_as(false, Base::Mapped(0), text);
        assert_eq!(placed("<a href=/x>"), "<a href=/_s/x>");
        assert_eq!(
            placed("<base href=https://www.example/><a href=/x><img src=//static.example/>"),
            "<base href=https://www.example/><a href=/x><img src=/_s/>"
        );
    }

    #[test]
    fn xml_has_its_own_places_without_markup() {
        let xml = |text| rewritten_as(true, Base::Own, text);
        let data =
            "<?x > <image href=\"//static.example/a\"/> ?><![CDATA[<image href=\"//static.example/a\"/>]]>";
        assert_eq!(xml(data), data);
        assert_eq!(
            xml(
                "<svg><title><image href=\"//static.example/a\"/></title><script/><image href=\"//static.example/b\"/></svg>"
            ),
            "<svg><title><image href=\"/_s/a\"/></title><script/><image href=\"/_s/b\"/></svg>"
        );
    }
}
