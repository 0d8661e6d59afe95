//! Rewriter for URLs in style sheets: `url(...)`, `@import "..."` and the strings of `image-set(...)` (CSS Syntax
//! Module Level 3).
//!
//! A state machine reads single bytes. Names and URLs with escapes stay unchanged.

use crate::map::{Base, Edit, apply};
use crate::text::Syntax;
use crate::{OriginMap, RewriteContext, trim};

/// Longest URL that is rewritten.
const URL: usize = 8 << 10;
/// Length of the longest relevant name, `-webkit-image-set`.
const NAME: usize = 17;

/// Rewriter for one style sheet.
#[derive(Debug)]
pub(crate) struct Css {
    base: Base,
    state: State,
    name: Name,
    /// The next string or `url(` is the URL of an `@import`.
    is_import: bool,
    /// Depth of open parentheses, and the depth inside the outermost open `image-set(`.
    depth: u32,
    set: Option<u32>,
    /// Buffered bytes of the present URL.
    held: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Plain,
    /// After a slash that may begin a comment.
    Slash,
    Comment,
    CommentStar,
    /// After `url(` and white space.
    UrlStart,
    Url(Handling),
    String {
        quote: u8,
        handling: Handling,
    },
    /// After a backslash in a string.
    StringEscape {
        quote: u8,
        handling: Handling,
    },
    UrlEscape(Handling),
}

/// Treatment of the present URL or string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handling {
    /// Buffered, and rewritten at its end if needed.
    Held,
    /// Copied unchanged.
    Passes,
}

/// The present name, in lower case.
#[derive(Clone, Copy, Debug, Default)]
struct Name {
    bytes: [u8; NAME],
    length: usize,
    is_at: bool,
}

impl Name {
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte.to_ascii_lowercase();
        }
        // The length grows beyond the stored bytes, so that the beginning of a long
        // name is not taken for the name.
        self.length = self.length.saturating_add(1);
    }

    fn is(&self, name: &str) -> bool {
        self.bytes.get(..self.length) == Some(name.as_bytes())
    }
}

impl Css {
    pub(crate) fn new(base: Base) -> Self {
        Self {
            base,
            state: State::Plain,
            name: Name::default(),
            is_import: false,
            depth: 0,
            set: None,
            held: Vec::new(),
        }
    }

    pub(crate) fn held(&self) -> usize {
        self.held.capacity()
    }

    /// Processes the next piece.
    pub(crate) fn write(&mut self, input: &[u8], context: RewriteContext<'_>, output: &mut Vec<u8>) {
        self.read(input, context.map, output, &mut |_, _| ());
        trim(&mut self.held);
    }

    /// Ends the style sheet.
    pub(crate) fn finish(&mut self, context: RewriteContext<'_>, output: &mut Vec<u8>) {
        self.release(context.map, output, &mut |_, _| ());
    }

    /// Processes bytes and reports each change, together with the number of bytes that had been read at the end of its
    /// URL.
    fn read<'m>(
        &mut self,
        input: &[u8],
        map: &'m OriginMap,
        output: &mut Vec<u8>,
        changed: &mut dyn FnMut(usize, Edit<'m>),
    ) {
        for (at, &byte) in input.iter().enumerate() {
            self.byte(byte, map, output, &mut |edit| changed(at, edit));
        }
    }

    fn byte<'m>(
        &mut self,
        byte: u8,
        map: &'m OriginMap,
        output: &mut Vec<u8>,
        changed: &mut dyn FnMut(Edit<'m>),
    ) {
        match self.state {
            State::Plain => self.plain(byte, output),
            State::Slash if byte == b'*' => {
                self.state = State::Comment;
                output.push(byte);
            }
            State::Slash => {
                self.state = State::Plain;
                self.plain(byte, output);
            }
            State::Comment => {
                if byte == b'*' {
                    self.state = State::CommentStar;
                }
                output.push(byte);
            }
            State::CommentStar => {
                self.state = match byte {
                    b'/' => State::Plain,
                    b'*' => State::CommentStar,
                    _ => State::Comment,
                };
                output.push(byte);
            }
            State::UrlStart if byte.is_ascii_whitespace() => output.push(byte),
            // CSS Syntax section 4.3.4: white space and a quote after `url(` make a function with a string.
            State::UrlStart if matches!(byte, b'"' | b'\'') => self.string(byte, Handling::Held, output),
            State::UrlStart => {
                self.state = State::Url(Handling::Held);
                self.url(byte, Handling::Held, map, output, changed);
            }
            State::Url(handling) => self.url(byte, handling, map, output, changed),
            State::UrlEscape(handling) => {
                self.state = State::Url(handling);
                self.take(byte, handling, output);
            }
            State::StringEscape { quote, handling } => {
                self.state = State::String { quote, handling };
                self.take(byte, handling, output);
            }
            State::String { quote, handling } => {
                self.within_string(byte, quote, handling, map, output, changed);
            }
        }
    }

