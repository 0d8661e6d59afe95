//! Variables of the environment, and contents of files, in the texts of a configuration.

use std::path::{Path, PathBuf};

use toml::de::DeValue;

use crate::document::Document;
use crate::error::{KeyPath, Located, Problem, Segment};

/// Maximum length of a file whose content is inserted, in bytes.
const LARGEST: usize = 64 << 10;

impl Document<'_> {
    /// Replaces `${NAME}` in all texts by the variable, `${NAME:-TEXT}` by the variable or, if it is missing or empty, by `TEXT`,
    /// and `${file:PATH}` by the content of a file of at most 64 KiB, without line breaks at its end; relative paths begin at `base`.
    /// `$${` becomes `${`. Keys and numbers stay as they are, and so do the texts of the keys `verbatim`. The files are in
    /// [`inserted`](Self::inserted).
    ///
    /// # Errors
    ///
    /// One problem for each text with a variable that is missing, or with a file that cannot be read.
    pub fn expand(
        &mut self,
        base: &Path,
        verbatim: &[&str],
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), Vec<Located>> {
        let mut expansion = Expansion { verbatim, ..Expansion::new(base, environment) };
        expansion.expand(&KeyPath::default(), self.root_mut());
        let Expansion { files, problems, .. } = expansion;
        self.set_inserted(files);
        if problems.is_empty() {
            return Ok(());
        }
        Err(problems.into_iter().map(|(path, reason)| self.locate(path, Problem::Wrong(reason))).collect())
    }
}

/// `text` with its variables and files replaced as by [`Document::expand`], for a value that is needed before the document.
///
/// # Errors
///
/// The reason for which a variable or a file cannot be inserted.
pub fn expand_text(
    text: &str,
    base: &Path,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    Expansion::new(base, environment).text(text)
}

/// The replacement of variables in texts.
pub(crate) struct Expansion<'a> {
    base: &'a Path,
    verbatim: &'a [&'a str],
    environment: &'a dyn Fn(&str) -> Option<String>,
    files: Vec<PathBuf>,
    problems: Vec<(KeyPath, String)>,
}

impl<'a> Expansion<'a> {
    pub(crate) fn new(base: &'a Path, environment: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { base, verbatim: &[], environment, files: Vec::new(), problems: Vec::new() }
    }
}

