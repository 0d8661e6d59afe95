//! Frontends of `mode tcp`: `[[tcp]]`, also by the name of the server (`req.ssl_sni`) in the first message of TLS.

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::directive::Directive;
use crate::haproxy::bind::Listeners;
use crate::haproxy::certificates;
use crate::haproxy::context::{Context, milliseconds};
use crate::haproxy::formula::{Facts, Formula, Kind};
use crate::haproxy::host_name::HostName;
use crate::haproxy::rule::{Action, Rule, Segment};
use crate::haproxy::site::Front;
use crate::haproxy::unit::Unit;
use crate::table::Table;
use crate::toml::{self, Keys};

/// Advice for a `frontend` that is not carried.
const BY_HAND: &str = "write [[tcp]] by hand; until then brisk does not listen at the address";

impl<'a> Context<'a> {
    /// The tables `[[tcp]]` for a `frontend` at some of its listeners; `None` if a rule has no counterpart.
    pub(crate) fn tcp(&self, front: &Front<'_, 'a>, listeners: Listeners<'a>) -> Option<Unit<'a>> {
        match self.tcp_tables(front, &listeners) {
            Ok(tcp) => {
                let (http, hosts, pages) = (Vec::new(), Vec::new(), Default::default());
                Some(Unit { front: front.index, listeners, http, hosts, used: self.take_used(), pages, tcp })
            }
            Err((line, reason)) => {
                self.take_used();
                self.missing(line.unwrap_or(front.proxy.directive), reason, BY_HAND);
                None
            }
        }
    }

    /// A `[[tcp]]` for each backend: `use_backend a if { req.ssl_sni a.example }` gives one with `names = ["a.example"]`.
    fn tcp_tables(
        &self,
        front: &Front<'_, 'a>,
        listeners: &Listeners<'a>,
    ) -> Result<Vec<Table>, (Option<&'a Directive>, String)> {
        let base = self.tcp_keys(listeners)?;
        let hosts = front.hosts().ok_or((None, "the rules name more than 20,000 names".to_owned()))?;
        let has_names = hosts.len() > 1 || reads_names(front);
        let mut groups: Vec<(usize, Vec<String>)> = Vec::new();
        let (mut refused, mut accepted) = (Vec::new(), BTreeSet::new());
        for host in &hosts {
            let name = host.text().unwrap_or_else(|| "*".to_owned());
            match self.destination(front, listeners, host)? {
                Some(index) => {
                    accepted.insert(name.clone());
                    match groups.iter_mut().find(|(own, _)| *own == index) {
                        Some((_, names)) => names.push(name),
                        None => groups.push((index, vec![name])),
                    }
                }
                None => refused.push(name),
            }
        }
        let is_inside = |name: &&String| {
            let wild = name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
            accepted.contains("*") || wild.is_some_and(|wild| accepted.contains(&wild))
        };
        if let Some(name) = refused.iter().find(is_inside) {
            return Err((None, format!("[[tcp]] of brisk cannot refuse {name} beside all other names")));
        }
        let mut tables = Vec::new();
        for (index, names) in groups {
            let mut keys = base.clone();
            keys.0.insert(0, ("name".to_owned(), toml::text(&toml::name(front.proxy.name()))));
            if has_names {
                keys.set("names", toml::list(&names));
            }
            let backend = &self.proxies.all[index];
            self.carried(backend.directive);
            let group = self
                .group(index, true, &listeners.ports)
                .map_err(|reason| (Some(backend.directive), reason))?;
            keys.set("upstream", toml::text(&group));
            if let Some(time) = self.idle(front, index) {
                keys.set("idle_timeout", toml::duration(time));
            }
            tables.push(Table {
                header: "[[tcp]]".to_owned(),
                keys,
                comment: front.proxy.directive.comment(),
            });
        }
        if tables.is_empty() {
            return Err((None, "no rule gives the connections a server".to_owned()));
        }
        Ok(tables)
    }

    /// `listen` and `certificates`.
    fn tcp_keys(&self, listeners: &Listeners<'a>) -> Result<Keys, (Option<&'a Directive>, String)> {
        let mut base = Keys::of("listen", certificates::listen(listeners));
        if listeners.tls {
            let fail = |reason: &str| (Some(listeners.line), reason.to_owned());
            if !listeners.clients.is_empty() {
                return Err(fail("[[tcp]] of brisk has no client certificates"));
            }
            let own = certificates::of_tcp(self, listeners)
                .ok_or_else(|| fail("the certificates are in a folder"))?;
            base.set("certificates", own);
        }
        Ok(base)
    }

    /// The backend of connections for the name `host`; `Ok(None)` if they are refused.
    fn destination(
        &self,
        front: &Front<'_, 'a>,
        listeners: &Listeners<'a>,
        host: &HostName,
    ) -> Result<Option<usize>, (Option<&'a Directive>, String)> {
        let program = &front.rules.1;
        let (known, changed) = Default::default();
        let facts = Facts {
            host,
            secure: listeners.tls,
            ports: &listeners.ports,
            known: &known,
            is_moved: false,
            changed: &changed,
        };
        let mut segments: Vec<Segment<'a>> = program.request.clone();
        segments.push(Rc::clone(&program.switching));
        let mut index = None;
        'segments: for segment in &segments {
            for rule in segment.iter() {
                if !self.step(rule.formula.size()) {
                    return Err((Some(rule.line), "the rules are too many".to_owned()));
                }
                let fail = |reason: String| (Some(rule.line), reason);
                if !self.holds(rule, &facts)? {
                    continue;
                }
                match &rule.action {
                    // It ends the rules of its kind only.
                    Action::Allow => continue 'segments,
                    Action::Respond(_) => return Ok(None),
                    Action::Use(name) => {
                        let found = self
                            .proxies
                            .backend(name)
                            .ok_or_else(|| fail(format!("there is no backend {name}")))?;
                        index = Some(found.0);
                        break 'segments;
                    }
                    Action::Unknown(reason) => return Err(fail(reason.clone())),
                    _ => {}
                }
            }
        }
        let index = match index {
            Some(index) => index,
            None => match front.default().map_err(|reason| (None, reason))? {
                Some(index) => index,
                None => return Ok(None),
            },
        };
        behind(front, index)?;
        Ok(Some(index))
    }

