//! Rules of proxies in the order in which HAProxy runs them: `tcp-request`, `http-request`, `redirect`, `use_backend`,
//! `http-response`.

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::directive::Directive;
use crate::haproxy::acl::Conditions;
use crate::haproxy::formula::Formula;
use crate::haproxy::path_test::{Match, Pattern};
use crate::haproxy::redirect::{self, Redirect};
use crate::haproxy::respond::{self, Response};
use crate::haproxy::sample::Sample;
use crate::haproxy::template;
use crate::haproxy::when::Test;

/// Direction of a message: `http-request` or `http-response`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Request,
    Response,
}

/// Effect of a rule.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// A refusal (`deny`), or another fixed response (`return`).
    Respond(Response),
    Redirect(Redirect),
    /// The end of this kind of rules: `allow`, or `accept` of `tcp-request`.
    Allow,
    /// `auth`: users with passwords; the `realm`.
    Users(Option<String>),
    /// `set-header`: name and log format.
    Set(Of, String, String),
    /// `add-header`: name and log format.
    Add(Of, String, String),
    /// `del-header`.
    Remove(Of, String),
    /// `replace-header`: the value of a header, if it matches an expression.
    Replace(Of, String, String, String),
    /// `set-path`: a new path by the log format.
    Path(template::Path),
    /// `replace-path`: the path by an expression and a text with its groups.
    ReplacePath(String, String),
    /// `use_backend`: the name of the backend.
    Use(String),
    /// `set-log-level silent`: no line in the access log.
    Silent,
    /// The request or its response would be another one, without a counterpart.
    Unknown(String),
}

impl Action {
    /// Notes the name of the header of the request that the action changes.
    pub(crate) fn note_change(&self, changed: &mut BTreeSet<String>) {
        if let Self::Set(Of::Request, name, _)
        | Self::Add(Of::Request, name, _)
        | Self::Remove(Of::Request, name)
        | Self::Replace(Of::Request, name, ..) = self
        {
            changed.insert(name.to_ascii_lowercase());
        }
    }
}

/// A rule with its condition.
#[derive(Debug)]
pub(crate) struct Rule<'a> {
    pub(crate) line: &'a Directive,
    pub(crate) formula: Formula,
    pub(crate) action: Action,
}

/// Rules of one kind.
pub(crate) type Segment<'a> = Rc<Vec<Rule<'a>>>;

/// The rules of a proxy, as a [`Segment`] for each kind.
#[derive(Clone, Debug)]
pub(crate) struct Program<'a> {
    /// Rules for requests, in the order of their kinds.
    pub(crate) request: Vec<Segment<'a>>,
    /// The choice of a backend: `use_backend`.
    pub(crate) switching: Segment<'a>,
    /// `http-response` and `http-after-response`.
    pub(crate) response: Segment<'a>,
}

impl<'a> Program<'a> {
    /// Reads the rules of a proxy and notes the class of their lines.
    pub(crate) fn new(conditions: &Conditions<'_, 'a>) -> Self {
        let segment = |read: &dyn Fn(&'a Directive) -> Option<Rule<'a>>| -> Segment<'a> {
            Rc::new(conditions.proxy.lines().filter_map(read).collect())
        };
        let of = |name: &'static str, kind: &'static [&'static str]| {
            move |line: &'a Directive| {
                (line.name == name && kind.contains(&line.arg(0)))
                    .then(|| conditions.tcp_rule(line))
                    .flatten()
            }
        };
        let http = |line: &'a Directive| match line.name.as_str() {
            "http-request" => conditions.http_rule(line, Of::Request),
            "reqadd" | "reqdel" | "reqrep" | "reqirep" | "reqidel" | "reqdeny" | "reqideny" | "reqtarpit"
            | "reqitarpit" | "reqallow" | "reqpass" | "block" => conditions.old_rule(line),
            _ => None,
        };
        let monitor = |line: &'a Directive| (line.name == "monitor-uri").then(|| conditions.monitor(line));
        Self {
            request: vec![
                segment(&monitor),
                segment(&of("tcp-request", &["connection"])),
                segment(&of("tcp-request", &["session"])),
                segment(&of("tcp-request", &["content"])),
                segment(&http),
                segment(&|line| (line.name == "redirect").then(|| conditions.redirect_rule(line, 0))),
            ],
            switching: Rc::new(
                conditions.proxy.all("use_backend").flat_map(|line| conditions.use_rules(line)).collect(),
            ),
            response: segment(&|line| {
                let is_own = matches!(&*line.name, "http-response" | "http-after-response");
                is_own.then(|| conditions.http_rule(line, Of::Response)).flatten()
            }),
        }
    }

    /// All rules.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &Rule<'a>> {
        let switching = self.switching.iter().chain(self.response.iter());
        self.request.iter().flat_map(|segment| segment.iter()).chain(switching)
    }

    /// Whether some requests are refused, or need users.
    pub(crate) fn refuses(&self) -> bool {
        self.rules().any(|rule| match &rule.action {
            Action::Respond(response) => response.is_refusal(),
            Action::Users(_) | Action::Unknown(_) => true,
            _ => false,
        })
    }
}

