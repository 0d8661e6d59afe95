//! The place in the text of a file up to which its tokens are read.

use std::path::Path;

use crate::ImportError;

/// The rest of a text, with the line at its beginning.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    pub(crate) rest: &'a str,
    pub(crate) line: usize,
    file: &'a Path,
}

impl<'a> Cursor<'a> {
    /// The beginning of a text.
    pub(crate) fn new(text: &'a str, file: &'a Path) -> Self {
        Self { rest: text, line: 1, file }
    }

    /// The next character, which stays in the rest.
    pub(crate) fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    /// Takes the next character.
    pub(crate) fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.rest = &self.rest[next.len_utf8()..];
        if next == '\n' {
            self.line += 1;
        }
        Some(next)
    }

    /// Skips the rest of the line.
    pub(crate) fn skip_line(&mut self) {
        let end = self.rest.find('\n').unwrap_or(self.rest.len());
        self.rest = &self.rest[end..];
    }

    /// A mistake of the syntax.
    pub(crate) fn error(&self, line: usize, cause: impl Into<String>) -> ImportError {
        ImportError::Syntax { file: self.file.to_path_buf(), line, cause: cause.into() }
    }
}
