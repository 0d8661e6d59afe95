//! Routes of a `frontend` for one host.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::directive::Directive;
use crate::haproxy::acl::Conditions;
use crate::haproxy::context::Context;
use crate::haproxy::flow::{Flow, Next, Phase, Route, fixed, shortened};
use crate::haproxy::formula::Formula;
use crate::haproxy::host_name::HostName;
use crate::haproxy::proxy::Proxy;
use crate::haproxy::respond;
use crate::haproxy::rule::{Action, Program, Rule};
use crate::haproxy::sample::Sample;
use crate::haproxy::template::Place;
use crate::toml::{self, Keys};

/// Hosts of one `frontend` at most.
const MOST_HOSTS: usize = 20_000;

/// The [`Program`] of a proxy with the [`Conditions`] that read it.
pub(crate) type Rules<'c, 'a> = Rc<(Conditions<'c, 'a>, Program<'a>)>;

/// A `frontend` with the rules of its backends, which `Front::backend` reads at the first use.
#[derive(Debug)]
pub(crate) struct Front<'c, 'a> {
    pub(crate) context: &'c Context<'a>,
    pub(crate) index: usize,
    pub(crate) proxy: &'c Proxy<'a>,
    pub(crate) rules: Rules<'c, 'a>,
    backends: RefCell<BTreeMap<usize, Rules<'c, 'a>>>,
}

impl<'c, 'a> Front<'c, 'a> {
    /// Reads the rules of the proxy at `index`.
    pub(crate) fn new(context: &'c Context<'a>, index: usize) -> Self {
        let proxy = &context.proxies.all[index];
        let conditions = Conditions::new(context, proxy, None);
        let program = Program::new(&conditions);
        Self { context, index, proxy, rules: Rc::new((conditions, program)), backends: RefCell::default() }
    }

    /// The rules of the `backend` at `index`; a `listen` is its own backend.
    pub(crate) fn backend(&self, index: usize) -> Rules<'c, 'a> {
        if index == self.index {
            return Rc::clone(&self.rules);
        }
        if let Some(rules) = self.backends.borrow().get(&index) {
            return Rc::clone(rules);
        }
        let conditions = Conditions::new(self.context, &self.context.proxies.all[index], Some(&self.rules.0));
        let program = Program::new(&conditions);
        let rules = Rc::new((conditions, program));
        self.backends.borrow_mut().insert(index, Rc::clone(&rules));
        rules
    }

    /// The backend of requests that no `use_backend` gives another one: `default_backend`, or the proxy itself if it is
    /// a `listen`. `Ok(None)` without both.
    pub(crate) fn default(&self) -> Result<Option<usize>, String> {
        let Some(line) = self.proxy.one("default_backend", "") else {
            return Ok(self.proxy.is_backend().then_some(self.index));
        };
        self.context.carried(line);
        let (index, _) = self
            .context
            .proxies
            .backend(line.arg(0))
            .ok_or_else(|| format!("there is no backend {}", line.arg(0)))?;
        Ok(Some(index))
    }

    /// Numbers of all backends that requests can reach by `default_backend` and `use_backend`.
    pub(crate) fn reachable(&self) -> Vec<usize> {
        let mut all: Vec<usize> = self.default().ok().flatten().into_iter().collect();
        for rule in self.rules.1.switching.iter() {
            let Action::Use(name) = &rule.action else { continue };
            all.extend(self.context.proxies.backend(name).map(|(index, _)| index));
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The hosts whose routes differ, as far as the tests name them, and `HostName::Other`. `None` if they are more than
    /// `MOST_HOSTS`, or if `Context::step` has no steps left.
    pub(crate) fn hosts(&self) -> Option<Vec<HostName>> {
        let mut all = BTreeSet::new();
        let mut gather = |program: &Program<'a>| {
            for rule in program.rules() {
                rule.formula.each(&mut |part| {
                    if let Formula::Host(names) = part
                        && all.len() <= MOST_HOSTS
                    {
                        names.gather(&mut all);
                    }
                });
            }
        };
        gather(&self.rules.1);
        for index in self.reachable() {
            // Many frontends may share many backends.
            if !self.context.step(20 * self.context.proxies.all[index].lines().count()) {
                return None;
            }
            gather(&self.backend(index).1);
        }
        all.insert(HostName::Other);
        (all.len() <= MOST_HOSTS).then(|| all.into_iter().collect())
    }
}

/// A [`Front`] at one host and its listeners; `secure` if these have TLS.
#[derive(Debug)]
pub(crate) struct Site<'s, 'c, 'a> {
    pub(crate) context: &'s Context<'a>,
    pub(crate) front: &'s Front<'c, 'a>,
    pub(crate) host: &'s HostName,
    pub(crate) secure: bool,
    pub(crate) ports: Vec<u16>,
}

impl<'c, 'a> Site<'_, 'c, 'a> {
    /// The routes, in the order in which brisk has to try them.
    pub(crate) fn routes(&mut self) -> Vec<Route> {
        let program = &self.front.rules.1;
        let mut segments = program.request.clone();
        segments.push(Rc::clone(&program.switching));
        let mut routes = Vec::new();
        self.run(Flow::new(segments), &mut routes);
        shortened(routes)
    }

    /// Continues after the last rule: with the backend of `Front::default`, or in `Phase::Backend` with its servers.
    pub(crate) fn chosen(&mut self, flow: &mut Flow<'a>, routes: &mut Vec<Route>) -> Next {
        if flow.phase == Phase::Backend {
            self.servers(flow, routes);
            return Next::End;
        }
        match self.front.default() {
            Ok(Some(index)) => self.enter(flow, index),
            // HAProxy responds with this status too if a request has no backend.
            Ok(None) => {
                let line = self.front.proxy.directive;
                let mut route = fixed(503, line, format!("{}: no backend", line.comment()));
                route.when = flow.when.clone();
                self.push(route, routes);
                Next::End
            }
            Err(reason) => {
                let line = self.front.proxy.one("default_backend", "").unwrap_or(self.front.proxy.directive);
                self.refuse(flow, line, &reason, routes);
                Next::End
            }
        }
    }

    /// Continues with the rules of the backend at `index`: its `request` and `response`, then the `response` of the frontend.
    pub(crate) fn enter(&mut self, flow: &mut Flow<'a>, index: usize) -> Next {
        let own = &self.front.rules.1;
        let mut segments = Vec::new();
        // The rules of a `listen` have already been run.
        if index != self.front.index {
            let rules = self.front.backend(index);
            segments.extend(rules.1.request.iter().cloned());
            segments.push(Rc::clone(&rules.1.response));
        }
        segments.push(Rc::clone(&own.response));
        flow.state.backend = Some(index);
        flow.enter(segments);
        Next::Entered
    }

    /// Whether the backend `name` is missing, refuses all requests, or restricts servers that other backends have too.
    pub(crate) fn backend_refuses(&self, name: &str) -> bool {
        let Some((index, backend)) = self.context.proxies.backend(name) else { return true };
        let rules = self.front.backend(index);
        let is_closed = |rule: &Rule<'a>| {
            rule.formula == Formula::True
                && matches!(&rule.action, Action::Respond(response) if response.is_refusal())
        };
        if !has_servers(backend) || rules.1.rules().any(is_closed) {
            return true;
        }
        if !rules.1.refuses() {
            return false;
        }
        let addresses =
            |proxy: &Proxy<'a>| proxy.all("server").map(|line| line.arg(1)).collect::<BTreeSet<_>>();
        let own = addresses(backend);
        let others = self.front.reachable().into_iter().filter(|other| *other != index);
        others.into_iter().any(|other| !addresses(&self.context.proxies.all[other]).is_disjoint(&own))
    }

    /// The route to the servers of the backend, with `upstream` and the keys of `State::forwarding`.
    fn servers(&mut self, flow: &Flow<'a>, routes: &mut Vec<Route>) {
        let Some(index) = flow.state.backend else { return };
        let backend = &self.context.proxies.all[index];
        self.context.carried(backend.directive);
        if backend.is_disabled() || !has_servers(backend) {
            return self.without_servers(flow, backend, routes);
        }
        if backend.is_tcp() {
            return self.refuse(flow, backend.directive, "the backend has the mode tcp", routes);
        }
        let name = match self.context.group(index, false, &self.ports) {
            Ok(name) => name,
            Err(reason) => return self.refuse(flow, backend.directive, &reason, routes),
        };
        let mut keys = Keys::of("upstream", toml::text(&name));
        self.restrictions(flow, &mut keys);
        let mut state = flow.state.clone();
        self.context.own_headers(self.front.proxy, backend, &mut state);
        state.forwarding(&mut keys);
        self.context.of_route(self.front.proxy, backend, &mut keys);
        let comment = backend.directive.comment();
        self.push(
            Route { when: flow.when.clone(), keys, comment, is_to_https: false, line: backend.directive.id },
            routes,
        );
    }

    /// HAProxy responds with 503 without servers, and some configurations form pages by `errorfile 503`: this becomes `respond`.
    fn without_servers(&mut self, flow: &Flow<'a>, backend: &Proxy<'a>, routes: &mut Vec<Route>) {
        let line = backend.one("errorfile", "503");
        let comment = backend.directive.comment();
        let response = line.and_then(|line| Some((line, respond::file(self.context, line.arg(1)).ok()?)));
        let mut keys = Keys::of("respond", "{ status = 503 }");
        if let Some((line, response)) = response {
            let rules = self.front.backend(flow.state.backend.unwrap_or(self.front.index));
            let resolve = |sample: Sample| rules.0.resolved(sample);
            match response.keys(&self.place(flow, &resolve)) {
                Ok(own) => {
                    keys = own;
                    self.context.carried(line);
                }
                Err(reason) => self.context.missing(line, reason, "write respond in the route"),
            }
        }
        self.restrictions(flow, &mut keys);
        self.push(
            Route { when: flow.when.clone(), keys, comment, is_to_https: false, line: backend.directive.id },
            routes,
        );
    }

    /// Adds the restrictions of the rules before, such as `basic_auth`.
    pub(crate) fn restrictions(&self, flow: &Flow<'a>, keys: &mut Keys) {
        flow.state.restrictions(&|need| self.context.users(need), keys);
    }

    /// The [`Place`] for variables in texts.
    pub(crate) fn place<'p>(
        &'p self,
        flow: &Flow<'a>,
        resolve: &'p dyn Fn(Sample) -> Result<Sample, String>,
    ) -> Place<'p> {
        let backend = flow.state.backend.map_or("", |index| self.context.proxies.all[index].name());
        Place { host: self.host, secure: self.secure, frontend: self.front.proxy.name(), backend, resolve }
    }

    /// The rules whose variables (`var(txn.a)`) a line can use: the ones of the chosen backend, or else of the frontend.
    pub(crate) fn rules_of(&self, flow: &Flow<'a>) -> Rules<'c, 'a> {
        self.front.backend(flow.state.backend.unwrap_or(self.front.index))
    }

    /// Notes that the `line` of a rule is not carried, for the `reason`.
    pub(crate) fn lost(&self, line: &Directive, reason: String) {
        self.context.missing(line, reason, "write the rule by hand in the route");
    }
}

fn has_servers(proxy: &Proxy<'_>) -> bool {
    proxy.lines().any(|line| matches!(&*line.name, "server" | "server-template" | "dispatch"))
}
