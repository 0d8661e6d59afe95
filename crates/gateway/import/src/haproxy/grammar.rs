//! The grammar of HAProxy's configuration: lines of words, quotes (`'` and `"`), escapes (`\`), comments (`#`), variables of the
//! environment (`$NAME`) and sections.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::ImportError;
use crate::directive::{Directive, Place};

/// Number of lines at most.
const MOST_DIRECTIVES: usize = 200_000;

/// Size of a value of `setenv` at most, so that repeated values do not grow without bound.
const LONGEST_VALUE: usize = 4096;

/// Size of a line after the replacement of variables at most.
const LONGEST_LINE: usize = 64 << 10;

/// Beginning of a variable of the environment that the result keeps as `${NAME}`. A character that no configuration has.
const ENV: char = '\u{e000}';

/// End of a variable of the environment.
const ENV_END: char = '\u{e001}';

/// Words that begin a section, such as `frontend`.
const SECTIONS: [&str; 18] = [
    "global",
    "defaults",
    "frontend",
    "backend",
    "listen",
    "userlist",
    "peers",
    "resolvers",
    "cache",
    "program",
    "mailers",
    "http-errors",
    "ring",
    "fcgi-app",
    "log-forward",
    "crt-store",
    "traces",
    "acme",
];

/// Whether a text has a variable of the environment such as `$PORT`, whose value only brisk knows.
pub(crate) fn has_variable(text: &str) -> bool {
    text.contains(ENV)
}

/// The text with variables as brisk writes them: `${PORT}`, or `${PORT:-80}` with a default.
pub(crate) fn with_variables(text: &str) -> String {
    text.replace(ENV, "${").replace(ENV_END, "}")
}

/// Reader of the files of one configuration, which form one text for HAProxy.
#[derive(Debug, Default)]
pub(crate) struct Grammar {
    /// Number of lines that were read.
    pub(crate) count: usize,
    environment: BTreeMap<String, String>,
}

impl Grammar {
    /// Reads one file: each section as a `Directive` with its lines as `block`.
    pub(crate) fn parse(&mut self, text: &str, file: &Arc<Path>) -> Result<Vec<Directive>, ImportError> {
        let mut sections: Vec<Directive> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let place = Place { file: Arc::clone(file), line: index + 1 };
            let error =
                |cause: String| ImportError::Syntax { file: file.to_path_buf(), line: index + 1, cause };
            let mut words = self.words(line).map_err(error)?.into_iter();
            let Some(name) = words.next() else { continue };
            if self.count >= MOST_DIRECTIVES {
                return Err(ImportError::TooLarge { file: file.to_path_buf() });
            }
            let is_section = SECTIONS.contains(&&*name);
            if name.starts_with('.') {
                let cause = format!(
                    "{name} depends on the program that reads the file: keep the lines that apply, and remove it"
                );
                return Err(error(cause));
            }
            let mut directive = Directive { id: self.count, name, args: words.collect(), block: None, place };
            self.count += 1;
            self.learn(&directive);
            if is_section {
                directive.block = Some(Vec::new());
                sections.push(directive);
            } else if let Some(block) = sections.last_mut().and_then(|section| section.block.as_mut()) {
                block.push(directive);
            } else {
                let cause =
                    "the line is in no section: begin with global, defaults, frontend, backend or listen";
                return Err(error(cause.to_owned()));
            }
        }
        Ok(sections)
    }

    /// Keeps the value that `setenv` or `presetenv` gives a variable.
    fn learn(&mut self, directive: &Directive) {
        let (name, value) = (directive.arg(0), directive.arg(1));
        let is_new = match directive.name.as_str() {
            "setenv" => true,
            "presetenv" => !self.environment.contains_key(name),
            _ => false,
        };
        if is_new && value.len() <= LONGEST_VALUE {
            self.environment.insert(name.to_owned(), value.to_owned());
        }
    }

    /// The words of a line: `a` and `b c` for `a 'b c' # d`.
    fn words(&self, line: &str) -> Result<Vec<String>, String> {
        let mut words = Vec::new();
        let mut word: Option<String> = None;
        let mut rest = line.chars().peekable();
        let mut size = 0;
        while let Some(next) = rest.next() {
            match next {
                '#' => break,
                ' ' | '\t' | '\r' => words.extend(word.take()),
                '\'' => loop {
                    match rest.next() {
                        Some('\'') => break,
                        Some(next) => word.get_or_insert_default().push(plain(next)),
                        None => return Err("the text has no end: add '".to_owned()),
                    }
                    word.get_or_insert_default();
                },
                '"' => {
                    let own = word.get_or_insert_default();
                    self.quoted(&mut rest, own)?;
                }
                '\\' => escape(&mut rest, word.get_or_insert_default()),
                next => word.get_or_insert_default().push(plain(next)),
            }
            // Empty quotes are an empty word.
            if next == '\'' {
                word.get_or_insert_default();
            }
            size += 1;
            if size > LONGEST_LINE || word.as_ref().is_some_and(|word| word.len() > LONGEST_LINE) {
                return Err(format!("the line has more than {LONGEST_LINE} characters: divide it"));
            }
        }
        words.extend(word);
        Ok(words)
    }

    /// A text in double quotes, in which variables of the environment are replaced.
    fn quoted(
        &self,
        rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
        word: &mut String,
    ) -> Result<(), String> {
        while let Some(next) = rest.next() {
            match next {
                '"' => return Ok(()),
                '\\' => match rest.peek() {
                    Some('"' | '\\' | '$' | ' ' | '#') => word.extend(rest.next()),
                    _ => escape(rest, word),
                },
                '$' => {
                    self.variable(rest, word)?;
                    if word.len() > LONGEST_LINE {
                        return Err(format!("the text has more than {LONGEST_LINE} characters: divide it"));
                    }
                }
                next => word.push(plain(next)),
            }
        }
        Err("the text has no end: add \"".to_owned())
    }

    /// A variable behind `$`: its value if the configuration sets it, otherwise a variable of brisk.
    fn variable(
        &self,
        rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
        word: &mut String,
    ) -> Result<(), String> {
        let is_braced = rest.next_if_eq(&'{').is_some();
        let mut name = String::new();
        while let Some(next) = rest.next_if(|next| next.is_ascii_alphanumeric() || *next == '_') {
            name.push(next);
        }
        let mut default = String::new();
        if is_braced {
            loop {
                match rest.next() {
                    Some('}') => break,
                    Some(next) => default.push(plain(next)),
                    None => return Err("the variable has no end: add }".to_owned()),
                }
            }
        }
        if name.is_empty() {
            return Err("a $ without the name of a variable: write \\$".to_owned());
        }
        let default = default.strip_prefix('-').unwrap_or("");
        match self.environment.get(&name) {
            Some(value) => word.push_str(value),
            None if default.is_empty() => word.extend([ENV.to_string(), name, ENV_END.to_string()]),
            None => {
                // These characters would end the variable in the result, or begin another one.
                let default = default.replace(['{', '}', '$', ENV, ENV_END], "");
                word.extend([ENV.to_string(), name, ":-".to_owned(), default, ENV_END.to_string()]);
            }
        }
        Ok(())
    }
}

