//! Names of hosts, and those that the matcher `host` compares.

use crate::caddy::environment::has_variable;

/// The name under which requests reach a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostName {
    /// A name, or a wildcard of the site.
    Name(String),
    /// All names that no other host has.
    Other,
}

impl HostName {
    /// Whether a pattern of the matcher `host` fits; none if the name has a variable without a value.
    pub(crate) fn matches(&self, pattern: &str) -> Option<bool> {
        let Self::Name(name) = self else { return Some(false) };
        (!has_variable(name)).then(|| name.eq_ignore_ascii_case(pattern) || covers(pattern, name))
    }
}

/// A name of the matcher `host`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pattern {
    /// The name with the values of its variables.
    pub(crate) name: String,
    /// The text for the result, which keeps variables.
    pub(crate) text: String,
}

/// Whether a wildcard stands for a name.
pub(crate) fn covers(wildcard: &str, name: &str) -> bool {
    let parent = name.split_once('.').map(|(_, parent)| parent);
    wildcard
        .strip_prefix("*.")
        .is_some_and(|domain| parent.is_some_and(|own| own.eq_ignore_ascii_case(domain)))
        && !name.starts_with('*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_stand_for_one_label() {
        assert!(covers("*.a.example", "b.a.example") && !covers("*.a.example", "c.b.a.example"));
        assert!(!covers("*.a.example", "*.a.example"));
    }
}
