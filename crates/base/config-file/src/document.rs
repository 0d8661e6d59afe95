//! A parsed TOML file with the position of every value, and its conversion to the structs of `raw` with all errors at
//! once.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{ConfigError, KeyPath, Located, MAX_LISTED, Place, Problem, Segment};
use crate::merge::{Twice, merge, moved};
use crate::reader::{Node, ReadError};
use crate::sources::{INCLUDE, Source, Sources};

/// Advice about a key that is unknown here but has a meaning in the configuration of another program.
pub type Advice = fn(&str) -> Option<String>;

/// The first line, from 1, in the syntax of another program, and the message about it.
pub type Syntax = fn(&str) -> Option<(usize, String)>;

/// The text and the tree of a file and of those that it includes.
pub struct Document<'t> {
    /// Positions in the tree count through all texts, in this order.
    texts: Vec<(&'t Path, &'t str)>,
    root: Spanned<DeValue<'t>>,
    advice: Advice,
    inserted: Vec<PathBuf>,
}

impl<'t> Document<'t> {
    /// A document without content.
    pub fn empty() -> Self {
        let root = Spanned::new(0..0, DeValue::Table(DeTable::new()));
        Self { texts: Vec::new(), root, advice: |_| None, inserted: Vec::new() }
    }

    /// Parses `text`. The errors are syntax errors of TOML.
    pub fn parse(text: &'t str) -> Result<Self, Vec<Located>> {
        let (table, errors) = DeTable::parse_recoverable(text);
        if errors.is_empty() {
            let root = Spanned::new(table.span(), DeValue::Table(table.into_inner()));
            let texts = vec![(Path::new(""), text)];
            return Ok(Self { texts, root, advice: |_| None, inserted: Vec::new() });
        }
        // Reports the first syntax error only: later ones are mostly its consequences.
        let first = errors.into_iter().take(1);
        Err(first
            .map(|error| Located {
                place: error.span().map(|span| Place::of(position(text, span.start))),
                path: KeyPath::default(),
                problem: Problem::Syntax(explained(&error, text)),
            })
            .collect())
    }

    /// Parses all files of a configuration as one: lists of tables, such as `[[host]]`, are joined in the order of the files, and
    /// so are the tables of tables at the top, such as `[upstream.NAME]`. `syntax` explains a file that is not TOML.
    ///
    /// # Errors
    ///
    /// The first file that is not TOML; an included file with `include`; all keys and tables that two files have.
    pub fn of(sources: &'t Sources, syntax: Syntax) -> Result<Self, ConfigError> {
        let (mut whole, mut problems) = (Self::empty(), Vec::new());
        for (number, source) in sources.all().iter().enumerate() {
            let mut read = Self::of_source(source, syntax)?;
            let path = KeyPath::of(INCLUDE);
            // `Sources::read` follows the key in the main file only: an `include` elsewhere would have no
            // effect, in silence. So there are no cycles either.
            if number > 0 && read.contains(&path) {
                let main = sources.all()[0].file.display();
                let fault = format!("only {main} may include files: name them in its `include`");
                return Err(ConfigError::new(&source.file, vec![read.locate(path, Problem::Wrong(fault))]));
            }
            // Before this text is appended: its positions begin where the earlier texts end, so one offset
            // identifies file and place.
            let by = whole.texts.iter().map(|(_, text)| text.len()).sum();
            whole.texts.append(&mut read.texts);
            let (DeValue::Table(tables), DeValue::Table(further)) =
                (whole.root.get_mut(), moved(read.root, by))
            else {
                continue;
            };
            let twice = merge(tables, further);
            problems.extend(twice.into_iter().map(|twice| whole.twice(twice)));
        }
        match sources.all() {
            [main, ..] if !problems.is_empty() => Err(ConfigError::new(&main.file, problems)),
            _ => Ok(whole),
        }
    }