    fn plain(&mut self, byte: u8, output: &mut Vec<u8>) {
        output.push(byte);
        if is_name(byte) {
            self.name.push(byte);
            return;
        }
        let name = std::mem::take(&mut self.name);
        if name.is_at && name.is("import") {
            self.is_import = true;
        } else if name.length > 0 && self.is_import {
            // The URL must directly follow `@import`.
            self.is_import = !name.is_at && byte == b'(' && name.is("url");
        }
        match byte {
            b'(' => {
                self.depth = self.depth.saturating_add(1);
                if name.is("url") || name.is("src") {
                    self.is_import = false;
                    self.state = State::UrlStart;
                } else if name.is("image-set") || name.is("-webkit-image-set") {
                    // The outermost only: strings in functions within it, such as
                    // `type("image/png")`, are no URLs.
                    self.set.get_or_insert(self.depth);
                }
            }
            b')' => self.close(),
            b'@' => self.name.is_at = true,
            b';' | b'{' | b'}' => self.is_import = false,
            b'/' => self.state = State::Slash,
            b'"' | b'\'' => {
                // `string` appends the quote itself.
                output.pop();
                let is_url = self.is_import || self.set == Some(self.depth);
                self.is_import = false;
                self.string(byte, if is_url { Handling::Held } else { Handling::Passes }, output);
            }
            _ => {}
        }
    }

    fn close(&mut self) {
        if self.set == Some(self.depth) {
            self.set = None;
        }
        self.depth = self.depth.saturating_sub(1);
    }

    fn string(&mut self, quote: u8, handling: Handling, output: &mut Vec<u8>) {
        output.push(quote);
        self.state = State::String { quote, handling };
    }

    fn within_string<'m>(
        &mut self,
        byte: u8,
        quote: u8,
        handling: Handling,
        map: &'m OriginMap,
        output: &mut Vec<u8>,
        changed: &mut dyn FnMut(Edit<'m>),
    ) {
        match byte {
            // A line end closes an unterminated string (CSS Syntax section 4.3.5).
            b'\n' | b'\r' | 0x0c => self.pass(output),
            _ if byte == quote => self.release(map, output, &mut |_, edit| changed(edit)),
            b'\\' => {
                self.state = State::StringEscape { quote, handling };
                return self.take(byte, handling, output);
            }
            _ => return self.take(byte, handling, output),
        }
        output.push(byte);
        self.state = State::Plain;
    }

    fn url<'m>(
        &mut self,
        byte: u8,
        handling: Handling,
        map: &'m OriginMap,
        output: &mut Vec<u8>,
        changed: &mut dyn FnMut(Edit<'m>),
    ) {
        match byte {
            b')' => {
                self.release(map, output, &mut |_, edit| changed(edit));
                output.push(byte);
                self.close();
                self.state = State::Plain;
            }
            // A `bad-url-token` (CSS Syntax section 4.3.6), which browsers ignore.
            b'"' | b'\'' | b'(' => {
                self.pass(output);
                output.push(byte);
                self.state = State::Url(Handling::Passes);
            }
            b'\\' => {
                self.state = State::UrlEscape(handling);
                self.take(byte, handling, output);
            }
            _ => self.take(byte, handling, output),
        }
    }

    /// Appends a byte to the present URL or string.
    fn take(&mut self, byte: u8, handling: Handling, output: &mut Vec<u8>) {
        if handling == Handling::Passes {
            return output.push(byte);
        }
        self.held.push(byte);
        if self.held.len() > URL {
            self.pass(output);
        }
    }

    /// Copies an incomplete URL unchanged.
    pub(crate) fn pass(&mut self, output: &mut Vec<u8>) {
        if self.held.is_empty() {
            return;
        }
        output.append(&mut self.held);
        trim(&mut self.held);
        self.state = match self.state {
            State::String { quote, .. } => State::String { quote, handling: Handling::Passes },
            State::StringEscape { quote, .. } => State::StringEscape { quote, handling: Handling::Passes },
            State::UrlEscape(_) => State::UrlEscape(Handling::Passes),
            _ => State::Url(Handling::Passes),
        };
    }

