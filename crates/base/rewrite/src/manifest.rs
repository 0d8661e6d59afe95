//! Rewriter for web application manifests: values of the JSON members that contain URLs.

use crate::map::{Base, apply};
use crate::text::Syntax;
use crate::{RewriteContext, trim};

/// Members with URLs. `id` is excluded: it identifies the application, and a changed value would identify another one.
const MEMBERS: [&[u8]; 6] = [b"src", b"url", b"start_url", b"scope", b"action", b"href"];

/// Longest string that is rewritten.
const URL: usize = 8 << 10;

// One bit of `objects` for each level.
/// Maximum nesting depth; deeper strings stay unchanged.
const DEPTH: u32 = 64;

/// Rewriter for one manifest.
#[derive(Debug)]
pub(crate) struct Manifest {
    base: Base,
    /// Bit set of the open brackets, the innermost lowest: 1 for an object, 0 for an array.
    objects: u64,
    depth: u32,
    /// The next string is a member's name.
    is_name: bool,
    /// The last name is one of [`MEMBERS`].
    has_url: bool,
    string: Option<Text>,
    held: Vec<u8>,
}

/// The present string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Text {
    is_name: bool,
    is_escaped: bool,
    /// Too long to be relevant; copied unchanged.
    passes: bool,
}

impl Manifest {
    pub(crate) fn new(base: Base) -> Self {
        Self { base, objects: 0, depth: 0, is_name: false, has_url: false, string: None, held: Vec::new() }
    }

    pub(crate) fn held(&self) -> usize {
        self.held.capacity()
    }

    /// Copies an incomplete string unchanged.
    pub(crate) fn pass(&mut self, output: &mut Vec<u8>) {
        if let Some(text) = &mut self.string {
            text.passes = true;
        }
        output.append(&mut self.held);
        trim(&mut self.held);
    }

    pub(crate) fn write(&mut self, input: &[u8], context: RewriteContext<'_>, output: &mut Vec<u8>) {
        for &byte in input {
            match self.string {
                Some(text) => self.within(text, byte, context, output),
                None => self.between(byte, output),
            }
        }
        trim(&mut self.held);
    }

    pub(crate) fn finish(&mut self, _: RewriteContext<'_>, output: &mut Vec<u8>) {
        output.append(&mut self.held);
    }

    fn between(&mut self, byte: u8, output: &mut Vec<u8>) {
        output.push(byte);
        match byte {
            b'"' => {
                // Strings that are neither names nor URLs need no buffer.
                let passes = self.depth > DEPTH || !(self.is_name || self.has_url);
                self.string = Some(Text { is_name: self.is_name, is_escaped: false, passes });
                self.is_name = false;
            }
            b'{' | b'[' => {
                self.depth = self.depth.saturating_add(1);
                self.objects = self.objects << 1 | u64::from(byte == b'{');
                self.is_name = byte == b'{';
                self.has_url = false;
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.objects >>= 1;
                self.has_url = false;
            }
            b',' => {
                self.is_name = self.objects & 1 == 1;
                self.has_url = false;
            }
            _ => {}
        }
    }

    fn within(&mut self, text: Text, byte: u8, context: RewriteContext<'_>, output: &mut Vec<u8>) {
        if byte == b'"' && !text.is_escaped {
            self.string = None;
            return self.ended(text, context, output);
        }
        let mut text = Text { is_escaped: byte == b'\\' && !text.is_escaped, ..text };
        if text.passes {
            output.push(byte);
        } else {
            self.held.push(byte);
            text.passes = self.held.len() > URL;
            if text.passes {
                output.append(&mut self.held);
            }
        }
        self.string = Some(text);
    }

    fn ended(&mut self, text: Text, context: RewriteContext<'_>, output: &mut Vec<u8>) {
        if text.is_name {
            // A name with escapes equals none of these, so its URL stays unchanged.
            self.has_url = !text.passes && MEMBERS.contains(&&self.held[..]);
        } else if let Some(edit) = context.map.edit(self.base, &self.held, Syntax::Json) {
            apply(&self.held, &[edit], output);
            self.held.clear();
        }
        output.append(&mut self.held);
        output.push(b'"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::{context, in_pieces, map};

    fn rewritten(base: Base, text: &str) -> String {
        let map = map();
        in_pieces(text.as_bytes(), |pieces| {
            let (mut manifest, mut output) = (Manifest::new(base), Vec::new());
            for piece in pieces {
                manifest.write(piece, context(&map), &mut output);
            }
            manifest.finish(context(&map), &mut output);
            output
        })
    }

    #[test]
    fn members_with_urls_are_changed() {
        let text = r#"{"name":"https://static.example/","start_url":"https://static.example/a",
            "icons":[{"src":"https:\/\/static.example\/i.png","sizes":"1x1"},{"src":"i"}],"id":"https://static.example/"}"#;
        let becomes = r#"{"name":"https://static.example/","start_url":"/_s/a",
            "icons":[{"src":"/_s\/i.png","sizes":"1x1"},{"src":"i"}],"id":"https://static.example/"}"#;
        assert_eq!(rewritten(Base::Own, text), becomes);
        assert_eq!(rewritten(Base::Mapped(0), r#"{"scope":"/","x":"/"}"#), r#"{"scope":"/_s/","x":"/"}"#);
    }

    #[test]
    fn what_is_malformed_stays() {
        for text in [
            r#"["src":"https://static.example/"]"#,
            r#"{"src" "https://static.example"#,
            r#"{"x":{"src":1,"y":"https://static.example/"}}"#,
            r#"{"src":"https:\u002f/static.example/"}"#,
            "}}}]]]\"\\\"",
        ] {
            assert_eq!(rewritten(Base::Own, text), text);
        }
    }
}