    /// Whether the condition of a `rule` holds for the name in `facts`.
    fn holds(&self, rule: &Rule<'a>, facts: &Facts<'_>) -> Result<bool, (Option<&'a Directive>, String)> {
        match rule.formula.at(facts) {
            Formula::False => Ok(false),
            Formula::True => Ok(true),
            // Properties of the client, such as its address, are no conditions of brisk here.
            own if own.first().is_some() => {
                Err((Some(rule.line), "[[tcp]] of brisk has conditions about names only".to_owned()))
            }
            own => match (own.obstacle(), &rule.action) {
                ((Kind::Label, reason), Action::Use(_)) => {
                    self.different(rule.line, reason);
                    Ok(false)
                }
                ((Kind::Host | Kind::State | Kind::Load, reason), Action::Use(_)) => {
                    self.missing(rule.line, reason, "list the names in [[tcp]]");
                    Ok(false)
                }
                ((_, reason), _) => {
                    Err((Some(rule.line), format!("[[tcp]] of brisk has no such condition: {reason}")))
                }
            },
        }
    }

    /// `idle_timeout`: `timeout tunnel`, or else the shorter one of `timeout client` and `timeout server`.
    fn idle(&self, front: &Front<'_, 'a>, index: usize) -> Option<u64> {
        let backend = &self.proxies.all[index];
        let time = |proxy: &crate::haproxy::proxy::Proxy<'a>, kind: &str| {
            let line = proxy.one("timeout", kind)?;
            self.carried(line);
            milliseconds(line.arg(1))
        };
        let sides = [time(front.proxy, "client"), time(backend, "server")];
        // In HAProxy, this time takes the place of both others.
        let own = time(backend, "tunnel").or_else(|| sides.into_iter().flatten().min())?;
        Some(own.clamp(1000, 86_400_000)).filter(|time| *time != 600_000)
    }
}

/// Whether a rule needs the first message of TLS: `ssl_sni` or `ssl_hello_type`.
fn reads_names(front: &Front<'_, '_>) -> bool {
    let words = |line: &Directive| {
        line.args.iter().any(|arg| arg.contains("ssl_sni") || arg.contains("ssl_hello_type"))
    };
    front
        .proxy
        .lines()
        .any(|line| matches!(&*line.name, "acl" | "tcp-request" | "use_backend") && words(line))
}

/// Checks the rules of a `backend`, which may only accept (`Action::Allow`).
fn behind<'a>(front: &Front<'_, 'a>, index: usize) -> Result<(), (Option<&'a Directive>, String)> {
    let backend = &front.context.proxies.all[index];
    if backend.is_disabled() {
        return Err((Some(backend.directive), "the backend is disabled".to_owned()));
    }
    if index == front.index {
        return Ok(());
    }
    let rules = front.backend(index);
    let other = rules
        .1
        .request
        .iter()
        .flat_map(|segment| segment.iter())
        .find(|rule| !matches!(rule.action, Action::Allow));
    other.map_or(Ok(()), |rule| Err((Some(rule.line), "[[tcp]] of brisk has no such rule".to_owned())))
}
