//! Inserts a tag into the head of an HTML document while it streams.
//!
//! The position is after `<head>` and its leading `meta` elements, so that a charset declaration stays within the first
//! 1,024 bytes; without a `<head>` tag, it is before the first element. Documents with text or an end tag before that
//! point, or without such a point in the first [`HELD`] bytes, are left unchanged, because they may not be pages. At
//! most the start of one tag is buffered.
//!
//! The rewriter of [`html`](crate::html) is no basis for the search: it buffers whole tags to read their attributes, and
//! skips raw text and foreign elements, which cannot occur before the position. Both share the states within tags
//! ([`TagState`]) and within comments ([`Comment`]).

use crate::HELD;
use crate::html::Comment;
use crate::tag::TagState;

/// Length of the longest relevant name.
const NAME: usize = 4;

/// Inserts a tag into one document.
#[derive(Debug)]
pub struct Insertion {
    state: State,
    /// Buffered bytes: `<`, the next character, and a name.
    held: Vec<u8>,
    seen: usize,
    is_done: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Text,
    Open,
    /// In the name of a start tag.
    Name,
    /// In an `html`, `head` or `meta` tag, which stays before the insertion.
    Tag(TagState),
    Comment(Comment),
    Bogus,
}

impl Default for Insertion {
    fn default() -> Self {
        Self { state: State::Text, held: Vec::new(), seen: 0, is_done: None }
    }
}

impl Insertion {
    /// Returns whether the tag was inserted; `None` while the position is being searched. Afterwards all input is
    /// copied unchanged.
    pub fn is_done(&self) -> Option<bool> {
        self.is_done
    }

    /// Processes the next piece and appends all decided bytes to `output`, with `tag` at its position.
    pub fn write(&mut self, input: &[u8], tag: &[u8], output: &mut Vec<u8>) {
        let mut rest = input;
        while self.is_done.is_none() {
            let Some(&byte) = rest.first() else { return };
            self.seen += 1;
            if self.seen > HELD {
                self.end(false, output);
            } else if self.byte(byte, tag, output) {
                rest = &rest[1..];
            }
        }
        output.extend_from_slice(rest);
    }

    /// Ends the document: appends the buffered bytes.
    pub fn finish(&mut self, output: &mut Vec<u8>) {
        if self.is_done.is_none() {
            self.end(false, output);
        }
    }

    fn end(&mut self, is_found: bool, output: &mut Vec<u8>) {
        self.is_done = Some(is_found);
        output.append(&mut self.held);
    }

    /// Inserts the tag before the buffered bytes.
    fn insert(&mut self, tag: &[u8], output: &mut Vec<u8>) {
        output.extend_from_slice(tag);
        self.end(true, output);
    }

    /// Processes one byte. Returns `false` if it must be processed again, or copied.
    fn byte(&mut self, byte: u8, tag: &[u8], output: &mut Vec<u8>) -> bool {
        match self.state {
            State::Text => return self.text(byte, output),
            State::Open => return self.open(byte, tag, output),
            State::Name => return self.name(byte, tag, output),
            State::Comment(comment) => self.state = comment.next(byte).map_or(State::Text, State::Comment),
            State::Bogus if byte == b'>' => self.state = State::Text,
            State::Bogus => {}
            State::Tag(place) => self.state = place.next(byte).map_or(State::Text, State::Tag),
        }
        output.push(byte);
        true
    }

    fn text(&mut self, byte: u8, output: &mut Vec<u8>) -> bool {
        match byte {
            b'<' => {
                self.held.push(byte);
                self.state = State::Open;
            }
            // White space, and the byte order mark of UTF-8, which must stay first.
            b'\t' | b'\n' | 0x0c | b'\r' | b' ' => output.push(byte),
            0xef | 0xbb | 0xbf if self.seen <= 3 => output.push(byte),
            _ => {
                self.end(false, output);
                return false;
            }
        }
        true
    }