    /// Rewrites the buffered bytes, which are a complete URL.
    fn release<'m>(
        &mut self,
        map: &'m OriginMap,
        output: &mut Vec<u8>,
        changed: &mut dyn FnMut(usize, Edit<'m>),
    ) {
        // A URL with escapes may name any origin, so it stays unchanged.
        let edit =
            if self.held.contains(&b'\\') { None } else { map.edit(self.base, &self.held, Syntax::Plain) };
        if let Some(edit) = edit {
            apply(&self.held, std::slice::from_ref(&edit), output);
            changed(self.held.len(), edit);
            self.held.clear();
        }
        self.pass(output);
    }
}

fn is_name(byte: u8) -> bool {
    // A backslash makes a name unequal to all known ones, so that names with escapes stay unchanged.
    byte.is_ascii_alphanumeric() || byte >= 0x80 || b"-_\\".contains(&byte)
}

/// Returns the [`Edit`]s of a complete text, such as a `style` attribute.
pub(crate) fn edits<'m>(text: &[u8], base: Base, map: &'m OriginMap) -> Vec<Edit<'m>> {
    let mut found = Vec::new();
    let mut css = Css::new(base);
    let mut output = Vec::new();
    let mut held = 0;
    for (at, &byte) in text.iter().enumerate() {
        // An edit is relative to the buffered URL, and the byte that ends the URL empties the buffer.
        held = if css.held.is_empty() { held } else { at - css.held.len() };
        let start = if css.held.is_empty() { at } else { held };
        css.byte(byte, map, &mut output, &mut |edit| found.push(edit.at(start)));
    }
    let start = text.len() - css.held.len();
    css.release(map, &mut output, &mut |_, edit| found.push(edit.at(start)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::{context, in_pieces, map};

    fn rewritten(base: Base, text: &str) -> String {
        let map = map();
        in_pieces(text.as_bytes(), |pieces| {
            let (mut css, mut output) = (Css::new(base), Vec::new());
            for piece in pieces {
                css.write(piece, context(&map), &mut output);
            }
            css.finish(context(&map), &mut output);
            output
        })
    }

    #[test]
    fn urls_of_sheets_are_changed_and_nothing_else() {
        for (text, becomes) in [
            ("a{background:url(https://static.example/x.png)}", "a{background:url(/_s/x.png)}"),
            ("a{b:URL( 'https://static.example/x' )}", "a{b:URL( '/_s/x' )}"),
            ("@import \"https://static.example/x.css\" print;", "@import \"/_s/x.css\" print;"),
            ("@import/**/url(//static.example/x.css);", "@import/**/url(/_s/x.css);"),
            (
                "a{b:image-set('https://static.example/1' 1x,url(https://static.example/2) type('https://static.example/'))}",
                "a{b:image-set('/_s/1' 1x,url(/_s/2) type('https://static.example/'))}",
            ),
            (
                "@font-face{src:url(https://static.example/f.woff2)format(\"woff2\"),url(x)}",
                "@font-face{src:url(/_s/f.woff2)format(\"woff2\"),url(x)}",
            ),
        ] {
            assert_eq!(rewritten(Base::Own, text), becomes);
        }
        assert_eq!(
            rewritten(Base::Mapped(0), "a{b:url(/x.png),url(x.png)}"),
            "a{b:url(/_s/x.png),url(x.png)}"
        );
    }

    #[test]
    fn strings_comments_and_what_is_malformed_stay() {
        for text in [
            "a::before{content:\"https://static.example/\"}",
            "/* url(https://static.example/) */ b{}",
            "a{b:xurl(https://static.example/)}",
            "a{b:u\\rl(https://static.example/)}",
            "a{b:url(https:\\/\\/static.example/)}",
            "a{b:url(https://static.example/'x)}",
            "a{b:url('https://static.example/\n')}",
            "a{b:url(https://other.example/)}",
            "@namespace \"https://static.example/\";",
            "@import screen; a{b:\"https://static.example/\"}",
        ] {
            assert_eq!(rewritten(Base::Own, text), text);
        }
        let long = format!("a{{b:url(https://static.example/{})}}", "x".repeat(URL));
        assert_eq!(rewritten(Base::Own, &long), long, "longer than any URL");
    }

    #[test]
    fn changes_of_an_attribute_have_their_places() {
        let (map, text) = (map(), b"a:url(https://static.example/x);b:url('https://static.example/y')");
        let edits = edits(text, Base::Own, &map);
        let mut output = Vec::new();
        apply(text, &edits, &mut output);
        assert_eq!(output, b"a:url(/_s/x);b:url('/_s/y')");
    }
}
