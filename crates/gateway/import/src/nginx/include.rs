//! Files: the main file and its `include`s, with wildcards in their names.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::ImportError;
use crate::bounded::{MOST_FILES, Reader};
use crate::directive::Directive;
use crate::nginx::grammar;

/// Depth of included files at most.
const DEEPEST: usize = 16;

/// Files whose content brisk has built in.
const BUILT_IN: [&str; 6] =
    ["mime.types", "fastcgi_params", "fastcgi.conf", "uwsgi_params", "scgi_params", "koi-utf"];

/// Reader of a file and of the files that it includes.
#[derive(Debug)]
pub(crate) struct Files {
    folder: PathBuf,
    reader: Reader,
    next: usize,
    /// Numbers of `include` directives without a readable file, with the reason.
    pub(crate) missing: Vec<(usize, String)>,
}

impl Files {
    /// Reads `path` completely. Relative names of included files start at its folder, as in nginx.
    pub(crate) fn read(path: &Path) -> Result<(Vec<Directive>, Self), ImportError> {
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let mut files = Self { folder, reader: Reader::default(), next: 0, missing: Vec::new() };
        let directives = files.file(path, 0)?;
        Ok((directives, files))
    }

    /// Reads a text without the files that it includes.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn of_text(text: &str) -> Result<(Vec<Directive>, Self), ImportError> {
        let mut files =
            Self { folder: PathBuf::new(), reader: Reader::default(), next: 0, missing: Vec::new() };
        let directives = grammar::parse(text, &Arc::from(Path::new("nginx.conf")), &mut files.next)?;
        Ok((directives, files))
    }

    /// Number of directives that were read.
    pub(crate) fn count(&self) -> usize {
        self.next
    }

    fn file(&mut self, path: &Path, depth: usize) -> Result<Vec<Directive>, ImportError> {
        let text = self.reader.text(path).map_err(|error| match error {
            Some(error) => ImportError::Unreadable { file: path.to_owned(), error },
            None => ImportError::TooLarge { file: path.to_owned() },
        })?;
        if depth > DEEPEST {
            return Err(ImportError::TooLarge { file: path.to_owned() });
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let directives = grammar::parse(text, &Arc::from(path), &mut self.next)?;
        self.with_includes(directives, depth)
    }

    /// Puts the content of included files after their `include`.
    fn with_includes(
        &mut self,
        directives: Vec<Directive>,
        depth: usize,
    ) -> Result<Vec<Directive>, ImportError> {
        let mut all = Vec::with_capacity(directives.len());
        for mut directive in directives {
            if let Some(block) = directive.block.take() {
                directive.block = Some(self.with_includes(block, depth)?);
            }
            let included =
                if directive.name == "include" { self.included(&directive, depth)? } else { Vec::new() };
            all.push(directive);
            all.extend(included);
        }
        Ok(all)
    }

    fn included(&mut self, include: &Directive, depth: usize) -> Result<Vec<Directive>, ImportError> {
        let name = include.arg(0);
        if BUILT_IN.iter().any(|file| name == *file || name.ends_with(&format!("/{file}"))) {
            return Ok(Vec::new());
        }
        let path = self.folder.join(name);
        let has_wildcard = name.contains(['*', '?', '[']);
        let paths = if has_wildcard { expand(&path)? } else { vec![path] };
        let mut all = Vec::new();
        for path in paths {
            match self.file(&path, depth + 1) {
                Ok(directives) => all.extend(directives),
                // Another machine may have the file, so the rest is translated and the report names it. nginx
                // would not start.
                Err(ImportError::Unreadable { file, error }) => {
                    self.missing.push((include.id, format!("{}: {error}", file.display())));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }
}

/// Files that a name with wildcards means, sorted. Wildcards may be in each part of the path.
pub(crate) fn expand(pattern: &Path) -> Result<Vec<PathBuf>, ImportError> {
    let mut found = vec![PathBuf::new()];
    for part in pattern {
        let part = part.to_string_lossy();
        if !part.contains(['*', '?', '[']) {
            for path in &mut found {
                path.push(&*part);
            }
            continue;
        }
        let mut next = Vec::new();
        for folder in found {
            let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let name = entry.file_name();
                if matches_wildcard(part.as_bytes(), name.to_string_lossy().as_bytes()) {
                    next.push(entry.path());
                }
                // Inside of the loop: several `*` in a path multiply the names.
                if next.len() > MOST_FILES {
                    return Err(ImportError::TooLarge { file: pattern.to_owned() });
                }
            }
        }
        // As `glob` of nginx: the order of the files decides which server is the first.
        next.sort();
        found = next;
    }
    found.retain(|path| path.is_file());
    Ok(found)
}

/// Whether `name` is of the form `pattern`, with `*`, `?` and sets of characters in brackets. A name that begins with a dot
/// needs a pattern that does.
fn matches_wildcard(pattern: &[u8], name: &[u8]) -> bool {
    if name.first() == Some(&b'.') && pattern.first() != Some(&b'.') {
        return false;
    }
    let (mut at, mut start) = (0, 0);
    // Only the last `*` is tried again, so the time is bounded by the product of both lengths.
    let mut star: Option<(usize, usize)> = None;
    while start < name.len() {
        match one(&pattern[at..], name[start]) {
            Some(0) => {
                star = Some((at + 1, start));
                at += 1;
            }
            Some(length) => {
                at += length;
                start += 1;
            }
            None => match &mut star {
                Some((behind, from)) => {
                    *from += 1;
                    (at, start) = (*behind, *from);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Length of the first part of `pattern` if it matches `byte`; 0 for `*`.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern.first()? {
        b'*' => Some(0),
        b'?' => Some(1),
        b'[' => {
            // Two bytes are skipped, since a bracket at the beginning of a set is one of its characters.
            let end = pattern.iter().skip(2).position(|next| *next == b']')? + 2;
            let set = &pattern[1..end];
            let (negated, set) = match set.split_first() {
                Some((b'!' | b'^', set)) => (true, set),
                _ => (false, set),
            };
            let mut is_in = set.contains(&byte);
            for range in set.windows(3).filter(|range| range[1] == b'-') {
                is_in |= (range[0]..=range[2]).contains(&byte);
            }
            (is_in != negated).then_some(end + 1)
        }
        own => (*own == byte).then_some(1),
    }
}

/// Whether the message about a file that cannot be read names one that packages of nginx have, with the usual variables.
pub(crate) fn is_standard(cause: &str) -> bool {
    let name = cause.rsplit_once(": ").map_or(cause, |(file, _)| file);
    ["fastcgi_params", "fastcgi.conf", "fastcgi-php.conf", "uwsgi_params", "scgi_params"]
        .iter()
        .any(|own| name.ends_with(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_as_in_a_shell() {
        for (pattern, name, expected) in [
            ("*.conf", "a.conf", true),
            ("*.conf", ".conf", false),
            ("*.conf", "a.conf.bak", false),
            ("a?[0-9]*", "ab7", true),
            ("a?[!0-9]", "ab7", false),
            ("*a*b", "xaxbxb", true),
        ] {
            assert_eq!(matches_wildcard(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn included_files_follow_their_directive_in_the_order_of_their_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
        write("b.part", "second;\n");
        write("a.part", "first;\n");
        write("main", "include *.part;\ninclude missing;\ninclude mime.types;\n");
        let (all, files) = Files::read(&folder.path().join("main")).expect("right");
        let names: Vec<_> = all.iter().map(|directive| directive.name.as_str()).collect();
        assert_eq!(names, ["include", "first", "second", "include", "include"]);
        assert_eq!((files.count(), files.missing.len()), (5, 1));
        write("main", "include main;");
        assert!(matches!(Files::read(&folder.path().join("main")), Err(ImportError::TooLarge { .. })));
    }
}