impl Expansion<'_> {
    fn expand(&mut self, path: &KeyPath, value: &mut DeValue<'_>) {
        match value {
            DeValue::String(text) if text.contains("${") && !self.is_verbatim(path) => {
                match self.text(text) {
                    Ok(expanded) => *text = expanded.into(),
                    Err(reason) => self.problems.push((path.clone(), reason)),
                }
            }
            DeValue::Array(array) => {
                for (index, value) in array.iter_mut().enumerate() {
                    self.expand(&path.index(index), value.get_mut());
                }
            }
            DeValue::Table(table) => {
                for (key, value) in table.iter_mut() {
                    self.expand(&path.key(key.get_ref()), value.get_mut());
                }
            }
            _ => {}
        }
    }

    fn is_verbatim(&self, path: &KeyPath) -> bool {
        matches!(path.segments().last(), Some(Segment::Key(key)) if self.verbatim.contains(&key.as_str()))
    }

    /// `text` with its variables replaced; otherwise the reason.
    pub(crate) fn text(&mut self, text: &str) -> Result<String, String> {
        let mut expanded = String::new();
        let mut rest = text;
        // Not applied to the inserted values again: a password that contains `${` stays as it is.
        while let Some(at) = rest.find("${") {
            if let Some(before) = rest[..at].strip_suffix('$') {
                expanded.push_str(before);
                expanded.push_str("${");
                rest = &rest[at + 2..];
                continue;
            }
            expanded.push_str(&rest[..at]);
            let inner = &rest[at + 2..];
            let end =
                inner.find('}').ok_or("\"${\" has no closing brace; write \"$${\" for these characters")?;
            expanded.push_str(&self.value(&inner[..end])?);
            rest = &inner[end + 1..];
        }
        expanded.push_str(rest);
        Ok(expanded)
    }

    /// The value of `inner`, the text between the braces.
    fn value(&mut self, inner: &str) -> Result<String, String> {
        if let Some(file) = inner.strip_prefix("file:") {
            return self.file(Path::new(file));
        }
        let (name, default) = inner.split_once(":-").map_or((inner, None), |(name, text)| (name, Some(text)));
        let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_of_names) || name.as_bytes()[0].is_ascii_digit() {
            return Err(format!(
                "\"${{{inner}}}\" names no variable: write ${{NAME}}, ${{NAME:-text}} or ${{file:/path}}, or \"$${{\" for these \
                 characters"
            ));
        }
        // As `:-` of a POSIX shell: the default replaces an empty variable too, and without a default an
        // empty one is a value.
        let value = (self.environment)(name).filter(|value| default.is_none() || !value.is_empty());
        value.or_else(|| default.map(str::to_owned)).ok_or_else(|| {
            format!(
                "the environment has no variable {name}: set it, write ${{{name}:-text}} with a default, or \"$${{\" for these \
                 characters"
            )
        })
    }

    fn file(&mut self, file: &Path) -> Result<String, String> {
        let file = self.base.join(file);
        let shown = file.display().to_string();
        // One byte more than permitted, so that a longer file is refused instead of cut.
        let bytes = brisk_secrets::read_at_most(&file, LARGEST + 1)
            .map_err(|error| format!("cannot read {shown}: {error}"))?;
        if bytes.len() > LARGEST {
            return Err(format!(
                "{shown} has more than {LARGEST} bytes, which are the most that are permitted here"
            ));
        }
        let text = str::from_utf8(&bytes).map_err(|error| format!("cannot read {shown}: {error}"))?;
        self.files.push(file);
        // Editors and `echo` end a file with a line break, which is no part of a password.
        Ok(text.trim_end_matches(['\r', '\n']).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use serde::Deserialize;

    use super::*;
    use crate::ConfigError;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Texts {
        a: String,
        list: Vec<String>,
        table: BTreeMap<String, String>,
    }

    fn environment(name: &str) -> Option<String> {
        match name {
            "DOMAIN" => Some("example.com".to_owned()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("${DOMAIN}".to_owned()),
            _ => None,
        }
    }

    fn expanded(text: &str, base: &Path) -> Result<(Texts, Vec<PathBuf>), String> {
        let mut document = Document::parse(text).expect("TOML");
        let failed = |problems| ConfigError::new(Path::new("brisk.toml"), problems).to_string();
        document.expand(base, &["body", "regex"], &environment).map_err(failed)?;
        let files = document.inserted().to_vec();
        let (texts, problems) = document.read();
        assert!(problems.is_empty());
        Ok((texts, files))
    }

    #[test]
    fn texts_have_variables_and_files() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("secret"), "p4ss\n").expect("a file");
        let text = r#"
            a = "www.${DOMAIN}:${PORT:-443}"
            list = ["${EMPTY}", "${EMPTY:-x}", "${NESTED}", "$${DOMAIN} $DOMAIN", "${file:secret}!"]
            table = { b = "${DOMAIN}", body = "${DOMAIN}", regex = "^${DOMAIN}" }
        "#;
        let (texts, files) = expanded(text, folder.path()).expect("texts");
        assert_eq!(texts.a, "www.example.com:443");
        assert_eq!(texts.list, ["", "x", "${DOMAIN}", "${DOMAIN} $DOMAIN", "p4ss!"]);
        let table: Vec<_> = texts.table.into_values().collect();
        assert_eq!(table, ["example.com", "${DOMAIN}", "^${DOMAIN}"]);
        assert_eq!(files, [folder.path().join("secret")]);
    }

    #[test]
    fn what_is_missing_is_named_with_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("large"), "x".repeat(65 << 10)).expect("a file");
        for (text, message) in [
            (
                "a = \"${MISSING}\"",
                "brisk.toml:1:5: a: the environment has no variable MISSING: set it, write ${MISSING:-text}",
            ),
            (
                "list = [\"x\", \"${x y}\"]",
                "brisk.toml:1:14: list[1]: \"${x y}\" names no variable: write ${NAME}",
            ),
            ("a = \"${DOMAIN\"", "brisk.toml:1:5: a: \"${\" has no closing brace"),
            ("a = \"${1}\"", "\"${1}\" names no variable"),
            ("a = \"${file:none}\"", "none: No such file"),
            ("a = \"${file:large}\"", "has more than 65536 bytes"),
        ] {
            let error = expanded(text, folder.path()).expect_err(text);
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
