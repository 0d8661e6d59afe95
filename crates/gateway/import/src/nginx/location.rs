//! Locations of a server of nginx, and places and routes of brisk for them.

use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, BTreeSet};

use regex::bytes::Regex;

use crate::directive::Directive;
use crate::nginx::condition::When;
use crate::nginx::scope::Scope;
use crate::nginx::variables::Values;
use crate::nginx::{dialect, pattern};
use crate::table::Table;
use crate::toml::{self, Keys};

/// Length of a path at most, in bytes.
const LONGEST: usize = 4096;

/// Kind of a `location`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Exact(String),
    /// A beginning of the path; `stop` with `^~`.
    Prefix {
        path: String,
        stop: bool,
    },
    Expression {
        pattern: String,
        ignore_case: bool,
    },
    Named(String),
}

/// A `location` with the blocks around it.
#[derive(Clone, Debug)]
pub(crate) struct Location<'a> {
    pub(crate) kind: Kind,
    pub(crate) scope: Scope<'a>,
    /// `None` for the paths that no `location` names.
    pub(crate) directive: Option<&'a Directive>,
    /// Number of the `location` around it.
    pub(crate) parent: Option<usize>,
    /// Whether it stands for a location that brisk cannot find, so that its route refuses requests.
    pub(crate) refused: bool,
    /// Position among the locations of the `server`.
    pub(crate) number: usize,
    /// The compiled expression, if it is one that is kept.
    pub(crate) matcher: OnceCell<Regex>,
    /// Texts of which each match of its expression has one at its beginning.
    pub(crate) starts: OnceCell<Vec<String>>,
}

impl<'a> Location<'a> {
    /// A location that gets its number when a server takes it.
    pub(crate) fn new(
        kind: Kind,
        scope: Scope<'a>,
        directive: Option<&'a Directive>,
        parent: Option<usize>,
    ) -> Self {
        let (refused, number, matcher, starts) = (false, usize::MAX, OnceCell::new(), OnceCell::new());
        Self { kind, scope, directive, parent, refused, number, matcher, starts }
    }

    /// Whether it has an expression that a path below `prefix` can match.
    pub(crate) fn can_match(&self, prefix: &str) -> bool {
        let Kind::Expression { pattern, ignore_case } = &self.kind else { return false };
        pattern::fits(self.starts.get_or_init(|| pattern::fixed_starts(pattern)), *ignore_case, prefix)
    }

    /// Whether it is for `internal` redirects only.
    pub(crate) fn is_internal(&self) -> bool {
        self.scope.level("internal") > 0
    }
}

/// A route of brisk.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) path: String,
    pub(crate) exact: bool,
    pub(crate) when: When,
    pub(crate) keys: Keys,
    pub(crate) comment: String,
}

impl Route {
    /// The route as a table.
    pub(crate) fn table(self) -> Table {
        let mut keys = Keys::of("path", toml::text(&self.path));
        if self.exact {
            keys.set("exact", "true");
        }
        if !self.when.is_empty() {
            keys.set("when", self.when.toml());
        }
        keys.0.extend(self.keys.0);
        Table { header: "[[host.route]]".to_owned(), keys, comment: self.comment }
    }
}

/// Removes routes that an earlier one of the same path with the same conditions precedes, which are an error in brisk.
pub(crate) fn without_repetitions(routes: &mut Vec<Route>) {
    let mut known = BTreeSet::new();
    routes.retain(|route| known.insert((route.path.clone(), route.exact, route.when.toml())));
}

/// A place for routes: the path in brisk, with the conditions that all of them have.
#[derive(Clone, Debug)]
pub(crate) struct At {
    pub(crate) path: String,
    pub(crate) exact: bool,
    pub(crate) when: When,
    pub(crate) values: Values,
}

/// Bounds of a translation, so that conditions and locations that lead to each other end.
#[derive(Debug, Default)]
pub(crate) struct Effort {
    depth: Cell<usize>,
    steps: Cell<usize>,
    comparisons: Cell<usize>,
}

impl Effort {
    // Each `if` doubles the flows of a location, and `try_files` and `error_page` can lead back to it.
    /// Steps for one `server` at most.
    const MOST: usize = 20_000;

    /// Steps inside each other at most.
    const DEEPEST: usize = 48;

    /// Comparisons of paths with expressions for one `server` at most.
    const COMPARISONS: usize = 5_000_000;

    /// Whether all steps, or all comparisons, are made.
    pub(crate) fn is_spent(&self) -> bool {
        self.steps.get() > Self::MOST || self.comparisons.get() > Self::COMPARISONS
    }

