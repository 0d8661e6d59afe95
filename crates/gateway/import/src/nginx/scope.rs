//! Levels of a configuration, and nginx's rule of inheritance.

use crate::directive::Directive;

/// The blocks around a directive, from `http` inwards.
///
/// nginx inherits a directive from the level above only if the level itself has none of the same name. Lists such as
/// `add_header` are replaced as a whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope<'a>(Vec<&'a [Directive]>);

impl<'a> Scope<'a> {
    /// The scope inside of a block.
    pub(crate) fn child(&self, block: &'a [Directive]) -> Self {
        Self(self.0.iter().copied().chain([block]).collect())
    }

    /// Number of levels.
    pub(crate) fn depth(&self) -> usize {
        self.0.len()
    }

    /// The directives of the innermost level that has some of the names, and the number of that level, from 1.
    pub(crate) fn all_of(&self, names: &[&str]) -> (usize, Vec<&'a Directive>) {
        // From the inside: the innermost level with a directive hides all others.
        for (level, block) in self.0.iter().enumerate().rev() {
            let found: Vec<_> = block.iter().filter(|directive| names.contains(&&*directive.name)).collect();
            if !found.is_empty() {
                return (level + 1, found);
            }
        }
        (0, Vec::new())
    }

    /// The directives in force with this name.
    pub(crate) fn all(&self, name: &str) -> Vec<&'a Directive> {
        self.all_of(&[name]).1
    }

    /// The directive in force with this name.
    pub(crate) fn one(&self, name: &str) -> Option<&'a Directive> {
        self.all(name).first().copied()
    }

    /// Number of the level that sets the directive; 0 if none does.
    pub(crate) fn level(&self, name: &str) -> usize {
        self.all_of(&[name]).0
    }

    /// Whether the directive is `on`.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.one(name).is_some_and(|directive| directive.arg(0) == "on")
    }

    /// Directives of the innermost block.
    pub(crate) fn own(&self) -> &'a [Directive] {
        self.0.last().copied().unwrap_or_default()
    }
}
