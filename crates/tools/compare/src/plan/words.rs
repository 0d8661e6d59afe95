//! Commands and options of a plan: split into words as by a shell, with variables replaced.

use std::collections::BTreeMap;

/// The variables of a plan, written `{NAME}`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Sets `name` to `value`, and replaces an earlier value.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// `text` with every `{NAME}` replaced; `{{` and `}}` are literal braces. An unknown name is an `Err`.
    pub fn fill(&self, text: &str) -> Result<String, String> {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            filled.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                filled.push_str(brace);
                rest = after;
                continue;
            }
            let (name, after) = rest.split_once('}').filter(|_| brace == "{").ok_or_else(|| {
                format!("a brace has no partner in {text:?}: write {{{{ for one that is meant")
            })?;
            filled.push_str(self.value(name, text)?);
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }

    fn value(&self, name: &str, text: &str) -> Result<&str, String> {
        let found = self.0.get(name).map(String::as_str);
        let known = || self.0.keys().map(|name| format!("{{{name}}}")).collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| format!("{{{name}}} in {text:?} stands for nothing: there are {}", known()))
    }

    /// The words of `text` with variables replaced as by [`fill`](Self::fill). A value is never split.
    pub fn words(&self, text: &str) -> Result<Vec<String>, String> {
        // Split before the replacement: quotes and spaces of a value must not become syntax.
        let words = shlex::split(text).ok_or_else(|| format!("a quote has no partner in {text:?}"))?;
        words.iter().map(|word| self.fill(word)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> Variables {
        let mut variables = Variables::default();
        variables.set("port", "8443");
        variables.set("ca", "/a folder/root.pem");
        variables
    }

    #[test]
    fn names_are_replaced_within_words() {
        let words = variables().words("--connect 127.0.0.1:{port} --ca {ca} 'a b' {{x}}").unwrap();
        assert_eq!(words, ["--connect", "127.0.0.1:8443", "--ca", "/a folder/root.pem", "a b", "{x}"]);
        assert_eq!(variables().words("").unwrap(), [""; 0]);
    }

    #[test]
    fn what_stands_for_nothing_is_an_error_that_names_what_there_is() {
        let error = variables().words("--ca {CA}").unwrap_err();
        assert_eq!(error, "{CA} in \"{CA}\" stands for nothing: there are {ca}, {port}");
        for text in ["{port", "port}", "'port"] {
            assert!(variables().words(text).unwrap_err().contains("has no partner"), "{text}");
        }
    }
}
