//! The texts that a configuration consists of: a file, and the files that its key `include` names.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::DeValue;

use crate::document::Document;
use crate::environment::Expansion;
use crate::error::{ConfigError, KeyPath, Located, Problem};
use crate::matching::matching;

/// The key whose value names further files.
pub(crate) const INCLUDE: &str = "include";

/// A file and its text.
#[derive(Clone, Debug)]
pub struct Source {
    /// The path from the working directory.
    pub file: PathBuf,
    /// The content.
    pub text: String,
}

/// The texts of a configuration as they were read together.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The main file first.
    all: Vec<Source>,
    /// The files, also one that cannot be read, and the paths with `*` of `include`.
    watched: Vec<PathBuf>,
}

impl Sources {
    /// Reads `file` by `read`, and then each file that `include` at its top names once: in the order of the list, those of a
    /// pattern sorted by name. Relative paths begin at the folder of `file`.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, or a wrong `include`, with [`ConfigError::files`]. Other faults of the texts are left to
    /// [`Document::of`].
    pub fn read(
        file: &Path,
        environment: &dyn Fn(&str) -> Option<String>,
        read: &dyn Fn(&Path) -> Result<String, ConfigError>,
    ) -> Result<Self, ConfigError> {
        let mut sources = Self { all: Vec::new(), watched: vec![file.to_owned()] };
        match sources.fill(file, environment, read) {
            Ok(()) => Ok(sources),
            Err(error) => Err(error.with_files(sources.watched)),
        }
    }

    fn fill(
        &mut self,
        file: &Path,
        environment: &dyn Fn(&str) -> Option<String>,
        read: &dyn Fn(&Path) -> Result<String, ConfigError>,
    ) -> Result<(), ConfigError> {
        let text = read(file)?;
        let base = file.parent().unwrap_or(Path::new(""));
        // Canonical, so that a file is read once under all its names. `*.toml` in the folder of the main file
        // also matches that file.
        let mut seen: HashSet<_> = fs::canonicalize(file).into_iter().collect();
        for (path, written) in included(file, base, &text, environment)? {
            let wrong = |reason| ConfigError::new(file, vec![located(&text, path.clone(), reason)]);
            for found in self.files(&base.join(&written)).map_err(wrong)? {
                if seen.insert(fs::canonicalize(&found).unwrap_or_else(|_| found.clone())) {
                    // Before it is read: a file that is missing may appear later.
                    self.watched.push(found.clone());
                    let text = read(&found)?;
                    self.all.push(Source { file: found, text });
                }
            }
        }
        self.all.insert(0, Source { file: file.to_owned(), text });
        Ok(())
    }

    /// The main file.
    pub fn main(&self) -> &Path {
        self.all.first().map_or(Path::new(""), |source| &source.file)
    }

    /// The files, the main one first.
    pub fn all(&self) -> &[Source] {
        &self.all
    }

    /// The files that were read, and the patterns that further files may match.
    pub fn watched(&self) -> impl Iterator<Item = &PathBuf> {
        self.watched.iter()
    }

    /// The files that `path` names; a pattern is noted.
    fn files(&mut self, path: &Path) -> Result<Vec<PathBuf>, String> {
        let shown = path.display();
        // All patterns of a shell are refused. In silence, `?` and `[` would name one file only, which does
        // not exist.
        let parts = |path: &Path| path.to_string_lossy().matches(['*', '?', '[']).count();
        let name = path.file_name().map_or(Path::new(""), Path::new);
        if parts(path) > usize::from(name.to_string_lossy().contains('*')) {
            return Err(format!(
                "\"{shown}\" has a pattern that is not known: write one `*` in the last part, as in \"conf.d/*.toml\""
            ));
        }
        let Some(found) = matching(path) else { return Ok(vec![path.to_owned()]) };
        // Also if nothing matches yet: a reload follows when the first file appears.
        self.watched.push(path.to_owned());
        found.map_err(|error| format!("cannot read the folder of {shown}: {error}"))
    }
}

/// The values of `include` in `text`, with their places. A text that is no TOML has none.
fn included(
    file: &Path,
    base: &Path,
    text: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<(KeyPath, String)>, ConfigError> {
    // `Document::of` parses the text again, and reports the fault with the advice for other formats.
    let Ok(document) = Document::parse(text) else { return Ok(Vec::new()) };
    let path = KeyPath::of(INCLUDE);
    let values: Vec<(KeyPath, &Spanned<DeValue<'_>>)> = match document.value(&path) {
        None => Vec::new(),
        Some(value) => match value.get_ref() {
            DeValue::Array(list) => {
                list.iter().enumerate().map(|(at, value)| (path.index(at), value)).collect()
            }
            _ => vec![(path, value)],
        },
    };
    // Expanded here already, since the paths are needed before the files can be joined. `Document::expand`
    // does so again for the whole document, and notes inserted files to watch.
    let mut expansion = Expansion::new(base, environment);
    let mut problems = Vec::new();
    let mut texts = Vec::new();
    for (path, value) in values {
        let expanded = value.get_ref().as_str().ok_or_else(|| {
            "expected a path in quotes or a list of them, as in include = \"conf.d/*.toml\"".to_owned()
        });
        match expanded.and_then(|text| expansion.text(text)) {
            Ok(text) => texts.push((path, text)),
            Err(reason) => problems.push(document.locate(path, Problem::Wrong(reason))),
        }
    }
    if problems.is_empty() { Ok(texts) } else { Err(ConfigError::new(file, problems)) }
}

fn located(text: &str, path: KeyPath, reason: String) -> Located {
    let document = Document::parse(text).unwrap_or_else(|_| Document::empty());
    document.locate(path, Problem::Wrong(reason))
}
