//! Levels of a configuration, and nginx's rule of inheritance.

use crate::directive::Directive;

/// The blocks around a directive, from `http` inwards.
///
/// nginx inherits a directive from the level above only if the level itself has none of the same name. Lists such as
/// `add_header` are replaced as a whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope<'a> {
    blocks: Vec<&'a [Directive]>,
    /// Number of levels around the innermost location, from which it does not inherit [`OWN`].
    around: usize,
}

/// Directives that a location does not inherit, but its blocks of `if` and `limit_except` do.
const OWN: [&str; 17] = [
    "proxy_pass",
    "grpc_pass",
    "fastcgi_pass",
    "uwsgi_pass",
    "scgi_pass",
    "memcached_pass",
    "stub_status",
    "empty_gif",
    "js_content",
    "content_by_lua_block",
    "content_by_lua_file",
    "try_files",
    "limit_except",
    "return",
    "rewrite",
    "set",
    "if",
];

impl<'a> Scope<'a> {
    /// The scope inside of a block of any kind except `location`.
    pub(crate) fn child(&self, block: &'a [Directive]) -> Self {
        Self { blocks: self.blocks.iter().copied().chain([block]).collect(), around: self.around }
    }

    /// The scope inside of a location.
    pub(crate) fn location(&self, block: &'a [Directive]) -> Self {
        Self { around: self.blocks.len(), ..self.child(block) }
    }

    /// Number of levels.
    pub(crate) fn depth(&self) -> usize {
        self.blocks.len()
    }

    /// The directives of the innermost level that has some of the names, and the number of that level, from 1.
    pub(crate) fn all_of(&self, names: &[&str]) -> (usize, Vec<&'a Directive>) {
        for (level, block) in self.blocks.iter().enumerate().rev() {
            let is_in_force = |name: &str| level >= self.around || !OWN.contains(&name);
            let is_one = |name: &str| names.contains(&name) && is_in_force(name);
            let found: Vec<_> = block.iter().filter(|directive| is_one(&directive.name)).collect();
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
        self.blocks.last().copied().unwrap_or_default()
    }
}
