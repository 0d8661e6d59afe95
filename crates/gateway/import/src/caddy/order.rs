//! The order in which Caddy executes directives: that of their names, and for one name the more specific path first.

use crate::caddy::grammar::GLOBAL;
use crate::caddy::path::Shape;
use crate::caddy::step::Step;
use crate::directive::Directive;

/// Names of directives in their order: `redir` precedes `respond`.
#[derive(Clone, Debug)]
pub(crate) struct Order(Vec<String>);

const USUAL: [&str; 41] = [
    "tracing",
    "map",
    "vars",
    "fs",
    "root",
    "log_append",
    "skip_log",
    "log_skip",
    "log_name",
    "log_level",
    "header",
    "copy_response_headers",
    "request_body",
    "timeouts",
    "redir",
    "method",
    "rewrite",
    "uri",
    "try_files",
    "basicauth",
    "basic_auth",
    "forward_auth",
    "request_header",
    "encode",
    "push",
    "intercept",
    "templates",
    "invoke",
    "handle",
    "handle_path",
    "route",
    "abort",
    "error",
    "copy_response",
    "respond",
    "metrics",
    "reverse_proxy",
    "php_fastcgi",
    "php_server",
    "file_server",
    "acme_server",
];

impl Default for Order {
    fn default() -> Self {
        Self(USUAL.map(str::to_owned).to_vec())
    }
}

impl Order {
    /// The order with the changes of `order` in the global options: `order a before b`, `after b`, `first` or `last`.
    pub(crate) fn of(all: &[Directive]) -> Self {
        let mut order = Self::default();
        let options = all.iter().filter(|block| block.name == GLOBAL).flat_map(Directive::inner);
        for line in options.filter(|line| line.name == "order").take(100) {
            order.change(line);
        }
        order
    }

    fn change(&mut self, line: &Directive) {
        let [name, position, other @ ..] = line.args.as_slice() else { return };
        let rest: Vec<_> = self.0.iter().filter(|own| own != &name).cloned().collect();
        let of_other = other.first().and_then(|other| rest.iter().position(|own| own == other));
        let at = match (position.as_str(), of_other) {
            ("first", _) => 0,
            ("last", _) => rest.len(),
            ("before", Some(at)) => at,
            ("after", Some(at)) => at + 1,
            _ => return,
        };
        self.0 = rest;
        self.0.insert(at, name.clone());
    }

    /// The position of a directive. An unknown one has that of `request_header`, which precedes those that respond.
    fn position(&self, name: &str) -> usize {
        let at = |name: &str| self.0.iter().position(|own| own == name);
        // Caddy sorts both as one directive, because they exclude each other.
        let name = if name == "handle_path" { "handle" } else { name };
        at(name).or_else(|| at("request_header")).unwrap_or(0)
    }

    /// Sorts steps. The comparison of paths is no order in the mathematical sense, so that the way of sorting matters: like the library
    /// of Go, this one sorts blocks of 20 and joins them.
    pub(crate) fn sort<'a>(&self, steps: Vec<Step<'a>>) -> Vec<Step<'a>> {
        let mut keyed: Vec<Keyed<'a>> = steps.into_iter().map(|step| self.keyed(step)).collect();
        for block in keyed.chunks_mut(20) {
            for end in 1..block.len() {
                let mut at = end;
                while at > 0 && block[at].is_before(&block[at - 1]) {
                    block.swap(at, at - 1);
                    at -= 1;
                }
            }
        }
        let mut size = 20;
        while size < keyed.len() {
            keyed = merged(keyed, size);
            size *= 2;
        }
        keyed.into_iter().map(|keyed| keyed.step).collect()
    }

    fn keyed<'a>(&self, step: Step<'a>) -> Keyed<'a> {
        let path = step.formula.single_path().map(|shape| match shape {
            Shape::Every => (String::new(), 1),
            Shape::Exact(path) => (path.clone(), 0),
            Shape::Prefix(path) => (path.clone(), 1),
            Shape::Suffix(path) | Shape::Expression(path) => (format!("*{path}"), 0),
        });
        Keyed { position: self.position(&step.directive.name), has_matcher: step.has_matcher, path, step }
    }
}

/// A [`Step`] with the facts by which [`Order`] sorts it.
struct Keyed<'a> {
    position: usize,
    has_matcher: bool,
    /// The only path, without a `*` at its end, and the length of that: `/a/*` has `/a/` and 1.
    path: Option<(String, usize)>,
    step: Step<'a>,
}

impl Keyed<'_> {
    fn is_before(&self, other: &Self) -> bool {
        if self.position != other.position {
            return self.position < other.position;
        }
        let is_reversed = matches!(&*self.step.directive.name, "vars" | "log_level");
        let (one, two) = if is_reversed { (other, self) } else { (self, other) };
        match (&one.path, &two.path) {
            (Some((first, star)), Some((second, other))) if first == second => star < other,
            (Some((first, _)), Some((second, _))) if first.len() == second.len() => first < second,
            (Some((first, _)), Some((second, _))) => first.len() > second.len(),
            _ => one.has_matcher && !two.has_matcher,
        }
    }
}

/// Joins neighbouring sorted runs of `size` to runs of twice the length.
fn merged(all: Vec<Keyed<'_>>, size: usize) -> Vec<Keyed<'_>> {
    let mut result = Vec::with_capacity(all.len());
    let mut rest = all.into_iter();
    loop {
        let first: Vec<_> = rest.by_ref().take(size).collect();
        let second: Vec<_> = rest.by_ref().take(size).collect();
        if first.is_empty() {
            return result;
        }
        let (mut first, mut second) = (first.into_iter().peekable(), second.into_iter().peekable());
        loop {
            let takes_second = match (first.peek(), second.peek()) {
                (Some(one), Some(two)) => two.is_before(one),
                (None, Some(_)) => true,
                (Some(_), None) => false,
                (None, None) => break,
            };
            result.extend(if takes_second { second.next() } else { first.next() });
        }
    }
}