    fn of_source(source: &'t Source, syntax: Syntax) -> Result<Self, ConfigError> {
        // After the parser has failed, never before: a text of TOML may look like YAML or JSON, and must not
        // be called that.
        let document = Self::parse(&source.text).map_err(|problems| match syntax(&source.text) {
            Some((line, message)) => ConfigError::of_text(&source.file, Some((line, 1)), &message),
            None => ConfigError::new(&source.file, problems),
        })?;
        Ok(Self { texts: vec![(&source.file, &source.text)], ..document })
    }

    fn twice(&self, Twice { path, first, second }: Twice) -> Located {
        let (place, first) = (self.place(second), self.place(first));
        let main = self.texts.first().map_or(Path::new(""), |(file, _)| file);
        let Place { file, line, column } = &first;
        let file = file.as_ref().map_or(main, |(_, file)| file).display();
        let fault = format!("{file}:{line}:{column} has it already: write it in one file only");
        Located { place: Some(place), path, problem: Problem::Wrong(fault) }
    }

    /// The document with `advice` for its unknown keys. Without advice, the nearest known key is offered.
    #[must_use]
    pub fn with_advice(self, advice: Advice) -> Self {
        Self { advice, ..self }
    }

    /// Deserializes the whole file as a `T` without its invalid values, with one problem for each of them.
    ///
    /// Serde stops at the first error, so deserialization is repeated without the value that caused it.
    pub fn read<T: DeserializeOwned + Default>(&self) -> (T, Vec<Located>) {
        let mut problems = Vec::new();
        let mut skipped = BTreeSet::new();
        loop {
            let error = match T::deserialize(Node::new(&self.root, &skipped)) {
                Ok(value) => return (value, problems),
                Err(error) => error,
            };
            // An invalid required key is reported once, and not as missing too.
            let echo =
                matches!(error.problem, Problem::Missing(key) if self.contains(&error.path().key(key)));
            let (located, culprit) = self.blame(error);
            if !echo {
                problems.push(located);
            }
            // Without a new value to leave out, the next pass would end with the same error, and the loop
            // would never end.
            let again = culprit.is_some_and(|culprit| skipped.insert(culprit));
            if !again || problems.len() > MAX_LISTED {
                // More problems than are listed: `Findings::conclude` drops everything that checks of this
                // default find.
                return (T::default(), problems);
            }
        }
    }

    /// The files whose contents are parts of texts.
    pub fn inserted(&self) -> &[PathBuf] {
        &self.inserted
    }

    pub(crate) fn set_inserted(&mut self, files: Vec<PathBuf>) {
        self.inserted = files;
    }

