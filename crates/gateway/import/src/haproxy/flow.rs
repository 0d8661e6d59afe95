//! The way of requests through the rules of a `frontend` and its backends, as a list of `Route`s of which the first one that fits
//! decides.
//!
//! Each `Test` of a `Rule` divides the requests: the ones that meet it have routes before the routes of the others. So the list
//! keeps the order of rules without negations, which conditions of brisk do not have.
//!
//! `http-request deny if { path_beg /a }` before `default_backend app` is a route with `when` and `respond`, and then one
//! without `when`.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use crate::directive::Directive;
use crate::haproxy::formula::{Facts, Formula, Kind, Known};
use crate::haproxy::rule::{Action, Of, Rule, Segment};
use crate::haproxy::site::Site;
use crate::haproxy::state::{Headers, State};
use crate::haproxy::when::{Test, When};
use crate::table::Table;
use crate::toml::{self, Keys};

/// Tests inside of each other at most: the bound of `Flow::depth`.
const DEEPEST: usize = 40;

/// A `[[host.route]]` of brisk. All have the path `/`, so that their order decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) when: When,
    pub(crate) keys: Keys,
    pub(crate) comment: String,
    /// Whether it redirects to HTTPS with the same host and path.
    pub(crate) is_to_https: bool,
    /// `Directive::id` of the line of its response.
    pub(crate) line: usize,
}

impl Route {
    /// The route as a table `[[host.route]]`, with `when` unless it is for all requests.
    pub(crate) fn table(&self) -> Table {
        let mut keys = Keys::of("path", "\"/\"");
        if !self.when.is_empty() {
            keys.set("when", self.when.toml());
        }
        keys.0.extend(self.keys.0.clone());
        Table { header: "[[host.route]]".to_owned(), keys, comment: self.comment.clone() }
    }
}

/// Requests at a place of the rules: the ones that meet `when`, at a rule of `segments`.
#[derive(Clone, Debug)]
pub(crate) struct Flow<'a> {
    pub(crate) segments: Rc<Vec<Segment<'a>>>,
    segment: usize,
    rule: usize,
    pub(crate) when: When,
    known: Known,
    pub(crate) state: State,
    pub(crate) phase: Phase,
    depth: usize,
}

/// The proxy whose rules apply: the `frontend`, or the `backend` that it has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Frontend,
    Backend,
}

/// Continuation after a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Rule,
    /// The next kind of rules, as after `Action::Allow`.
    Segment,
    /// Rules of the `backend` that was chosen.
    Entered,
    /// The requests have their response.
    End,
}

impl<'a> Flow<'a> {
    /// All requests before the first rule of `segments`.
    pub(crate) fn new(segments: Vec<Segment<'a>>) -> Self {
        Self {
            segments: Rc::new(segments),
            segment: 0,
            rule: 0,
            when: When::default(),
            known: Known::default(),
            state: State::default(),
            phase: Phase::Frontend,
            depth: 0,
        }
    }

    /// Continues with the rules of a `backend`.
    pub(crate) fn enter(&mut self, segments: Vec<Segment<'a>>) {
        (self.segments, self.segment, self.rule) = (Rc::new(segments), 0, 0);
        self.phase = Phase::Backend;
    }
}

impl<'a> Site<'_, '_, 'a> {
    /// Adds the routes of the requests in `flow` to `routes`.
    pub(crate) fn run(&mut self, mut flow: Flow<'a>, routes: &mut Vec<Route>) {
        loop {
            let Some(segment) = flow.segments.get(flow.segment).cloned() else {
                match self.chosen(&mut flow, routes) {
                    Next::End => return,
                    _ => continue,
                }
            };
            let Some(rule) = segment.get(flow.rule) else {
                (flow.segment, flow.rule) = (flow.segment + 1, 0);
                continue;
            };
            if !self.context.step(rule.formula.size() * (1 + flow.known.size())) || routes.len() > 5000 {
                return self.refuse(
                    &flow,
                    rule.line,
                    "the rules are too many: divide the configuration",
                    routes,
                );
            }
            let facts = Facts {
                host: self.host,
                secure: self.secure,
                ports: &self.ports,
                known: &flow.known,
                is_moved: !flow.state.path.is_empty(),
                changed: &flow.state.changed,
            };
            let formula = rule.formula.at(&facts);
            let next = match formula.first() {
                Some(tests) => {
                    self.divide(&mut flow, tests, routes);
                    continue;
                }
                None if formula == Formula::False => Next::Rule,
                None if formula == Formula::True => self.apply(&mut flow, rule, routes),
                None => self.apply_partly(&mut flow, rule, &formula, routes),
            };
            match next {
                Next::End => return,
                Next::Entered => {}
                Next::Rule => flow.rule += 1,
                Next::Segment => (flow.segment, flow.rule) = (flow.segment + 1, 0),
            }
        }
    }

    /// Gives the requests that pass all `tests` their routes; `flow` continues with the others.
    fn divide(&mut self, flow: &mut Flow<'a>, mut tests: Vec<Arc<Test>>, routes: &mut Vec<Route>) {
        // The copy of the state takes time.
        self.context.step((flow.state.size() + flow.when.size()) / 16 + flow.known.size());
        let join = |tests: &[Arc<Test>]| {
            let start = Ok(Some(flow.when.clone()));
            tests.iter().fold(start, |when, test| when?.map_or(Ok(None), |when| when.and(test)))
        };
        let mut joined = if flow.depth == DEEPEST { Err(()) } else { join(&tests) };
        // Several tests may have no common condition where the first one alone has one.
        if joined.is_err() && tests.len() > 1 {
            tests.truncate(1);
            joined = if flow.depth == DEEPEST { Err(()) } else { join(&tests) };
        }
        match joined {
            Ok(Some(when)) => {
                let known = flow.known.with(&tests);
                self.run(Flow { when, known, depth: flow.depth + 1, ..flow.clone() }, routes);
                flow.known.exclude(tests);
            }
            Ok(None) => flow.known.exclude(tests),
            Err(()) => tests.into_iter().for_each(|test| flow.known.lose(test)),
        }
    }