/// A character of a configuration, without the marks `ENV` and `ENV_END`.
fn plain(next: char) -> char {
    if matches!(next, ENV | ENV_END) { char::REPLACEMENT_CHARACTER } else { next }
}

/// The character after a backslash, as in `\n`, `\x41` or `\#`.
fn escape(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, word: &mut String) {
    match rest.next() {
        Some('n') => word.push('\n'),
        Some('r') => word.push('\r'),
        Some('t') => word.push('\t'),
        Some('x') => {
            let mut digits = String::new();
            while digits.len() < 2
                && let Some(digit) = rest.next_if(char::is_ascii_hexdigit)
            {
                digits.push(digit);
            }
            match u8::from_str_radix(&digits, 16) {
                Ok(byte) if byte.is_ascii() => word.push(char::from(byte)),
                _ => word.extend(["\\x", &digits]),
            }
        }
        // A backslash before another letter remains, as expressions need it.
        Some(next @ (' ' | '#' | '\\' | '\'' | '"')) => word.push(next),
        Some(next) => word.extend(['\\', plain(next)]),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Directive>, ImportError> {
        Grammar::default().parse(text, &Arc::from(Path::new("haproxy.cfg")))
    }

    #[test]
    fn lines_words_quotes_and_escapes_are_read_as_haproxy_reads_them() {
        let text = "# first\nfrontend web # end\n  acl a path_reg ^/x\\.y 'b \"c' \"d \\\" #e\"\n  \\# a\\ b\n\nbackend app\n";
        let read = read(text).expect("right");
        assert_eq!((read.len(), read[0].arg(0), read[1].place.line), (2, "web", 6));
        assert_eq!(read[0].inner()[0].args, ["a", "path_reg", "^/x\\.y", "b \"c", "d \" #e"]);
        assert_eq!(read[0].inner()[1].text(), "# a b");
    }

    #[test]
    fn variables_have_the_value_of_setenv_or_remain() {
        let text = "global\n setenv NAME x\n a \"$NAME/${OTHER}\" '$NAME' \"${PORT-80}\"\n";
        let read = read(text).expect("right");
        let args: Vec<_> = read[0].inner()[1].args.iter().map(|arg| with_variables(arg)).collect();
        assert_eq!(args, ["x/${OTHER}", "$NAME", "${PORT:-80}"]);
        assert!(has_variable(read[0].inner()[1].arg(0)) && !has_variable(read[0].inner()[1].arg(1)));
    }

    #[test]
    fn errors_name_the_line_and_the_correction() {
        for (text, part) in [
            ("global\n a \"b", ":2: the text has no end: add \""),
            ("global\n\n a 'b", ":3: the text has no end: add '"),
            ("bind :80", ":1: the line is in no section"),
            ("global\n.if defined(X)\n", ":2: .if depends on the program"),
            ("global\n a \"${B\"", ":2: the variable has no end"),
        ] {
            let error = read(text).expect_err("wrong").to_string();
            assert!(error.contains(part), "{error}");
        }
        assert!(read(&"a ".repeat(MOST_DIRECTIVES)).is_err());
    }
}