    pub(crate) fn root_mut(&mut self) -> &mut DeValue<'t> {
        self.root.get_mut()
    }

    /// A problem of the value at `path`, with the position of the value or of the nearest enclosing one in the file.
    pub(crate) fn locate(&self, path: KeyPath, problem: Problem) -> Located {
        // A missing key has no position, but the table around it has. The root is left out: its position
        // would always be the first line.
        let nearest = (1..=path.0.len()).rev().find_map(|length| self.find(&path.0[..length]));
        let place = nearest.map(|(_, value)| self.place(value.span().start));
        Located { place, path, problem }
    }

    /// All texts of the file, in the order of their keys, with their paths.
    pub fn texts(&self) -> Vec<(KeyPath, &str)> {
        let mut texts = Vec::new();
        collect(&KeyPath::default(), self.root.get_ref(), &mut texts);
        texts
    }

    /// Whether there is a value at `path`.
    pub fn contains(&self, path: &KeyPath) -> bool {
        self.find(&path.0).is_some()
    }

    /// The value at `path`.
    pub(crate) fn value(&self, path: &KeyPath) -> Option<&Spanned<DeValue<'t>>> {
        self.find(&path.0).map(|(_, value)| value)
    }

    /// Line of the value at `path`, from 1, with the file if it is an included one.
    pub fn line(&self, path: &KeyPath) -> Option<(usize, Option<PathBuf>)> {
        let place = self.place(self.value(path)?.span().start);
        Some((place.line, place.file.map(|(_, file)| file)))
    }

    /// The place of a byte of all texts.
    fn place(&self, mut offset: usize) -> Place {
        for (number, (file, text)) in self.texts.iter().enumerate() {
            // The end of a text is the start of the next one, where a value is more likely.
            if offset < text.len() || number + 1 == self.texts.len() {
                let file = (number > 0).then(|| (number, file.to_path_buf()));
                return Place { file, ..Place::of(position(text, offset)) };
            }
            offset -= text.len();
        }
        Place::of((1, 1))
    }

    fn blame(&self, error: ReadError) -> (Located, Option<*const Spanned<DeValue<'t>>>) {
        let path = error.path();
        let found = self.find(&path.0);
        let culprit = found.as_ref().map(|(_, value)| std::ptr::from_ref(*value));
        let located = match (&error.problem, found) {
            // An unknown key is itself at fault, so the position is that of the key. All other faults are in
            // the value.
            (Problem::UnknownKey { key: name, .. }, Some((Some(key), _))) => {
                let advised = (self.advice)(name).map(Problem::Foreign);
                let problem = advised.unwrap_or(error.problem);
                Located { place: Some(self.place(key.start)), path, problem }
            }
            _ => self.locate(path, error.problem),
        };
        (located, culprit)
    }

    /// The place of the key, where there is one, and the value at `path`.
    fn find(&self, path: &[Segment]) -> Option<(Option<Range<usize>>, &Spanned<DeValue<'t>>)> {
        let mut found = (None, &self.root);
        for segment in path {
            found = match (segment, found.1.get_ref()) {
                (Segment::Key(key), DeValue::Table(table)) => {
                    let (key, value) = table.get_key_value(key.as_str())?;
                    (Some(key.span()), value)
                }
                (Segment::Index(index), DeValue::Array(array)) => (None, array.get(*index)?),
                _ => return None,
            };
        }
        Some(found)
    }
}

fn collect<'d>(path: &KeyPath, value: &'d DeValue<'_>, texts: &mut Vec<(KeyPath, &'d str)>) {
    match value {
        DeValue::String(text) => texts.push((path.clone(), text)),
        DeValue::Array(array) => {
            for (index, value) in array.iter().enumerate() {
                collect(&path.index(index), value.get_ref(), texts);
            }
        }
        DeValue::Table(table) => {
            for (key, value) in table {
                collect(&path.key(key.get_ref()), value.get_ref(), texts);
            }
        }
        _ => {}
    }
}

/// The message of a TOML error; at a bare word, with the accepted forms.
fn explained(error: &toml::de::Error, text: &str) -> String {
    let message = error.message();
    let start = error.span().map(|span| span.start);
    let quote = start
        .and_then(|start| text.get(start..)?.chars().next())
        .filter(|first| "“”„‟«»‘’‚‛".contains(*first));
    // The parser's message is about bytes of TOML. It does not help where a text was copied with printed
    // quotation marks.
    if let Some(quote) = quote {
        return format!("{quote} is a quotation mark of printed text: write \" at both ends of a text");
    }
    match start.and_then(|start| bare_word(text, start)) {
        Some(word) => format!("{message}; text stands in quotes: \"{word}\""),
        None => message.to_owned(),
    }
}

/// The value around a byte offset, if it is written without quotes and is no number.
fn bare_word(text: &str, offset: usize) -> Option<&str> {
    let part = |c: char| c.is_ascii_alphanumeric() || ".:/-_*".contains(c);
    let (before, after) = text.split_at_checked(offset)?;
    let head = before.trim_end_matches(part);
    let end = after.find(|c| !part(c)).unwrap_or(after.len());
    let word = text.get(head.len()..offset + end)?;
    let value = head.trim_end_matches([' ', '\t']).ends_with(['=', '[', ',']);
    let number = word.bytes().all(|byte| byte.is_ascii_digit());
    (value && !word.is_empty() && !number).then_some(word)
}

/// Line and column of a byte offset, both from 1; columns count characters.
fn position(text: &str, offset: usize) -> (usize, usize) {
    // An offset within a character must not panic while an error is formed.
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}
