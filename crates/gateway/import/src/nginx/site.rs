//! Locations of a server, and the routes that keep nginx's order.

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::directive::Directive;
use crate::nginx::condition::{When, is_host_condition};
use crate::nginx::context::Context;
use crate::nginx::flow::Flow;
use crate::nginx::headers::Inherited;
use crate::nginx::listen::Server;
use crate::nginx::location::{At, Effort, Index, Kind, Location, Route, everything, kind, program};
use crate::nginx::pattern;
use crate::nginx::scheme::is_scheme_condition;
use crate::nginx::scope::Scope;
use crate::nginx::variables::Values;
use crate::report::Class;
use crate::toml::{self, Keys};

/// Bytes of compiled expressions that are kept for a server at most.
const KEPT: usize = 128 << 20;

/// A `server` of the input.
#[derive(Debug)]
pub(crate) struct Site<'c, 'a> {
    pub(crate) context: &'c Context<'a>,
    pub(crate) scope: Scope<'a>,
    pub(crate) locations: Vec<Location<'a>>,
    /// Rules that the host has for all routes.
    pub(crate) inherited: Inherited,
    /// Directives of the `rewrite` module in the `server`.
    pub(crate) program: Vec<&'a Directive>,
    /// Pages for errors that are responses of routes.
    pub(crate) pages: RefCell<Pages>,
    /// A file that switches the host to maintenance.
    pub(crate) maintenance: RefCell<Option<String>>,
    pub(crate) effort: Effort,
    pub(crate) index: Index,
}

/// Pages for errors that are responses of routes.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// Names of locations.
    pub(crate) named: Vec<String>,
    /// Paths.
    pub(crate) paths: Vec<String>,
    /// Routes for pages without a location.
    pub(crate) routes: Vec<Route>,
}

impl<'c, 'a> Site<'c, 'a> {
    /// Gathers the locations of a `server`.
    pub(crate) fn new(context: &'c Context<'a>, server: &Server<'a>) -> Self {
        let scope = context.http.child(server.directive.inner());
        let mut steps = program(server.directive.inner());
        for step in steps.iter().filter(|step| is_scheme_condition(server, step)) {
            context
                .note_whole(step, &Class::Difference("brisk redirects plain HTTP to HTTPS (308)".to_owned()));
        }
        steps.retain(|step| !is_scheme_condition(server, step) && !is_host_condition(step));
        let is_whole = steps.iter().any(|step| step.name == "return");
        let inherited = Inherited::default();
        let mut site = Self {
            context,
            program: steps,
            scope: scope.clone(),
            locations: Vec::new(),
            inherited,
            pages: RefCell::default(),
            maintenance: RefCell::default(),
            effort: Effort::default(),
            index: Index::default(),
        };
        if is_whole {
            let unreached = Class::NotNeeded("the server responds before it looks for a location".to_owned());
            let locations = server.directive.inner().iter().filter(|line| line.name == "location");
            locations.for_each(|location| context.note_whole(location, &unreached));
        } else {
            site.gather(&scope, None);
            site.close_unreached();
        }
        let is_root =
            |location: &Location<'_>| matches!(&location.kind, Kind::Prefix { path, .. } if path == "/");
        if !site.locations.iter().any(is_root) {
            let everything = everything(&scope);
            site.add(everything);
        }
        site
    }

    /// Takes a location. Before the first use of the [`Index`].
    pub(crate) fn add(&mut self, location: Location<'a>) {
        let number = self.locations.len();
        self.locations.push(Location { number, ..location });
    }

    /// A route at `/` that refuses all requests.
    pub(crate) fn refused(&self) -> Route {
        let at = At { path: "/".to_owned(), exact: false, when: When::default(), values: Values::default() };
        Self::refusal(&everything(&self.scope), &at, When::default())
    }

    /// The routes for all paths, by the directives of `step`.
    pub(crate) fn run_whole(&self, step: &'a Directive, routes: &mut Vec<Route>) {
        let location = everything(&self.scope);
        let at = At { path: "/".to_owned(), exact: false, when: When::default(), values: Values::default() };
        self.run(Flow::new(&location, &at).inside(step), &program(step.inner()), routes);
    }

    fn gather(&mut self, scope: &Scope<'a>, parent: Option<usize>) {
        for directive in scope.own().iter().filter(|directive| directive.name == "location") {
            self.context.carried(directive);
            match kind(directive) {
                Ok(kind) => {
                    let inner = scope.location(directive.inner());
                    self.add(Location::new(kind, inner.clone(), Some(directive), parent));
                    self.gather(&inner, Some(self.locations.len() - 1));
                }
                Err(reason) => {
                    self.context.missing(
                        directive,
                        reason,
                        "its requests reach the next location: write a route with another expression first",
                    );
                    self.closed(directive, parent);
                }
            }
        }
    }

