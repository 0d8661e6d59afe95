//! Variables of the environment: `{$NAME:default}` of a Caddyfile and `${NAME:-default}` of brisk.
//!
//! Caddy replaces variables in the text before it reads tokens. The result keeps them as variables of brisk where they are part of a
//! value, so that it follows the environment too.

use std::env;

use crate::toml;

/// A variable in a text: the text before it, its name, its default, and the text behind it. `a{$B:c}d` has `a`, `B`, `c` and `d`.
fn split(text: &str) -> Option<(&str, &str, Option<&str>, &str)> {
    let start = text.find("{$")?;
    let length = text[start..].find('}')?;
    let (inner, rest) = (&text[start + 2..start + length], &text[start + length + 1..]);
    let (name, default) = match inner.split_once(':') {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    Some((&text[..start], name, default, rest))
}

/// The text with the values of its variables, as Caddy has it: `{$PORT:80}` is `80` if `PORT` is not set.
pub(crate) fn resolve(text: &str) -> String {
    replaced(text, |_, name, default| value(name, default).unwrap_or_default())
}

/// The text before tokens are read: variables with several words, and those that begin a line and have no value, are replaced.
pub(crate) fn structural(text: &str) -> String {
    replaced(text, |before, name, default| {
        let line = before.rsplit('\n').next().unwrap_or_default();
        let starts_line = line.chars().all(char::is_whitespace);
        match value(name, default) {
            None if starts_line => String::new(),
            Some(value)
                if value.is_empty()
                    || value.contains(|next: char| next.is_whitespace() || "{}\"`".contains(next)) =>
            {
                value
            }
            _ => written(name, default),
        }
    })
}

/// The text as a value of TOML in which brisk replaces variables: `{$A:b}` becomes `"${A:-b}"`, and `${` becomes `$${`.
pub(crate) fn text(text: &str) -> String {
    let mut result = String::new();
    let mut rest = text;
    let escape = |part: &str| part.replace("${", "$${");
    while let Some((before, name, default, behind)) = split(rest) {
        result.push_str(&escape(before));
        match default {
            Some(default) => result.extend(["${", name, ":-", default, "}"]),
            None => result.extend(["${", name, "}"]),
        }
        rest = behind;
    }
    result.push_str(&escape(rest));
    toml::raw(&result)
}

/// A list of texts, each as [`text`] writes it: `["a", "${B}"]`.
pub(crate) fn list<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> String {
    let texts: Vec<_> = texts.into_iter().map(|part| text(part.as_ref())).collect();
    format!("[{}]", texts.join(", "))
}

/// Whether the text has a variable with a name, unlike `{$}`.
pub(crate) fn has_variable(text: &str) -> bool {
    split(text).is_some_and(|(_, name, _, _)| !name.is_empty())
}

/// A name of a host in lower case with the values of its variables; the text itself if one has no value.
pub(crate) fn host_name(text: &str) -> String {
    let mut rest = text;
    while let Some((_, name, default, behind)) = split(rest) {
        if value(name, default).is_none() {
            return text.to_owned();
        }
        rest = behind;
    }
    resolve(text).to_ascii_lowercase()
}

/// Whether the values of all variables are neither addresses nor paths.
pub(crate) fn is_simple(text: &str) -> bool {
    let mut rest = text;
    while let Some((_, name, default, behind)) = split(rest) {
        if value(name, default).unwrap_or_default().contains(['/', ':']) {
            return false;
        }
        rest = behind;
    }
    true
}

fn replaced(text: &str, with: impl Fn(&str, &str, Option<&str>) -> String) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, name, default, behind)) = split(rest) {
        result.push_str(before);
        let text = if name.is_empty() { written(name, default) } else { with(before, name, default) };
        result.push_str(&text);
        rest = behind;
    }
    result.push_str(rest);
    result
}

fn value(name: &str, default: Option<&str>) -> Option<String> {
    env::var(name).ok().or_else(|| default.map(str::to_owned))
}

fn written(name: &str, default: Option<&str>) -> String {
    match default {
        Some(default) => format!("{{${name}:{default}}}"),
        None => format!("{{${name}}}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_stay_where_they_are_values() {
        assert_eq!(text("{$BRISK_NONE:app}:{$BRISK_PORT}"), "\"${BRISK_NONE:-app}:${BRISK_PORT}\"");
        assert_eq!(text("a${b}"), "\"a$${b}\"");
        assert_eq!(resolve("{$BRISK_NONE:app}:{$BRISK_NONE}1"), "app:1");
        assert_eq!(
            structural("{$BRISK_NONE}\nx {$BRISK_NONE:a b} {$BRISK_NONE:c}"),
            "\nx a b {$BRISK_NONE:c}"
        );
        assert_eq!(structural("{$}"), "{$}");
        assert!(is_simple("{$BRISK_NONE:a}:1") && !is_simple("{$BRISK_NONE::80}"));
    }
}
