//! Files, snippets and `import`: each `import` is followed by the directives that it brings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::ImportError;
use crate::bounded::{MOST_FILES, Reader};
use crate::caddy::{environment, grammar};
use crate::directive::Directive;
use crate::nginx::grammar::{DEEPEST, MOST_DIRECTIVES};
use crate::nginx::include::expand;

/// Reader of a file with everything that it imports, within `MOST_FILES` and `MOST_BYTES`.
#[derive(Debug, Default)]
pub(crate) struct Files {
    reader: Reader,
    next: usize,
    /// Directives that imports have brought, at most `MOST_DIRECTIVES`.
    brought: usize,
    snippets: BTreeMap<String, Arc<Directive>>,
    /// Numbers of `import` directives without a readable file, with the reason.
    pub(crate) missing: Vec<(usize, String)>,
    /// Names of the snippets that are imported: `import a` uses `(a)`.
    pub(crate) used: Vec<String>,
}

/// The texts that an `import` passes on: `{args[0]}` and the directives for `{block}`.
struct Passed<'a> {
    args: &'a [String],
    block: &'a [Directive],
}

impl Files {
    /// Reads `path` completely, with the files of each `import`.
    pub(crate) fn read(path: &Path) -> Result<(Vec<Directive>, Self), ImportError> {
        let mut files = Self::default();
        let directives = files.file(path, true)?;
        let all = files.expanded(directives, 0, true)?;
        Ok((all, files))
    }

