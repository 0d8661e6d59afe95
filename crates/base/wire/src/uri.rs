//! Schemes of URIs that are more than `http` and `https`, such as `unix:`.

/// The rest of `text` after `prefix`, a scheme and its delimiters such as `unix:` or `redis://`, in any case (RFC 3986 section
/// 3.1).
pub fn without_scheme<'t>(text: &'t str, prefix: &str) -> Option<&'t str> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_compared_without_case() {
        for (text, rest) in [
            ("unix:/Run/App", Some("/Run/App")),
            ("UNIX:/run", Some("/run")),
            ("Unix:", Some("")),
            ("unix", None),
            ("unixx:/run", None),
            ("unié:/run", None),
            ("", None),
        ] {
            assert_eq!(without_scheme(text, "unix:"), rest, "{text}");
        }
    }
}