/// Actions that change nothing that brisk has: the report says that they are not needed, and no [`Rule`] remains.
const UNNEEDED: [&str; 20] = [
    "set-var",
    "set-var-fmt",
    "unset-var",
    "capture",
    "set-nice",
    "set-tos",
    "set-mark",
    "normalize-uri",
    "wait-for-handshake",
    "disable-l7-retry",
    "set-priority-class",
    "set-priority-offset",
    "strict-mode",
    "track-sc0",
    "track-sc1",
    "track-sc2",
    "wait-for-body",
    "set-timeout",
    "early-hint",
    "set-log-level",
];

/// Actions whose absence changes neither the request nor its response, so that no `Action::Unknown` remains for them.
const LOST: [&str; 16] = [
    "sc-inc-gpc0",
    "sc-inc-gpc1",
    "sc-inc-gpc",
    "sc-set-gpt0",
    "sc-set-gpt",
    "sc-add-gpc",
    "add-acl",
    "del-acl",
    "set-map",
    "del-map",
    "cache-use",
    "cache-store",
    "send-spoe-group",
    "do-resolve",
    "set-dst-port",
    "silent-log",
];

impl<'a> Conditions<'_, 'a> {
    /// A [`Rule`] whose line the report calls carried.
    pub(crate) fn rule(&self, line: &'a Directive, formula: Formula, action: Action) -> Rule<'a> {
        self.context.carried(line);
        Rule { line, formula, action }
    }

    /// `http-request`, `http-response` and `http-after-response`: `http-request deny if a` becomes an `Action::Respond` with the
    /// formula of `a`.
    fn http_rule(&self, line: &'a Directive, of: Of) -> Option<Rule<'a>> {
        let (words, formula) = self.of_rule(&line.args);
        let word = |at: usize| words.get(at).cloned().unwrap_or_default();
        let (name, first, second) = (word(0), word(1), word(2));
        // Some actions have arguments, as `set-var(txn.a)`.
        let kind = name.split('(').next().unwrap_or_default();
        let action = match kind {
            "deny" | "tarpit" | "reject" | "silent-drop" | "return" => {
                let response = respond::read(self.context, words);
                if matches!(kind, "tarpit" | "reject" | "silent-drop") {
                    self.context.different(line, "brisk refuses the request with a status at once");
                }
                response.map_or_else(Action::Unknown, Action::Respond)
            }
            "allow" => Action::Allow,
            "redirect" => return Some(self.redirect_rule(line, 1)),
            "auth" => {
                let at = words.iter().position(|word| word == "realm");
                Action::Users(at.and_then(|at| words.get(at + 1)).cloned())
            }
            "set-header" => Action::Set(of, first, second),
            "add-header" => Action::Add(of, first, second),
            "del-header" if words.len() < 3 => Action::Remove(of, first),
            "replace-header" => Action::Replace(of, first, second, word(3)),
            "set-path" | "set-pathq" | "set-uri" => self.new_path(kind, &first),
            "replace-path" | "replace-uri" | "replace-pathq"
                if kind == "replace-path" || !first.contains('?') =>
            {
                if kind != "replace-path" {
                    self.context.different(line, "brisk compares the path without its query");
                }
                Action::ReplacePath(first, second)
            }
            "set-src" | "set-src-port" => {
                Action::Unknown("trusted_proxies name the address of the client in brisk".to_owned())
            }
            "set-log-level" if first == "silent" => Action::Silent,
            _ => return self.other_rule(line, kind, of, formula),
        };
        if line.name == "http-after-response" {
            self.context
                .different(line, "responses of brisk itself, such as refusals, do not have the header");
        }
        Some(self.rule(line, formula, action))
    }

    /// Actions without a counterpart: of `UNNEEDED`, of `LOST`, and others as `Action::Unknown`.
    fn other_rule(&self, line: &'a Directive, kind: &str, of: Of, formula: Formula) -> Option<Rule<'a>> {
        if UNNEEDED.contains(&kind) {
            self.context
                .unneeded(line, "the rules that use it are translated, or brisk does this without a setting");
            return None;
        }
        let reason = format!("brisk has no action {kind}");
        self.context.missing(line, reason.clone(), "look for its purpose in docs/configuration.md");
        // An unknown rule about responses does not decide whether a request passes.
        if LOST.contains(&kind) || of == Of::Response {
            return None;
        }
        Some(Rule { line, formula, action: Action::Unknown(reason) })
    }

    /// `set-path`, and `set-pathq` and `set-uri` without a query or a scheme.
    fn new_path(&self, kind: &str, format: &str) -> Action {
        if kind != "set-path" && format.contains(['?', ':']) {
            return Action::Unknown("brisk changes the path without its query".to_owned());
        }
        let resolve = |sample: Sample| self.resolved(sample);
        template::path_parts(format, &resolve).map_or_else(Action::Unknown, Action::Path)
    }

    /// `tcp-request` in front of requests: `accept`, and `reject` as the status 403.
    fn tcp_rule(&self, line: &'a Directive) -> Option<Rule<'a>> {
        let (words, formula) = self.of_rule(&line.args);
        let kind = words.get(1).map_or("", String::as_str).split('(').next().unwrap_or_default();
        let action = match kind {
            "accept" => Action::Allow,
            "reject" | "silent-drop" | "close" => {
                // A limit of `[server]` takes the place of the rule.
                if self.connections(line, &formula) {
                    return None;
                }
                if self.proxy.is_tcp() {
                    self.context.carried(line);
                } else {
                    let detail = "brisk refuses the requests with 403, and accepts the connection";
                    self.context.different(line, detail);
                }
                return Some(Rule { line, formula, action: Action::Respond(Response::status(403)) });
            }
            _ => return self.other_rule(line, kind, Of::Request, formula),
        };
        Some(self.rule(line, formula, action))
    }

    /// Rules of older versions, which HAProxy 2.1 has removed.
    fn old_rule(&self, line: &'a Directive) -> Option<Rule<'a>> {
        let reason = format!("{} is a rule of HAProxy before 2.1", line.name);
        let action = "write it as http-request, and import again";
        if line.name == "block" {
            let (_, formula) = self.of_rule(&line.args);
            return Some(self.rule(line, formula, Action::Respond(Response::status(403))));
        }
        self.context.missing(line, reason.clone(), action);
        // This rule only adds a header; the others may refuse or change requests.
        if line.name == "reqadd" {
            return None;
        }
        Some(Rule { line, formula: Formula::True, action: Action::Unknown(reason) })
    }

    /// `monitor-uri`: the response 200 at this path.
    fn monitor(&self, line: &'a Directive) -> Rule<'a> {
        let path = Pattern { kind: Match::Exact, text: line.arg(0).to_owned(), ignore_case: false };
        let formula = Formula::Test(std::sync::Arc::new(Test::Path(vec![path])));
        let mut response = Response::status(200);
        response.body = Some("<html><body><h1>200 OK</h1>\nService ready.\n</body></html>\n".to_owned());
        response.content_type = Some("text/html".to_owned());
        self.rule(line, formula, Action::Respond(response))
    }

    /// `redirect`, whose words begin at `start`.
    fn redirect_rule(&self, line: &'a Directive, start: usize) -> Rule<'a> {
        let (words, formula) = self.of_rule(&line.args);
        self.context.carried(line);
        let action = match redirect::read(words.get(start..).unwrap_or_default()) {
            Ok((redirect, None)) => Action::Redirect(redirect),
            Ok((redirect, Some(lost))) => {
                self.context.different(line, lost);
                Action::Redirect(redirect)
            }
            Err(reason) => {
                self.context.missing(
                    line,
                    reason.clone(),
                    "write the redirect by hand; until then the route refuses requests",
                );
                Action::Unknown(reason)
            }
        };
        Rule { line, formula, action }
    }
}