    /// Reads a text without the files that it imports: each `import` of one is `missing`.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn of_text(text: &str) -> Result<(Vec<Directive>, Self), ImportError> {
        let mut files = Self { reader: Reader { bytes: 0, opened: MOST_FILES }, ..Self::default() };
        let text = environment::structural(text);
        let directives = grammar::parse(&text, &Arc::from(Path::new("Caddyfile")), &mut files.next, true)?;
        let all = files.expanded(directives, 0, true)?;
        Ok((all, files))
    }

    /// Number of directives that were read: each `id` is below it.
    pub(crate) fn count(&self) -> usize {
        self.next
    }

    fn file(&mut self, path: &Path, is_main: bool) -> Result<Vec<Directive>, ImportError> {
        let own = self.reader.text(path).map_err(|error| match error {
            Some(error) => ImportError::Unreadable { file: path.to_owned(), error },
            None => ImportError::TooLarge { file: path.to_owned() },
        })?;
        let text = environment::structural(own.strip_prefix('\u{feff}').unwrap_or(&own));
        // A value of the environment may stand in the text many times.
        self.spend(path, text.len().saturating_sub(own.len()))?;
        grammar::parse(&text, &Arc::from(path), &mut self.next, is_main)
    }

    fn spend(&mut self, file: &Path, bytes: usize) -> Result<(), ImportError> {
        self.reader.bytes += bytes as u64;
        if self.reader.is_full() || self.brought > MOST_DIRECTIVES {
            return Err(ImportError::TooLarge { file: file.to_owned() });
        }
        Ok(())
    }

    /// Puts the content of imports after their `import`, and gathers `snippets` at the top.
    fn expanded(
        &mut self,
        directives: Vec<Directive>,
        depth: usize,
        is_top: bool,
    ) -> Result<Vec<Directive>, ImportError> {
        let mut all = Vec::with_capacity(directives.len());
        for mut directive in directives {
            if is_top && directive.name.starts_with('(') && directive.name != grammar::GLOBAL {
                let name = directive.name.trim_matches(['(', ')']).to_owned();
                self.snippets.insert(name, Arc::new(directive.clone()));
                all.push(directive);
            } else if directive.name == "import" {
                let brought = self.imported(&directive, depth)?;
                all.push(directive);
                all.extend(self.expanded(brought, depth + 1, is_top)?);
            } else {
                if let Some(block) = directive.block.take() {
                    directive.block = Some(self.expanded(block, depth + 1, false)?);
                }
                all.push(directive);
            }
        }
        Ok(all)
    }

    /// The directives of a snippet or of files: `import a` is the snippet `(a)` if there is one.
    fn imported(&mut self, import: &Directive, depth: usize) -> Result<Vec<Directive>, ImportError> {
        let file = import.place.file.to_path_buf();
        if depth > DEEPEST {
            return Err(ImportError::TooLarge { file });
        }
        let name = environment::resolve(import.arg(0));
        let passed = Passed { args: import.args.get(1..).unwrap_or_default(), block: import.inner() };
        let mut all = Vec::new();
        if let Some(snippet) = self.snippets.get(&name).cloned() {
            self.used.push(name);
            self.substituted(snippet.inner(), &passed, &file, &mut all)?;
            return Ok(all);
        }
        for path in self.paths(import, &name)? {
            match self.file(&path, false) {
                Ok(directives) => self.substituted(&directives, &passed, &file, &mut all)?,
                Err(ImportError::Unreadable { file, error }) => {
                    self.missing.push((import.id, format!("{}: {error}", file.display())));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// The files of an `import`, such as `sites/*`, from the folder of the file in which it stands.
    fn paths(&mut self, import: &Directive, name: &str) -> Result<Vec<PathBuf>, ImportError> {
        if name.is_empty() || (self.reader.opened >= MOST_FILES && cfg!(any(test, fuzzing))) {
            self.missing.push((import.id, format!("there is no snippet and no file {name}")));
            return Ok(Vec::new());
        }
        let path = import.place.file.parent().unwrap_or(Path::new("")).join(name);
        if !name.contains(['*', '?', '[']) {
            return Ok(vec![path]);
        }
        let mut paths = expand(&path)?;
        // `expand` finds the files of sets too, as nginx does.
        if name.contains('[') {
            paths.clear();
            self.missing.push((import.id, "Caddy permits * and ? in names".to_owned()));
        }
        Ok(paths)
    }

    /// Copies directives to `all`, with the arguments and the block of an `import` in place of `{args[0]}` and `{block}`.
    fn substituted(
        &mut self,
        directives: &[Directive],
        passed: &Passed<'_>,
        file: &Path,
        all: &mut Vec<Directive>,
    ) -> Result<(), ImportError> {
        for directive in directives {
            if directive.block.is_none() && directive.args.is_empty() && directive.name.starts_with("{block")
            {
                let brought = named_block(&directive.name, passed.block);
                let (count, bytes) = size(brought);
                self.copied(count, bytes, file)?;
                all.extend(brought.iter().cloned());
                continue;
            }
            let mut args = Vec::with_capacity(directive.args.len());
            directive.args.iter().for_each(|arg| substitute(arg, passed.args, &mut args));
            let mut names = Vec::new();
            substitute(&directive.name, passed.args, &mut names);
            // An empty range such as `{args[1:]}` in place of a name leaves nothing, so the name is empty.
            let name = if names.is_empty() { String::new() } else { names.remove(0) };
            args.splice(0..0, names);
            let length = name.len() + args.iter().map(String::len).sum::<usize>();
            self.copied(1, length, file)?;
            let block = match &directive.block {
                Some(block) => {
                    let mut inner = Vec::new();
                    self.substituted(block, passed, file, &mut inner)?;
                    Some(inner)
                }
                None => None,
            };
            all.push(Directive { id: directive.id, name, args, block, place: directive.place.clone() });
        }
        Ok(())
    }

    fn copied(&mut self, count: usize, bytes: usize, file: &Path) -> Result<(), ImportError> {
        self.brought += count;
        self.spend(file, bytes)
    }
}

/// Number of directives, and bytes of their texts.
fn size(directives: &[Directive]) -> (usize, usize) {
    directives.iter().fold((0, 0), |(count, bytes), directive| {
        let (inner, inner_bytes) = size(directive.inner());
        (count + 1 + inner, bytes + inner_bytes + directive.text().len())
    })
}

/// The directives for `{block}`, or for `{blocks.NAME}`.
fn named_block<'a>(name: &str, block: &'a [Directive]) -> &'a [Directive] {
    match name.strip_prefix("{blocks.").and_then(|name| name.strip_suffix('}')) {
        Some(name) => block.iter().find(|own| own.name == name).map_or(&[], Directive::inner),
        None => block,
    }
}

/// Appends the texts for one text, with the arguments of an `import` in their places: `{args[0]}` is one, `{args[:]}` are all.
fn substitute(text: &str, args: &[String], all: &mut Vec<String>) {
    let range = text.strip_prefix("{args[").and_then(|range| range.strip_suffix("]}"));
    if let Some((start, end)) = range.and_then(|range| range.split_once(':'))
        && !start.contains('}')
    {
        let start = start.parse().unwrap_or(0);
        let end = end.parse().unwrap_or(args.len()).min(args.len());
        all.extend(args.get(start..end).unwrap_or_default().iter().cloned());
        return;
    }
    if !text.contains("{args") {
        return all.push(text.to_owned());
    }
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("{args") {
        result.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.find('}').map_or(rest.len(), |end| end + 1);
        let number = rest[5..end].trim_matches(['[', ']', '.', '}']).parse::<usize>();
        match number.ok().and_then(|number| args.get(number)) {
            Some(value) => result.push_str(value),
            None => result.push_str(&rest[..end]),
        }
        rest = &rest[end..];
    }
    result.push_str(rest);
    all.push(result);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_put_in_their_places() {
        let args = ["a".to_owned(), "b".to_owned()];
        for (text, expected) in [
            ("x", vec!["x"]),
            ("{args[0]}.{args[1]}", vec!["a.b"]),
            ("{args.1}", vec!["b"]),
            ("{args[:]}", vec!["a", "b"]),
            ("{args[1:]}", vec!["b"]),
            ("{args[7]}", vec!["{args[7]}"]),
        ] {
            let mut all = Vec::new();
            substitute(text, &args, &mut all);
            assert_eq!(all, expected, "{text}");
        }
    }

    #[test]
    fn snippets_bring_their_directives_with_the_numbers_of_their_lines() {
        let text =
            "(s) {\n header X {args[0]}\n {block}\n}\na.example {\n import s 1 {\n  respond x\n }\n}\n";
        let (all, files) = Files::of_text(text).expect("right");
        let names: Vec<_> = all[1].inner().iter().map(Directive::text).collect();
        assert_eq!(names, ["import s 1", "header X 1", "respond x"]);
        assert_eq!((all[1].inner()[1].id, files.used.len()), (1, 1));
    }

    #[test]
    fn imports_that_never_end_are_refused() {
        let text = "(s) {\n import s\n import s\n}\na.example {\n import s\n}\n";
        assert!(matches!(Files::of_text(text), Err(ImportError::TooLarge { .. })));
    }
}