    /// Counts comparisons of paths with expressions.
    pub(crate) fn compare(&self, count: usize) {
        self.comparisons.set(self.comparisons.get().saturating_add(count));
    }

    /// Runs a step; none beyond the bounds.
    pub(crate) fn step<T>(&self, run: impl FnOnce() -> T) -> Option<T> {
        let depth = self.depth.get();
        self.steps.set(self.steps.get() + 1);
        // A refused step is counted too, so `is_spent` stays true for the rest of the server.
        if depth == Self::DEEPEST || self.is_spent() {
            return None;
        }
        self.depth.set(depth + 1);
        let result = run();
        self.depth.set(depth);
        Some(result)
    }
}

/// Facts about all locations of a server, each found once: a search for each location would take the square of their number.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Prefixes (`location /a/`), with the number of the last location that has each.
    pub(crate) prefixes: OnceCell<BTreeMap<String, usize>>,
    /// For each location, the prefixes whose requests come to its path, the longest first.
    pub(crate) guests: OnceCell<Vec<Vec<usize>>>,
    /// Bytes of the compiled expressions that are kept, at most.
    pub(crate) kept: Cell<usize>,
    /// Numbers of the expressions (`location ~`).
    pub(crate) expressions: OnceCell<Vec<usize>>,
    /// Whether a location leads to scripts (`fastcgi_pass`).
    pub(crate) has_scripts: OnceCell<bool>,
    /// Whether applications may name paths of `internal` locations with `X-Accel-Redirect`.
    pub(crate) has_targets: OnceCell<bool>,
    /// Front controllers of `try_files`, each with the location that has its path.
    pub(crate) fronts: OnceCell<Vec<(String, Option<usize>)>>,
    /// Locations that are pages of `error_page`.
    pub(crate) pages: OnceCell<BTreeSet<usize>>,
}

/// Directives of the `rewrite` module, which nginx executes in their order.
pub(crate) fn program(block: &[Directive]) -> Vec<&Directive> {
    let names = ["if", "rewrite", "return", "set", "break"];
    block.iter().filter(|directive| names.contains(&&*directive.name)).collect()
}

/// The `location` for paths that no location names.
pub(crate) fn everything<'a>(scope: &Scope<'a>) -> Location<'a> {
    let kind = Kind::Prefix { path: "/".to_owned(), stop: false };
    Location::new(kind, scope.child(&[]), None, None)
}

/// Whether an expression, or a path, is about parameters of segments, which brisk removes before it compares paths.
pub(crate) fn has_parameters(text: &str) -> bool {
    dialect::tokens(text).iter().any(|token| matches!(*token, ";" | "\\;"))
}

/// Kind and path of a `location`.
pub(crate) fn kind(directive: &Directive) -> Result<Kind, String> {
    let (modifier, text) = match directive.args.as_slice() {
        // nginx accepts a modifier without a space behind it. Longer modifiers are tried first.
        [one] => ["=", "^~", "~*", "~", "@"]
            .iter()
            .find_map(|modifier| Some((*modifier, one.strip_prefix(modifier)?)))
            .map_or(
                ("", one.as_str()),
                |(modifier, text)| if modifier == "@" { ("@", one.as_str()) } else { (modifier, text) },
            ),
        [modifier, text] => (modifier.as_str(), text.as_str()),
        _ => return Err("a location has one path".to_owned()),
    };
    match modifier {
        "@" => Ok(Kind::Named(text.to_owned())),
        _ if has_parameters(text) => {
            Err("the paths of brisk have no parameters of segments, such as ;x=1".to_owned())
        }
        "~" | "~*" => {
            let ignore_case = modifier == "~*";
            // Only for its error. `expression` translates the pattern again for the route.
            pattern::translate(text, ignore_case)?;
            Ok(Kind::Expression { pattern: text.to_owned(), ignore_case })
        }
        // Its beginnings are compared with the paths of other locations.
        _ if text.len() > LONGEST => Err(format!("the path has more than {LONGEST} bytes")),
        _ if text.contains(['?', '#', '"', '<', '>', '\\', '^', '`', '{', '|', '}']) => {
            Err("the path has characters that brisk finds encoded only".to_owned())
        }
        _ if !text.starts_with('/') => Err("the path does not begin with /".to_owned()),
        "=" => Ok(Kind::Exact(text.to_owned())),
        "^~" => Ok(Kind::Prefix { path: text.to_owned(), stop: true }),
        "" => Ok(Kind::Prefix { path: text.to_owned(), stop: false }),
        _ => Err(format!("{modifier} is no kind of location")),
    }
}
