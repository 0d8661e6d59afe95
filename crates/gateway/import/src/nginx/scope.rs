//! Levels of a configuration, and nginx's rule of inheritance.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::directive::Directive;

/// Directives that produce the response of a location.
pub(crate) const PASSES: [&str; 12] = [
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
    "dav_methods",
];

/// Further directives that a location does not inherit, but its blocks of `if` and `limit_except` do.
const OWN: [&str; 6] = ["try_files", "limit_except", "return", "rewrite", "set", "if"];

/// Whether a location has the directive for itself: of [`PASSES`], only `dav_methods` is inherited.
fn is_own(name: &str) -> bool {
    OWN.contains(&name) || (name != "dav_methods" && PASSES.contains(&name))
}

/// The blocks around a directive, from `http` inwards.
///
/// nginx inherits a directive from the level above only if the level itself has none of the same name. Lists such as
/// `add_header` are replaced as a whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope<'a> {
    blocks: Vec<Block<'a>>,
    /// Number of levels around the innermost location, from which it does not inherit directives that [`is_own`] lists.
    around: usize,
}

/// A block, and the positions of its directives by their names: a server may have thousands of locations.
#[derive(Clone, Debug)]
struct Block<'a> {
    lines: &'a [Directive],
    places: Rc<BTreeMap<&'a str, Vec<usize>>>,
}

impl<'a> Scope<'a> {
    /// The scope inside of a block of any kind except `location`.
    pub(crate) fn child(&self, block: &'a [Directive]) -> Self {
        let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (place, line) in block.iter().enumerate() {
            places.entry(&line.name).or_default().push(place);
        }
        let block = Block { lines: block, places: Rc::new(places) };
        Self { blocks: self.blocks.iter().cloned().chain([block]).collect(), around: self.around }
    }

    /// The scope inside of a `location`.
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
            let in_force = names.iter().filter(|name| level >= self.around || !is_own(name));
            let places = in_force.filter_map(|name| block.places.get(*name));
            let mut places: Vec<usize> = places.flatten().copied().collect();
            if !places.is_empty() {
                // In the order of the block: of `allow` and `deny`, the first match decides.
                places.sort_unstable();
                let lines = block.lines;
                return (level + 1, places.into_iter().map(|place| &lines[place]).collect());
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
        self.blocks.last().map(|block| block.lines).unwrap_or_default()
    }
}