    /// The effect of a rule whose `formula` brisk can express in part only; the `Kind` of its obstacle decides.
    fn apply_partly(
        &mut self,
        flow: &mut Flow<'a>,
        rule: &Rule<'a>,
        formula: &Formula,
        routes: &mut Vec<Route>,
    ) -> Next {
        let (kind, reason) = formula.obstacle();
        if self.require(flow, rule, formula) {
            return Next::Rule;
        }
        let refusing = match &rule.action {
            Action::Respond(response) => response.is_refusal(),
            Action::Use(name) => self.backend_refuses(name),
            Action::Unknown(_) | Action::Users(_) => true,
            _ => false,
        };
        if self.skipped(flow, rule, &reason) {
            return Next::Rule;
        }
        match &rule.action {
            _ if kind <= Kind::State && refusing => {
                self.context.missing(rule.line, reason, "write a limit or a route for these requests");
                // Without servers, brisk responds with an error itself.
                if kind != Kind::Load || !matches!(rule.action, Action::Use(_)) {
                    self.context.open(rule.line);
                }
                Next::Rule
            }
            _ if kind == Kind::Label && !refusing => {
                self.context.different(rule.line, reason);
                Next::Rule
            }
            _ if kind != Kind::Request && !refusing => {
                self.context.missing(
                    rule.line,
                    reason,
                    "list the names in a test, or write the route by hand",
                );
                Next::Rule
            }
            _ => {
                self.refuse(flow, rule.line, &reason, routes);
                Next::End
            }
        }
    }

    /// Leaves out a rule without which no more is allowed: `Action::Allow`, `Action::Silent`, and rules for headers.
    fn skipped(&self, flow: &mut Flow<'a>, rule: &Rule<'a>, reason: &str) -> bool {
        let headers = "write request_headers or response_headers in a route with `when`";
        rule.action.note_change(&mut flow.state.changed);
        match &rule.action {
            Action::Allow | Action::Silent => {
                self.context.missing(rule.line, reason, "write the exception as a route by hand");
                true
            }
            Action::Set(of, name, _) | Action::Remove(of, name) | Action::Replace(of, name, _, _) => {
                self.context.missing(rule.line, reason, headers);
                // Neither the value of the client nor that of the rule must reach the server.
                if *of == Of::Request && !Headers::is_framing(name) {
                    flow.state.request.remove(name);
                }
                true
            }
            Action::Add(..) => {
                self.context.missing(rule.line, reason, headers);
                true
            }
            _ => false,
        }
    }

    /// A route that refuses requests whose response is not known: `respond = { status = 501 }`.
    pub(crate) fn refuse(
        &mut self,
        flow: &Flow<'a>,
        line: &Directive,
        reason: &str,
        routes: &mut Vec<Route>,
    ) {
        self.context.missing(line, reason, "write the route by hand; until then it refuses requests");
        let keys = Keys::of("respond", "{ status = 501 }");
        let comment = format!("NOT CARRIED: {}", line.comment());
        self.push(
            Route { when: flow.when.clone(), keys, comment, is_to_https: false, line: line.id },
            routes,
        );
    }

    /// Adds a route; beyond the bound for all routes, one that refuses its requests.
    pub(crate) fn push(&self, mut route: Route, routes: &mut Vec<Route>) {
        let size = |route: &Route| {
            let keys = route.keys.0.iter().map(|(key, value)| key.len() + value.len());
            route.comment.len() + route.when.size() + keys.sum::<usize>()
        };
        if !self.context.room(size(&route)) {
            route.keys = Keys::of("respond", "{ status = 501 }");
            "NOT CARRIED: the routes are too many".clone_into(&mut route.comment);
        }
        routes.push(route);
    }
}

/// Number of routes up to which each is compared with all before it.
const COMPARED: usize = 400;

/// Removes routes that no request reaches, or whose requests the next route treats equally, with the same `keys`.
pub(crate) fn shortened(routes: Vec<Route>) -> Vec<Route> {
    let mut seen = BTreeSet::new();
    let mut reached: Vec<Route> = Vec::new();
    for route in routes {
        // The time for all pairs of routes would grow with the square of their number.
        let compared = &reached[..reached.len().min(COMPARED)];
        if seen.insert(route.when.toml()) && !compared.iter().any(|before| before.when.includes(&route.when))
        {
            // A route without conditions takes all requests: the rest is not reached.
            let is_last = route.when.is_empty();
            reached.push(route);
            if is_last {
                break;
            }
        }
    }
    let mut kept: Vec<Route> = Vec::new();
    for route in reached.into_iter().rev() {
        let is_equal = |next: &Route| next.keys == route.keys && next.when.includes(&route.when);
        if !kept.last().is_some_and(is_equal) {
            kept.push(route);
        }
    }
    kept.reverse();
    kept
}

/// A route for all requests with a fixed `status`: `respond = { status = 404 }`.
pub(crate) fn fixed(status: u16, line: &Directive, comment: String) -> Route {
    let keys = Keys::of(
        "respond",
        format!("{{ status = {} }}", toml::number(&status.to_string()).unwrap_or_default()),
    );
    Route { when: When::default(), keys, comment, is_to_https: false, line: line.id }
}
