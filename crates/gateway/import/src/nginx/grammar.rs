//! The grammar of nginx's configuration: words, quotes, escapes, comments and blocks.

use std::path::Path;
use std::sync::Arc;

use crate::ImportError;
use crate::cursor::Cursor;
use crate::directive::{Directive, Place};

/// Number of directives at most.
pub(crate) const MOST_DIRECTIVES: usize = 200_000;

// Blocks are read by recursion, so their depth is that of the stack.
/// Depth of nested blocks at most.
pub(crate) const DEEPEST: usize = 64;

/// A part of a file.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    End,
    Open,
    Close,
}

/// Reads one file. Numbers of directives continue after `next`.
pub(crate) fn parse(text: &str, file: &Arc<Path>, next: &mut usize) -> Result<Vec<Directive>, ImportError> {
    Reader { at: Cursor::new(text, file), file, next }.block(0)
}

struct Reader<'a> {
    at: Cursor<'a>,
    file: &'a Arc<Path>,
    next: &'a mut usize,
}

impl Reader<'_> {
    /// Directives up to the end of the block, or of the file at depth 0.
    fn block(&mut self, depth: usize) -> Result<Vec<Directive>, ImportError> {
        let mut directives = Vec::new();
        let opened = self.at.line;
        loop {
            let Some((token, line)) = self.token()? else {
                return if depth == 0 {
                    Ok(directives)
                } else {
                    Err(self.at.error(opened, "the block has no end: add }"))
                };
            };
            match token {
                Token::Word(name) => directives.push(self.directive(name, line, depth)?),
                Token::Close if depth > 0 => return Ok(directives),
                Token::Close => return Err(self.at.error(line, "} without a block: remove it")),
                Token::Open => return Err(self.at.error(line, "{ without a directive before it")),
                Token::End => return Err(self.at.error(line, "; without a directive before it: remove it")),
            }
        }
    }

    fn directive(&mut self, name: String, line: usize, depth: usize) -> Result<Directive, ImportError> {
        let id = *self.next;
        if id >= MOST_DIRECTIVES {
            return Err(ImportError::TooLarge { file: self.file.to_path_buf() });
        }
        *self.next += 1;
        let place = Place { file: Arc::clone(self.file), line };
        let mut args = Vec::new();
        loop {
            match self.token()? {
                Some((Token::Word(word), _)) => args.push(word),
                Some((Token::End, _)) => return Ok(Directive { id, name, args, block: None, place }),
                // Lua is no text of this grammar: its quotes and semicolons would end directives.
                Some((Token::Open, _)) if name.ends_with("_by_lua_block") => {
                    self.raw_block(line)?;
                    return Ok(Directive { id, name, args, block: None, place });
                }
                Some((Token::Open, _)) if depth == DEEPEST => {
                    return Err(self.at.error(line, format!("more than {DEEPEST} blocks inside each other")));
                }
                Some((Token::Open, _)) => {
                    let block = Some(self.block(depth + 1)?);
                    return Ok(Directive { id, name, args, block, place });
                }
                Some((Token::Close, _)) | None => {
                    return Err(self.at.error(line, format!("the directive {name} has no end: add ;")));
                }
            }
        }
    }

    /// Skips a block in another language, up to its closing brace.
    fn raw_block(&mut self, line: usize) -> Result<(), ImportError> {
        let mut depth = 1_usize;
        while let Some(next) = self.at.next() {
            match next {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
        Err(self.at.error(line, "the block has no end: add }"))
    }

    /// The next token, with its line.
    fn token(&mut self) -> Result<Option<(Token, usize)>, ImportError> {
        loop {
            let start = self.at.rest;
            let line = self.at.line;
            let Some(next) = self.at.next() else { return Ok(None) };
            let token = match next {
                ' ' | '\t' | '\r' | '\n' => continue,
                // Only here: within a word, nginx takes `#` for an ordinary character.
                '#' => {
                    self.at.skip_line();
                    continue;
                }
                ';' => Token::End,
                '{' => Token::Open,
                '}' => Token::Close,
                '"' | '\'' => Token::Word(self.quoted(next, line)?),
                _ => {
                    self.at.rest = start;
                    Token::Word(self.word())
                }
            };
            return Ok(Some((token, line)));
        }
    }

    fn quoted(&mut self, quote: char, line: usize) -> Result<String, ImportError> {
        let mut word = String::new();
        while let Some(next) = self.at.next() {
            match next {
                '\\' => self.escape(&mut word),
                _ if next == quote => return Ok(word),
                _ => word.push(next),
            }
        }
        Err(self.at.error(line, format!("the text has no end: add {quote}")))
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        let mut is_variable = false;
        while let Some(next) = self.at.peek() {
            // `${name}` is a variable, any other brace begins a block.
            let is_end = matches!(next, ' ' | '\t' | '\r' | '\n' | ';') || (next == '{' && !is_variable);
            if is_end {
                break;
            }
            self.at.next();
            is_variable = next == '$';
            if next == '\\' { self.escape(&mut word) } else { word.push(next) }
        }
        word
    }

    /// The character after a backslash. As in nginx, the backslash stays except before quotes, itself and `t`, `r`, `n`.
    fn escape(&mut self, word: &mut String) {
        match self.at.next() {
            Some(next @ ('"' | '\'' | '\\')) => word.push(next),
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            Some(next) => word.extend(['\\', next]),
            None => word.push('\\'),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Directive>, ImportError> {
        parse(text, &Arc::from(Path::new("nginx.conf")), &mut 0)
    }

    #[test]
    fn words_quotes_escapes_and_comments_are_read_as_nginx_reads_them() {
        let text = "# first\nmap $a $b { ~^/x\\.y \"a ; \\\" b\"; default 'it''s'; } # end\nset ${x}y a#b;";
        let text = text.replace("'it''s'", "'it\\'s'");
        let read = read(&text).expect("right");
        assert_eq!(read.len(), 2);
        let map = &read[0];
        assert_eq!(
            (map.name.as_str(), map.args.as_slice()),
            ("map", ["$a".to_owned(), "$b".to_owned()].as_slice())
        );
        assert_eq!(map.inner()[0].text(), "~^/x\\.y a ; \" b");
        assert_eq!(map.inner()[1].text(), "default it's");
        assert_eq!((read[1].text().as_str(), read[1].place.line), ("set ${x}y a#b", 3));
    }

    #[test]
    fn errors_name_the_line_and_the_correction() {
        for (text, part) in [
            ("a {\n b;\n", ":1: the block has no end: add }"),
            ("a b\n}", ":1: the directive a has no end: add ;"),
            ("a;\n}", ":2: } without a block"),
            ("\n a \"b", ":2: the text has no end"),
            (";", ":1: ; without a directive"),
        ] {
            let error = read(text).expect_err("wrong").to_string();
            assert!(error.contains(part), "{error}");
        }
        assert!(read(&"a {".repeat(1000)).is_err());
    }

    #[test]
    fn blocks_of_lua_are_skipped_as_a_whole() {
        let read = read("content_by_lua_block { if x then y = { 1; } end }\nb;").expect("right");
        assert_eq!(read.len(), 2);
    }
}