    /// Takes the paths of nested locations whose outer location nginx does not choose: one beside it has a longer path.
    fn close_unreached(&mut self) {
        fn path_of<'p>(location: &'p Location<'_>) -> Option<&'p str> {
            match &location.kind {
                Kind::Prefix { path, .. } | Kind::Exact(path) => Some(path.as_str()),
                _ => None,
            }
        }
        let mut beside: BTreeSet<(Option<usize>, &str)> = BTreeSet::new();
        for location in &self.locations {
            if let Kind::Prefix { path, .. } = &location.kind {
                beside.insert((location.parent, path.as_str()));
            }
        }
        let is_unreached = |location: &&Location<'a>| {
            let Some(path) = path_of(location).filter(|_| location.parent.is_some()) else { return false };
            let mut outer = location.parent;
            while let Some(own) = outer.map(|around| &self.locations[around]) {
                let shortest = path_of(own).map_or(usize::MAX, |shorter| shorter.len().saturating_add(1));
                let mut starts = (shortest..=path.len()).filter_map(|end| path.get(..end));
                if starts.any(|start| beside.contains(&(own.parent, start))) {
                    return true;
                }
                outer = own.parent;
            }
            false
        };
        let unreached: Vec<_> =
            self.locations.iter().filter(is_unreached).map(|location| location.number).collect();
        for index in unreached {
            let location = &mut self.locations[index];
            // No directive names this location.
            location.kind = Kind::Named(String::new());
            if let Some(directive) = location.directive {
                let reason = "another location has a longer path, so nginx never looks into the outer one";
                self.context.note_whole(directive, &Class::NotNeeded(reason.to_owned()));
                self.context.different(directive, reason);
            }
        }
    }

    /// The routes of the server, in the order in which brisk has to try those of one path.
    pub(crate) fn routes(&self) -> Vec<Route> {
        let mut routes = Vec::new();
        for location in &self.locations {
            match &location.kind {
                Kind::Exact(path) => {
                    let at = At {
                        path: path.clone(),
                        exact: true,
                        when: When::default(),
                        values: Values::default(),
                    };
                    self.location(location, &at, &mut routes);
                }
                Kind::Prefix { path, stop } => self.prefix(location, path, *stop, &mut routes),
                Kind::Expression { .. } | Kind::Named(_) => {}
            }
        }
        self.final_slashes(&mut routes);
        routes
    }

    /// The routes of a prefix: those of expressions, those of longer prefixes that are no path of brisk, and its own.
    fn prefix(&self, location: &Location<'a>, path: &str, stop: bool, routes: &mut Vec<Route>) {
        if self.base(location).is_some() {
            return;
        }
        self.parts(location, true, routes);
        let mut has_scripts = self.has_scripts();
        for other in self.expressions() {
            let Kind::Expression { pattern, ignore_case } = &other.kind else { continue };
            if self.effort.is_spent() {
                return self.spent(location, path, routes);
            }
            self.effort.compare(1);
            // With `^~`, only expressions inside of the location are tried.
            let is_tried = self.is_tried(location, other) && (!stop || other.parent == Some(location.number));
            if is_tried && other.can_match(path) {
                self.expression(other, pattern, *ignore_case, path, routes);
                has_scripts = has_scripts && !self.matches(other, &format!("{path}/x.php"));
            }
        }
        self.parts(location, false, routes);
        if !path.ends_with('/')
            && self.neighbour(location).is_none()
            && let Some(directive) = location.directive
        {
            let detail = format!(
                "{path} and the paths below it: brisk compares whole segments, nginx also finds {path}x"
            );
            self.context.different(directive, detail);
        }
        let at = At { path: path.to_owned(), exact: false, when: When::default(), values: Values::default() };
        let start = routes.len();
        self.location(location, &at, routes);
        Self::without_sources(location, start, has_scripts, routes);
    }

    /// The route of a prefix, if the [`Effort`] for the server is spent.
    fn spent(&self, location: &Location<'a>, path: &str, routes: &mut Vec<Route>) {
        if let Some(directive) = location.directive {
            let action = "write the routes by hand; until then the route refuses requests";
            self.context.missing(directive, "the server has too many expressions and conditions", action);
        }
        let at = At { path: path.to_owned(), exact: false, when: When::default(), values: Values::default() };
        routes.push(Self::refusal(location, &at, When::default()));
    }

    /// The locations with an expression.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Location<'a>> {
        let numbers = self.index.expressions.get_or_init(|| {
            let is_one = |location: &&Location<'_>| matches!(location.kind, Kind::Expression { .. });
            self.locations.iter().filter(is_one).map(|location| location.number).collect()
        });
        numbers.iter().map(|number| &self.locations[*number])
    }

    /// Whether nginx tries an expression for a path of this location: expressions at the same level or above.
    pub(crate) fn is_tried(&self, location: &Location<'a>, expression: &Location<'a>) -> bool {
        // The location for paths without one, which a server has not taken, is at no level.
        let mut level = Some(location.number).filter(|number| *number < self.locations.len());
        loop {
            if expression.parent == level {
                return true;
            }
            match level {
                Some(inner) => level = self.locations[inner].parent,
                None => return false,
            }
        }
    }

    fn expression(
        &self,
        location: &Location<'a>,
        pattern: &str,
        ignore_case: bool,
        path: &str,
        routes: &mut Vec<Route>,
    ) {
        let Ok(translated) = pattern::translate(pattern, ignore_case) else { return };
        let values = Values::default().with_groups(&translated);
        let when = When::plain("path_regex", toml::raw(&translated));
        self.location(location, &At { path: path.to_owned(), exact: false, when, values }, routes);
    }

    /// The routes of one location at one place.
    pub(crate) fn location(&self, location: &Location<'a>, at: &At, routes: &mut Vec<Route>) {
        if location.refused {
            return routes.push(Self::refusal(location, at, at.when.clone()));
        }
        let is_internal = location.is_internal();
        if is_internal && !self.is_target(location) && !self.is_page(location) {
            let mut keys = Keys::default();
            keys.set("respond", "{ status = 404 }");
            return routes.push(Self::route(location, at, at.when.clone(), keys));
        }
        let mut steps = self.program.clone();
        if location.directive.is_some() {
            steps.extend(program(location.scope.own()));
        }
        let start = routes.len();
        match self.except(location) {
            Some(except) => self.excepted(location, at, except, &steps, routes),
            None => self.run(Flow::new(location, at), &steps, routes),
        }
        for route in routes[start..].iter_mut().filter(|_| is_internal) {
            if route.keys.get("fallback").is_some_and(|fallback| fallback.starts_with('{')) {
                let action = "write two routes with internal = true";
                if let Some(directive) = location.directive {
                    self.context.missing(directive, "an internal route has files or a server", action);
                }
                *route = Self::refusal(location, at, route.when.clone());
            }
            route.keys.set("internal", "true");
        }
    }

    /// Whether applications name paths of an `internal` location: one with files or a server, and no other directive leads there.
    fn is_target(&self, location: &Location<'a>) -> bool {
        let Kind::Prefix { path, .. } = &location.kind else { return false };
        let sources = ["root", "alias", "proxy_pass"];
        let has_source = || location.scope.own().iter().any(|line| sources.contains(&&*line.name));
        location.is_internal() && has_source() && !leads(self.scope.own(), path)
    }

    /// Whether applications may name paths of `internal` locations.
    pub(crate) fn has_targets(&self, scope: &Scope<'a>) -> bool {
        let ignored = scope.one("proxy_ignore_headers");
        let has_targets = || self.locations.iter().any(|location| self.is_target(location));
        !ignored.is_some_and(|ignored| {
            ignored.args.iter().any(|name| name.eq_ignore_ascii_case("x-accel-redirect"))
        }) && *self.index.has_targets.get_or_init(has_targets)
    }

    /// A route of a location.
    pub(crate) fn route(location: &Location<'a>, at: &At, when: When, keys: Keys) -> Route {
        let comment =
            location.directive.map_or_else(|| "paths without a location".to_owned(), Directive::comment);
        Route { path: at.path.clone(), exact: at.exact, when, keys, comment }
    }

    /// The location for a path as nginx finds it, except for paths of clients that only an expression matches.
    pub(crate) fn find(&self, path: &str) -> Option<&Location<'a>> {
        let is_exact = |location: &&Location<'_>| matches!(&location.kind, Kind::Exact(own) if own == path);
        if let Some(exact) = self.locations.iter().find(is_exact) {
            return Some(exact);
        }
        let prefix = |location: &&Location<'a>| match &location.kind {
            Kind::Prefix { path: own, stop } if path.starts_with(own.as_str()) => Some((own.len(), *stop)),
            _ => None,
        };
        let longest = self
            .locations
            .iter()
            .filter(|location| prefix(location).is_some())
            .max_by_key(|location| prefix(location));
        if longest.is_some_and(|location| prefix(&location).is_some_and(|(_, stop)| stop)) {
            return longest;
        }
        self.expressions().find(|location| self.matches(location, path)).or(longest)
    }

    /// Whether a location has an expression that matches the path.
    pub(crate) fn matches(&self, location: &Location<'a>, path: &str) -> bool {
        let Kind::Expression { pattern, ignore_case } = &location.kind else { return false };
        self.effort.compare(1);
        if let Some(compiled) = location.matcher.get() {
            return compiled.is_match(path.as_bytes());
        }
        // Compiling an expression takes as long as thousands of comparisons.
        self.effort.compare(1000);
        let Some((compiled, size)) = pattern::sized(pattern, *ignore_case) else { return false };
        let is_match = compiled.is_match(path.as_bytes());
        let kept = self.index.kept.get() + size;
        if kept <= KEPT && location.matcher.set(compiled).is_ok() {
            self.index.kept.set(kept);
        }
        is_match
    }

    /// The location with a name such as `@app`.
    pub(crate) fn named(&self, name: &str) -> Option<&Location<'a>> {
        self.locations.iter().find(|location| matches!(&location.kind, Kind::Named(own) if own == name))
    }
}

/// Whether a directive other than a header of applications leads to the path.
fn leads(block: &[Directive], path: &str) -> bool {
    let names = ["auth_request", "mirror", "error_page", "try_files", "index", "rewrite"];
    block.iter().any(|line| {
        let is_target = |arg: &String| arg.starts_with(path) && arg.starts_with('/');
        (names.contains(&&*line.name) && line.args.iter().any(is_target)) || leads(line.inner(), path)
    })
}
