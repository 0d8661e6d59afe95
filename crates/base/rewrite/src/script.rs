//! Ends of text that is not markup: scripts, styles, titles and similar elements (HTML section 13.2.5).

/// Tokenizer for the text of an element up to its end tag.
#[derive(Clone, Debug)]
pub(crate) struct RawText {
    /// Name of the element, in lower case.
    name: Vec<u8>,
    /// State of script comments: a script within `<!--` may contain `<script>` elements.
    comment: Comment,
    dashes: u8,
    is_script: bool,
    /// Buffered bytes: the possible start of a tag or comment.
    held: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comment {
    Outside,
    /// After `<!--` in a script.
    Within,
    /// After `<script` within such a comment.
    Script,
}

/// The text has ended; the buffered bytes are the start of the end tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndTag;

impl RawText {
    /// A tokenizer for the text of the element `name`.
    pub(crate) fn of(name: &[u8]) -> Self {
        let is_script = name == b"script";
        Self { name: name.to_vec(), comment: Comment::Outside, dashes: 0, is_script, held: Vec::new() }
    }

    /// Name of the element.
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Number of buffered bytes.
    pub(crate) fn held(&self) -> usize {
        self.held.capacity()
    }

    /// Returns whether all bytes up to the next `<` are text without effect on the state.
    pub(crate) fn passes(&self) -> bool {
        self.held.is_empty() && self.comment == Comment::Outside
    }

    /// Processes a byte and appends decided text to `text`. With [`EndTag`], `</` and the name stay buffered, and the
    /// byte must be processed again.
    pub(crate) fn byte(&mut self, byte: u8, text: &mut Vec<u8>) -> Option<EndTag> {
        if self.held.is_empty() {
            self.outside(byte, text);
            return None;
        }
        if self.goes_on(byte) {
            self.held.push(byte);
            if self.held == b"<!--" {
                self.comment = self.comment.max_within();
                // The dashes of `<!--` count, so `<!-->` is a whole comment (HTML section 13.2.5.22).
                self.dashes = 2;
                text.append(&mut self.held);
            }
            return None;
        }
        let ends_name = matches!(byte, b'\t' | b'\n' | 0x0c | b'\r' | b' ' | b'/' | b'>');
        if ends_name && self.is_end_tag() {
            if self.comment != Comment::Script {
                return Some(EndTag);
            }
            // HTML section 13.2.5.31: the inner script ends, and the comment continues.
            self.comment = Comment::Within;
        } else if ends_name && self.comment == Comment::Within && self.held.eq_ignore_ascii_case(b"<script") {
            // HTML section 13.2.5.26: a script within a comment has an end tag of its own.
            self.comment = Comment::Script;
        }
        text.append(&mut self.held);
        self.dashes = 0;
        self.outside(byte, text);
        None
    }

    /// Removes and returns the buffered bytes: text, or after [`EndTag`] the start of the tag.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    fn outside(&mut self, byte: u8, text: &mut Vec<u8>) {
        match byte {
            b'<' => {
                self.dashes = 0;
                return self.held.push(byte);
            }
            // Saturating: a comment may have any number of dashes.
            b'-' => self.dashes = self.dashes.saturating_add(1),
            b'>' if self.dashes >= 2 => {
                self.comment = Comment::Outside;
                self.dashes = 0;
            }
            _ => self.dashes = 0,
        }
        text.push(byte);
    }

    fn is_end_tag(&self) -> bool {
        self.held
            .get(2..)
            .is_some_and(|name| self.held.starts_with(b"</") && name.eq_ignore_ascii_case(&self.name))
    }

    /// Returns whether the buffered bytes and `byte` begin a relevant token.
    fn goes_on(&self, byte: u8) -> bool {
        let begins = |whole: &[u8]| {
            let place = self.held.len();
            whole.get(..place).is_some_and(|start| start.eq_ignore_ascii_case(&self.held))
                && whole.get(place).is_some_and(|next| next.eq_ignore_ascii_case(&byte))
        };
        if begins(&[b"</", &self.name[..]].concat()) {
            return true;
        }
        self.is_script
            && match self.comment {
                Comment::Outside => begins(b"<!--"),
                Comment::Within => begins(b"<script"),
                Comment::Script => false,
            }
    }
}

impl Comment {
    fn max_within(self) -> Self {
        if self == Self::Outside { Self::Within } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text before the end tag.
    fn text(name: &str, input: &str) -> Option<String> {
        let (mut raw, mut text) = (RawText::of(name.as_bytes()), Vec::new());
        let ended = input.bytes().any(|byte| raw.byte(byte, &mut text).is_some());
        ended.then(|| String::from_utf8(text).expect("text"))
    }

    #[test]
    fn text_ends_at_its_own_end_tag() {
        for (name, input, before) in [
            ("style", "a</b></STYLE >", "a</b>"),
            ("title", "<b></titlex></title/", "<b></titlex>"),
            ("script", "if (a</x) </script>", "if (a</x) "),
            ("script", "<<</script>", "<<"),
            ("script", "<!-- <script> </script> --> </script>", "<!-- <script> </script> --> "),
            ("script", "<!-- <script> </script> </script>", "<!-- <script> </script> "),
            ("script", "<!-- </script>", "<!-- "),
            ("script", "<!--><script></script>", "<!--><script>"),
            ("script", "<!-- --> <script></script>", "<!-- --> <script>"),
        ] {
            assert_eq!(text(name, input).as_deref(), Some(before), "{input}");
        }
        assert_eq!(text("style", "</style"), None);
        assert_eq!(text("script", "<!--<script></script>"), None);
    }
}
