//! The grammar of a Caddyfile: lines with blocks in `{` and `}`, and a single site without braces.

use std::path::Path;
use std::sync::Arc;

use crate::ImportError;
use crate::caddy::lexer::{Token, tokens};
use crate::directive::{Directive, Place};
use crate::nginx::grammar::{DEEPEST, MOST_DIRECTIVES};

/// Name of the block of global options, which has none in the text.
pub(crate) const GLOBAL: &str = "(global options)";

/// Reads a text. Numbers of directives continue at `next`. If `is_main`, the text may be a single site without braces.
pub(crate) fn parse(
    text: &str,
    file: &Arc<Path>,
    next: &mut usize,
    is_main: bool,
) -> Result<Vec<Directive>, ImportError> {
    let tokens = tokens(text, file)?;
    let mut reader = Reader { tokens: tokens.into_iter().peekable(), file, next, is_main };
    reader.block(0, 1)
}

struct Reader<'a> {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
    file: &'a Arc<Path>,
    next: &'a mut usize,
    is_main: bool,
}

impl Reader<'_> {
    fn error(&self, line: usize, cause: impl Into<String>) -> ImportError {
        ImportError::Syntax { file: self.file.to_path_buf(), line, cause: cause.into() }
    }

    /// Directives up to the `}` of the block, or the end of the file. `opened` is the line of its `{`, or 0 without braces.
    fn block(&mut self, depth: usize, opened: usize) -> Result<Vec<Directive>, ImportError> {
        let mut directives = Vec::new();
        loop {
            let Some(token) = self.tokens.next() else {
                return if depth == 0 || opened == 0 {
                    Ok(directives)
                } else {
                    Err(self.error(opened, "the block has no end: add }"))
                };
            };
            if token.is("}") && depth > 0 && opened > 0 {
                return Ok(directives);
            }
            if token.is("}") {
                return Err(self.error(token.line, "} without a block: remove it"));
            }
            // The block of global options is the only one without a name, and comes first.
            if token.is("{") && (depth > 0 || !directives.is_empty()) {
                return Err(self
                    .error(token.line, "{ without a directive before it: write it at the end of the line"));
            }
            directives.push(self.directive(token, depth)?);
        }
    }

    fn directive(&mut self, token: Token, depth: usize) -> Result<Directive, ImportError> {
        let id = *self.next;
        if id >= MOST_DIRECTIVES {
            return Err(ImportError::TooLarge { file: self.file.to_path_buf() });
        }
        *self.next += 1;
        let line = token.line;
        let place = Place { file: Arc::clone(self.file), line };
        if token.is("{") {
            let block = Some(self.opened(line, depth)?);
            return Ok(Directive { id, name: GLOBAL.to_owned(), args: Vec::new(), block, place });
        }
        let (mut args, mut is_list) = (Vec::new(), token.text.ends_with(',') && depth == 0);
        while let Some(next) = self.tokens.peek() {
            if next.is("}") || (next.first && !is_list) {
                break;
            }
            let Some(next) = self.tokens.next() else { break };
            if next.is("{") {
                let block = Some(self.opened(next.line, depth)?);
                return Ok(Directive { id, name: token.text, args, block, place });
            }
            if next.is("{}") && self.tokens.peek().is_none_or(|behind| behind.first) {
                return Ok(Directive { id, name: token.text, args, block: Some(Vec::new()), place });
            }
            is_list = next.text.ends_with(',') && depth == 0;
            args.push(next.text);
        }
        // A file with one site needs no braces: all further lines belong to it.
        let is_site = depth == 0 && self.is_main && token.text != "import";
        let block = if is_site { Some(self.block(1, 0)?) } else { None };
        Ok(Directive { id, name: token.text, args, block, place })
    }

    fn opened(&mut self, line: usize, depth: usize) -> Result<Vec<Directive>, ImportError> {
        if depth == DEEPEST {
            return Err(self.error(line, format!("more than {DEEPEST} blocks inside each other")));
        }
        if let Some(next) = self.tokens.peek()
            && !next.first
            && !next.is("}")
        {
            return Err(self.error(line, "text behind { on the same line: write it on the next line"));
        }
        self.block(depth + 1, line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Directive>, ImportError> {
        parse(text, &Arc::from(Path::new("Caddyfile")), &mut 0, true)
    }

    #[test]
    fn sites_with_and_without_braces() {
        let all = read("a.example\nlog\nreverse_proxy x {\n lb_policy first\n}\n").expect("right");
        assert_eq!((all.len(), all[0].inner().len(), all[0].inner()[1].inner().len()), (1, 2, 1));
        let all = read("{\n debug\n}\na.example,\nb.example {\n log {}\n}\n").expect("right");
        assert_eq!((all[0].name.as_str(), all[1].args[0].as_str()), (GLOBAL, "b.example"));
        assert_eq!(all[1].inner()[0].name, "log");
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, line) in [
            ("a {\n b\n", 1),
            ("a {\n}\n}\n", 3),
            ("a {\n {\n}\n}", 2),
            ("a { b\n}\n", 1),
            ("a {\n b \"c\n}\n", 2),
        ] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.starts_with(&format!("Caddyfile:{line}: ")), "{text}: {error}");
        }
        assert!(read(&"a {\n".repeat(100)).is_err());
    }
}
