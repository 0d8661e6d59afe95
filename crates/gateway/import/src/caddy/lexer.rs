//! Tokens of a Caddyfile: words, quotes, here-documents with `<<`, comments with `#`, and lines that continue after `\`.

use std::path::Path;

use crate::ImportError;
use crate::cursor::Cursor;

/// A token with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) line: usize,
    /// Whether the token is the first of its line.
    pub(crate) first: bool,
    /// Whether the token is in `"`, in backquotes or a here-document, so that a brace in it is text.
    pub(crate) quoted: bool,
}

impl Token {
    /// Whether the token is this brace: `{`, `}` or `{}`, and not `quoted`.
    pub(crate) fn is(&self, brace: &str) -> bool {
        self.text == brace && !self.quoted
    }
}

struct Lexer<'a> {
    at: Cursor<'a>,
    first: bool,
}

/// The tokens of a text.
pub(crate) fn tokens(text: &str, file: &Path) -> Result<Vec<Token>, ImportError> {
    let mut lexer = Lexer { at: Cursor::new(text, file), first: true };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.token()? {
        tokens.push(token);
    }
    Ok(tokens)
}

impl Lexer<'_> {
    fn token(&mut self) -> Result<Option<Token>, ImportError> {
        self.space();
        let (line, first) = (self.at.line, self.first);
        let Some(start) = self.at.peek() else { return Ok(None) };
        self.first = false;
        // A word that begins with another character may have quotes in it, which are part of the word.
        let quoted = matches!(start, '"' | '`');
        let text = match start {
            '"' | '`' => self.quoted(start)?,
            _ => {
                if let Some(text) = self.here_document()? {
                    return Ok(Some(Token { text, line, first, quoted: true }));
                }
                self.word()
            }
        };
        Ok(Some(Token { text, line, first, quoted }))
    }

    /// Skips white space and comments. A `\` at the end of a line continues it.
    fn space(&mut self) {
        while let Some(next) = self.at.peek() {
            if next == '#' {
                self.at.skip_line();
            } else if self.at.rest.starts_with("\\\n") || self.at.rest.starts_with("\\\r\n") {
                self.at.next();
                self.at.rest = self.at.rest.trim_start_matches('\r');
                self.at.next();
            } else if next.is_whitespace() {
                self.first |= next == '\n';
                self.at.next();
            } else {
                return;
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, ImportError> {
        let line = self.at.line;
        self.at.next();
        let mut text = String::new();
        while let Some(next) = self.at.next() {
            match next {
                '\\' if quote == '"' => match self.at.next() {
                    Some('"') => text.push('"'),
                    Some(other) => text.extend(['\\', other]),
                    None => {}
                },
                _ if next == quote => return Ok(text),
                _ => text.push(next),
            }
        }
        Err(self.at.error(line, format!("the text has no end: add {quote}")))
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(next) = self.at.peek() {
            if next.is_whitespace() {
                break;
            }
            self.at.next();
            let behind = self.at.peek();
            match (next, behind) {
                ('\\', Some('<')) => {}
                // The end of the line belongs to the next token, which continues the line.
                ('\\', Some('\n' | '\r')) => {
                    self.at.rest = self.at.rest.trim_start_matches('\r');
                    self.at.next();
                    break;
                }
                _ => word.push(next),
            }
        }
        word
    }

    /// A text between `<<NAME` and `NAME`, without the white space before the second one at the beginning of its lines.
    fn here_document(&mut self) -> Result<Option<String>, ImportError> {
        let Some(rest) = self.at.rest.strip_prefix("<<") else { return Ok(None) };
        let Some((marker, body)) = rest.split_once('\n') else { return Ok(None) };
        let marker = marker.trim_end_matches('\r');
        let is_name = |next: char| next.is_ascii_alphanumeric() || matches!(next, '-' | '_');
        if marker.is_empty() || !marker.chars().all(is_name) {
            return Ok(None);
        }
        let line = self.at.line;
        let Some(end) = body.find(marker) else {
            return Err(self.at.error(line, format!("the text has no end: add a line with {marker}")));
        };
        let (lines, padding) = match body[..end].rfind('\n') {
            Some(last) => (&body[..last], &body[last + 1..end]),
            None => ("", &body[..end]),
        };
        let mut text = Vec::new();
        for (number, own) in lines.split('\n').enumerate() {
            let own = own.trim_end_matches('\r');
            match own.strip_prefix(padding) {
                Some(content) => text.push(content),
                None if own.is_empty() => text.push(""),
                None => {
                    let cause = format!("the line begins with other white space than {marker} at the end");
                    return Err(self.at.error(line + number + 1, cause));
                }
            }
        }
        self.at.line += 1 + body[..end].matches('\n').count();
        self.at.rest = &body[end + marker.len()..];
        Ok(Some(text.join("\n")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<(String, usize, bool)> {
        let all = tokens(text, Path::new("Caddyfile")).expect("tokens");
        all.into_iter().map(|token| (token.text, token.line, token.first)).collect()
    }

    #[test]
    fn words_quotes_and_comments() {
        let all = texts("a b#c # d\n\"e \\\"f\\\" \\d\" `g \"h\"`\n");
        let expected = [("a", 1, true), ("b#c", 1, false), ("e \"f\" \\d", 2, true), ("g \"h\"", 2, false)];
        assert_eq!(all, expected.map(|(text, line, first)| (text.to_owned(), line, first)));
    }

    #[test]
    fn lines_continue_after_a_backslash() {
        let all = texts("a b \\\n c\\d\ne");
        let expected = [("a", 1, true), ("b", 1, false), ("c\\d", 2, false), ("e", 3, true)];
        assert_eq!(all, expected.map(|(text, line, first)| (text.to_owned(), line, first)));
    }

    #[test]
    fn here_documents_lose_the_space_of_their_end() {
        let all = texts("respond <<HTML\n  <p>\n    a\n  HTML 200\nb");
        assert_eq!(all[1], ("<p>\n  a".to_owned(), 1, false));
        assert_eq!((all[2].1, all[3].1, all[3].2), (4, 5, true));
        assert!(tokens("a <<X\n b", Path::new("c")).is_err());
        assert!(tokens("a <<X\nb\n  X", Path::new("c")).is_err());
        assert_eq!(texts("a \\<<X")[1].0, "<<X");
    }
}
