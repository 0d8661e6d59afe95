//! Errors of a configuration, one line each: position, key, fault and correction.

use std::fmt;
use std::path::{Path, PathBuf};

/// Problems listed at most; a file with more of them is better read again from the top.
pub(crate) const MAX_LISTED: usize = 10;

/// Names must be at least this near (Jaro-Winkler, 0 to 1) to be offered instead of the whole list.
const NEAR: f64 = 0.82;

/// Shorter words are similar to every other: `"1.1"` is not a misspelt `"1.3"`.
const SHORTEST: usize = 4;

/// One step from a table or list to one of its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// To the value of a key in a table.
    Key(String),
    /// To an item of a list, from 0.
    Index(usize),
}

/// The way from the top of the file to a value, shown as `host[0].route[1].upstream`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPath(pub(crate) Vec<Segment>);

impl KeyPath {
    /// The path of a top-level key.
    pub fn of(key: &str) -> Self {
        Self::default().key(key)
    }

    /// The path of `key` in the table at this path.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.with(Segment::Key(key.to_owned()))
    }

    /// The path of the item `index` in the list at this path.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.with(Segment::Index(index))
    }

    /// The steps of the path.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// The table or list that holds the value at this path.
    pub fn parent(&self) -> &[Segment] {
        self.0.split_last().map_or(&[], |(_, parent)| parent)
    }

    fn with(&self, segment: Segment) -> Self {
        Self(self.0.iter().cloned().chain([segment]).collect())
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) => {
                    let dot = if position == 0 { "" } else { "." };
                    // TOML permits these characters alone in a key without quotes. A message shows the key as
                    // the file has it.
                    let bare = !key.is_empty()
                        && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
                    if bare { write!(f, "{dot}{key}")? } else { write!(f, "{dot}{key:?}")? }
                }
            }
        }
        Ok(())
    }
}

/// A single fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    /// The file is not valid TOML.
    #[error("not valid TOML: {0}")]
    Syntax(String),
    /// An unknown key.
    #[error("unknown key; {}", offer(.key, .known))]
    UnknownKey { key: String, known: Vec<&'static str> },
    /// A key of another program, with its counterpart.
    #[error("unknown key; {0}")]
    Foreign(String),
    /// A word that is none of the words allowed here.
    #[error("{value:?} is not known here; {}", offer(.value, .known))]
    UnknownValue { value: String, known: Vec<String> },
    /// A required key.
    #[error("the key `{0}` is missing")]
    Missing(&'static str),
    /// A number where text belongs, or the like.
    #[error("expected {expected}, found {found}{}", form(.expected, .found))]
    WrongType { expected: String, found: String },
    /// An invalid value, with the reason and the correction.
    #[error("{0}")]
    Wrong(String),
}

/// Syntax of a list or a table; the end of a message about another form.
fn form(expected: &str, found: &str) -> &'static str {
    match (expected, found) {
        ("a list", "a table") => {
            "; a list of tables is written [{ ... }], or under a head with two brackets, as [[host]]"
        }
        ("a list", _) => "; put it in brackets",
        ("a table", "a list") => "; its head has one pair of brackets, as [server]",
        ("a table", _) => "; a table is written { key = value }",
        _ => "",
    }
}

/// "did you mean ..." where something is near, and otherwise all there is.
fn offer<S: AsRef<str>>(written: &str, known: &[S]) -> String {
    // `jaro_winkler` counts a letter in another case as another letter.
    let near = |name: &str| strsim::jaro_winkler(&written.to_ascii_lowercase(), &name.to_ascii_lowercase());
    let nearest =
        known.iter().map(|name| (near(name.as_ref()), name.as_ref())).max_by(|a, b| a.0.total_cmp(&b.0));
    match nearest {
        Some((distance, name)) if distance >= NEAR && written.len() >= SHORTEST => {
            format!("did you mean `{name}`?")
        }
        Some(_) => {
            let names: Vec<_> = known.iter().map(|name| format!("`{}`", name.as_ref())).collect();
            format!("known here: {}", names.join(", "))
        }
        None => "nothing is known here".to_owned(),
    }
}

/// A place in the files of a configuration, in their order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Number and path of an included file; `None` for the main file.
    pub(crate) file: Option<(usize, PathBuf)>,
    /// From 1.
    pub(crate) line: usize,
    /// From 1, in characters.
    pub(crate) column: usize,
}

impl Place {
    /// A line and column of the main file.
    pub(crate) fn of((line, column): (usize, usize)) -> Self {
        Self { file: None, line, column }
    }
}

/// A problem and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// `None` for problems of the configuration as a whole.
    pub(crate) place: Option<Place>,
    pub(crate) path: KeyPath,
    pub(crate) problem: Problem,
}

/// All errors of a file, one line each, in the order of the file.
#[derive(Debug)]
pub struct ConfigError {
    file: PathBuf,
    problems: Vec<Located>,
    files: Vec<PathBuf>,
}

impl ConfigError {
    /// Collects `problems` of `file`.
    pub fn new(file: &Path, mut problems: Vec<Located>) -> Self {
        // Main file first, then the included ones in the order of reading. The sort is stable, so problems of
        // one place keep their order.
        problems.sort_by(|one, other| one.place.cmp(&other.place));
        Self { file: file.to_owned(), problems, files: Vec::new() }
    }

    /// The error of a configuration that was read from `files`.
    #[must_use]
    pub fn with_files(self, files: Vec<PathBuf>) -> Self {
        Self { files, ..self }
    }

    /// The files that the configuration was read from, and patterns of `include`: after a change of one, the fault may be gone.
    /// Empty if the error has no [`with_files`](Self::with_files).
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The error without key paths, for settings that do not come from a file.
    #[must_use]
    pub fn without_keys(mut self) -> Self {
        self.problems.iter_mut().for_each(|problem| problem.path = KeyPath::default());
        self
    }

    /// The error with a reason of it as a whole.
    #[must_use]
    pub fn because(mut self, reason: &str) -> Self {
        let problem = Problem::Wrong(reason.to_owned());
        self.problems.push(Located { place: None, path: KeyPath::default(), problem });
        self
    }

    /// A file that could not be read at all.
    pub fn unreadable(file: &Path, error: &std::io::Error) -> Self {
        let problem = Problem::Wrong(format!("cannot be read: {error}"));
        Self::new(file, vec![Located { place: None, path: KeyPath::default(), problem }])
    }

    /// A file whose text cannot be read as a configuration; `position` is that of the fault, unless the whole text is at fault.
    pub fn of_text(file: &Path, position: Option<(usize, usize)>, fault: &str) -> Self {
        let problem = Problem::Wrong(fault.to_owned());
        Self::new(file, vec![Located { place: position.map(Place::of), path: KeyPath::default(), problem }])
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, Located { place, path, problem }) in self.problems.iter().take(MAX_LISTED).enumerate() {
            let separator = if number == 0 { "" } else { "\n" };
            let included = place.as_ref().and_then(|place| place.file.as_ref());
            write!(f, "{separator}{}:", included.map_or(&self.file, |(_, file)| file).display())?;
            if let Some(Place { line, column, .. }) = place {
                write!(f, "{line}:{column}:")?;
            }
            if !path.0.is_empty() {
                write!(f, " {path}:")?;
            }
            write!(f, " {problem}")?;
        }
        let file = self.file.display();
        if self.problems.len() > MAX_LISTED { write!(f, "\n{file}: and more") } else { Ok(()) }
    }
}

impl std::error::Error for ConfigError {}
