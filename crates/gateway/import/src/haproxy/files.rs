//! Files: the configuration, and the lists of `-f`, files of `map` and pages of `errorfile` that it names.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::ImportError;
use crate::bounded::{MOST_FILES, Reader};
use crate::directive::Directive;
use crate::haproxy::grammar::Grammar;

/// Reader of files with bounds for all of them together.
#[derive(Debug)]
pub(crate) struct Files {
    folder: PathBuf,
    reader: Reader,
    /// Whether files that the configuration names are read.
    reads_others: bool,
    known: BTreeMap<PathBuf, Result<Arc<str>, String>>,
    /// Lines of lists and maps.
    lists: BTreeMap<PathBuf, Arc<[String]>>,
    folders: BTreeMap<PathBuf, Option<Arc<[String]>>>,
}

impl Files {
    /// Reads a file, or the files `*.cfg` of a folder in the order of their names, as HAProxy does.
    pub(crate) fn read(path: &Path) -> Result<(Vec<Directive>, usize, Self), ImportError> {
        let unreadable = |error| ImportError::Unreadable { file: path.to_owned(), error };
        let is_folder = path.is_dir();
        let folder = if is_folder { path } else { path.parent().unwrap_or(Path::new("")) };
        let mut files = Self::new(folder, true);
        let mut paths = vec![path.to_owned()];
        if is_folder {
            let entries = fs::read_dir(path).map_err(unreadable)?.flatten().map(|entry| entry.path());
            paths = entries
                .filter(|path| path.extension().is_some_and(|end| end == "cfg"))
                // One file above the bound, so that `bytes_of` gives the error.
                .take(MOST_FILES + 1)
                .collect();
            paths.sort();
        }
        let mut grammar = Grammar::default();
        let mut all = Vec::new();
        for path in paths {
            let text = files.reader.text(&path).map_err(|error| match error {
                Some(error) => ImportError::Unreadable { file: path.clone(), error },
                None => ImportError::TooLarge { file: path.clone() },
            })?;
            // Editors may write a byte order mark, which is no part of the first word.
            let text = text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned();
            all.extend(grammar.parse(&text, &Arc::from(path))?);
        }
        Ok((all, grammar.count, files))
    }

    /// Reads a text without the files that it names.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn of_text(text: &str) -> Result<(Vec<Directive>, usize, Self), ImportError> {
        let mut grammar = Grammar::default();
        let all = grammar.parse(text, &Arc::from(Path::new("haproxy.cfg")))?;
        Ok((all, grammar.count, Self::new(Path::new("/etc/haproxy"), false)))
    }

    fn new(folder: &Path, reads_others: bool) -> Self {
        let (known, lists, folders) = Default::default();
        Self { folder: folder.to_owned(), reader: Reader::default(), reads_others, known, lists, folders }
    }

    /// The name of a file, absolute if the `folder` is: `/etc/haproxy/a.lst` for `a.lst`.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The content of a file that the configuration names. `Err` is the reason why it is missing; `known` keeps both.
    pub(crate) fn text(&mut self, name: &str) -> Result<Arc<str>, String> {
        let path = self.path(name);
        if !self.reads_others {
            return Err("files are not read".to_owned());
        }
        if let Some(known) = self.known.get(&path) {
            return known.clone();
        }
        let text = self.reader.text(&path).map(Arc::from).map_err(|error| match error {
            Some(error) => format!("{} cannot be read: {error}", path.display()),
            None => "the files are more than 1000, or larger than 16 MiB together".to_owned(),
        });
        self.known.insert(path, text.clone());
        text
    }

    /// The lines of a file with patterns, without comments.
    pub(crate) fn lines(&mut self, name: &str) -> Result<Arc<[String]>, String> {
        let path = self.path(name);
        if let Some(known) = self.lists.get(&path) {
            return Ok(Arc::clone(known));
        }
        let text = self.text(name)?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let lines: Arc<[String]> = lines.map(str::to_owned).collect();
        self.lists.insert(path, Arc::clone(&lines));
        Ok(lines)
    }

    /// Names of the files in a folder, sorted; `None` without such a folder on this machine, or with more than `MOST_FILES`.
    pub(crate) fn names(&mut self, folder: &str) -> Option<Arc<[String]>> {
        let path = self.path(folder);
        if !self.folders.contains_key(&path) {
            let entries = self.reads_others.then(|| fs::read_dir(&path).ok()).flatten();
            let names = entries.map(|entries| {
                let files = entries.flatten().filter(|entry| entry.path().is_file());
                let names = files.map(|entry| entry.file_name().to_string_lossy().into_owned());
                let mut names: Vec<_> = names.take(MOST_FILES + 1).collect();
                names.sort();
                names
            });
            let names = names.filter(|names| names.len() <= MOST_FILES);
            self.folders.insert(path.clone(), names.map(Arc::from));
        }
        self.folders.get(&path).cloned().flatten()
    }

    /// Whether `name` is that of a file on this machine; `false` without `reads_others`.
    pub(crate) fn is_file(&self, name: &str) -> bool {
        self.reads_others && self.path(name).is_file()
    }

    /// Whether `name` is that of a folder on this machine; `false` without `reads_others`.
    pub(crate) fn is_folder(&self, name: &str) -> bool {
        self.reads_others && self.path(name).is_dir()
    }
}