    /// Processes a byte after `<`, or after a part of `<!--` or `</head`.
    fn open(&mut self, byte: u8, tag: &[u8], output: &mut Vec<u8>) -> bool {
        match (&self.held[..], byte) {
            (b"<", _) if byte.is_ascii_alphabetic() => {
                self.held.push(byte);
                self.state = State::Name;
                return true;
            }
            (b"<", b'!' | b'/') | (b"<!", b'-') => {
                self.held.push(byte);
                return true;
            }
            (b"<!-", b'-') => {
                self.held.push(byte);
                self.state = State::Comment(Comment::Start);
                output.append(&mut self.held);
                return true;
            }
            (b"<", b'?') | (b"<!" | b"<!-", _) => self.state = State::Bogus,
            (held, _) if held.starts_with(b"</") => return self.end_tag(byte, tag, output),
            _ => self.end(false, output),
        }
        output.append(&mut self.held);
        false
    }

    /// `</head>` is the last position within the head. Other end tags do not occur at the start of a page.
    fn end_tag(&mut self, byte: u8, tag: &[u8], output: &mut Vec<u8>) -> bool {
        let name = &self.held[2..];
        if name.len() < NAME && byte.is_ascii_alphabetic() {
            self.held.push(byte);
            return true;
        }
        if name.eq_ignore_ascii_case(b"head") && ends_name(byte) {
            self.insert(tag, output);
        } else {
            self.end(false, output);
        }
        false
    }

    fn name(&mut self, byte: u8, tag: &[u8], output: &mut Vec<u8>) -> bool {
        // The buffer has the `<` too, so it has at most one byte more than the longest name.
        if !ends_name(byte) && self.held.len() <= NAME {
            self.held.push(byte);
            return true;
        }
        let name = &self.held[1..];
        let passes = [&b"html"[..], b"head", b"meta"].iter().any(|known| name.eq_ignore_ascii_case(known));
        if passes && ends_name(byte) {
            self.state = State::Tag(TagState::Name);
            output.append(&mut self.held);
        } else {
            self.insert(tag, output);
        }
        false
    }
}

fn ends_name(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\n' | 0x0c | b'\r' | b' ' | b'/' | b'>')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::in_pieces;

    fn inserted(document: &str) -> String {
        in_pieces(document.as_bytes(), |pieces| {
            let (mut insertion, mut output) = (Insertion::default(), Vec::new());
            for piece in pieces {
                insertion.write(piece, b"<S>", &mut output);
                assert!(insertion.held.len() <= 8);
            }
            insertion.finish(&mut output);
            output
        })
    }

    #[test]
    fn a_tag_comes_after_the_metas_that_begin_the_head() {
        for (document, becomes) in [
            ("<!doctype html><html><head><title>x</title>", "<!doctype html><html><head><S><title>x</title>"),
            (
                "\u{feff}<!DOCTYPE html>\n<HTML lang=\"a>b\">\n<HEAD>\n<META charset=utf-8>\n<meta content='>'><link>",
                "\u{feff}<!DOCTYPE html>\n<HTML lang=\"a>b\">\n<HEAD>\n<META charset=utf-8>\n<meta content='>'><S><link>",
            ),
            ("<!-- <head> --><title>x</title>", "<!-- <head> --><S><title>x</title>"),
            ("<?xml version='1'?><!x><html><body>x", "<?xml version='1'?><!x><html><S><body>x"),
            ("<head></head><body>", "<head><S></head><body>"),
            ("<p>x", "<S><p>x"),
            ("<header>x", "<S><header>x"),
            ("<metal>x", "<S><metal>x"),
            ("<!--><a>", "<!--><S><a>"),
            ("<head/><script>", "<head/><S><script>"),
        ] {
            assert_eq!(inserted(document), becomes);
        }
    }

    #[test]
    fn what_may_be_no_page_stays() {
        let long = format!("<!--{}--><p>", "x".repeat(HELD));
        for document in [
            "",
            "x<p>",
            "{\"a\":\"<p>\"}",
            "</p><p>",
            "</header><p>",
            "< p>",
            "<",
            "<!-",
            "<htm",
            "</",
            &long,
        ] {
            assert_eq!(inserted(document), document);
        }
    }
}
