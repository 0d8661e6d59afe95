//! Pages for errors (`errorfile`), users with passwords (`userlist`), and pages of statistics (`stats`).

use crate::directive::Directive;
use crate::haproxy::context::Context;
use crate::haproxy::formula::Need;
use crate::haproxy::host_name::HostName;
use crate::haproxy::proxy::Proxy;
use crate::haproxy::respond;
use crate::haproxy::site::Front;
use crate::haproxy::template::Place;
use crate::report::Class;
use crate::table::Table;
use crate::toml::{self, Keys};

impl<'a> Context<'a> {
    /// `error_pages` of the hosts of a `frontend`, with the routes that have the pages: `errorfile 404 FILE` becomes
    /// `404 = { route = "/.error/404" }` and a `[[host.route]]` with `exact`, `internal` and `respond`.
    pub(crate) fn pages(&self, front: &Front<'_, 'a>) -> (Keys, Vec<Table>) {
        let (mut keys, mut routes) = (Keys::default(), Vec::new());
        let backends = front.reachable().into_iter().map(|index| &self.proxies.all[index]);
        for proxy in std::iter::once(front.proxy).chain(backends) {
            // The last line decides, so own lines are stronger than those of `defaults`.
            for line in proxy.all("errorfile").rev() {
                self.page(line, &mut keys, &mut routes);
            }
        }
        (keys, routes)
    }

    fn page(&self, line: &'a Directive, keys: &mut Keys, routes: &mut Vec<Table>) {
        let status = line.arg(0);
        let is_error = status.parse().is_ok_and(|status: u16| (400..600).contains(&status));
        let response = match respond::file(self, line.arg(1)) {
            Ok(response) if is_error => response,
            Ok(_) => return self.missing(line, "brisk replaces pages of errors", "write respond in a route"),
            Err(reason) => return self.different(line, format!("the page is that of brisk: {reason}")),
        };
        // The pages of HAProxy's package have no more content than brisk's.
        let body = response.body.as_deref().unwrap_or("");
        if body.len() < 300 && body.starts_with(&format!("<html><body><h1>{status} ")) {
            return self.different(line, "the page is that of brisk");
        }
        self.carried(line);
        // A table has one page for each status.
        if keys.get(status).is_some() {
            return;
        }
        let resolve = |sample| Ok(sample);
        let place =
            Place { host: &HostName::Other, secure: true, frontend: "", backend: "", resolve: &resolve };
        let path = format!("/.error/{status}");
        match response.keys(&place) {
            Ok(own) => {
                let mut entry = Keys::of("route", toml::text(&path));
                if response.status.to_string() != status {
                    entry.set("status", response.status.to_string());
                }
                keys.set(status, entry.inline());
                let mut route = Keys::of("path", toml::text(&path));
                route.set("exact", "true");
                route.set("internal", "true");
                route.0.extend(own.0);
                routes.push(Table {
                    header: "[[host.route]]".to_owned(),
                    keys: route,
                    comment: line.comment(),
                });
            }
            Err(reason) => self.missing(line, reason, "write error_pages in [[host]]"),
        }
    }

    /// The file with the users of a `userlist`, as TOML: `web.users` for the list `web`, `web-admin.users` for its group `admin`.
    /// The operator writes it, because the result has no place for secrets.
    pub(crate) fn users(&self, need: &Need) -> String {
        let Need::User { list, groups } = need else { return toml::text("") };
        let name = self.users_file(list, groups);
        let Some(section) = self.section("userlist", list) else { return self.file(&name) };
        let path = self.files.borrow().path(&name);
        self.carried(section);
        if !groups.is_empty() {
            let detail = format!("{} has the users of {} only", path.display(), groups.join(" and "));
            self.different(section, detail);
        }
        for line in section.inner() {
            if line.name == "group" {
                self.carried(line);
                continue;
            }
            let value = |word: &str| line.args.iter().position(|arg| arg == word).map(|at| line.arg(at + 1));
            let hash = value("password").unwrap_or("");
            let is_known = ["$5$", "$6$", "$2y$", "$2b$", "$2a$", "$apr1$", "$argon2id$"]
                .iter()
                .any(|start| hash.starts_with(start));
            if is_known {
                self.different(line, format!("write NAME:HASH of the user as a line of {}", path.display()));
            } else {
                let reason = "brisk reads passwords as hashes of bcrypt, SHA-crypt, Argon2id and apr1 only";
                let action = format!("write a line of `htpasswd -B` for the user into {}", path.display());
                self.missing(line, reason, &action);
            }
        }
        self.file(&name)
    }

    /// The name of the file for the users of a list or of its groups. Another list with the same name gets a number.
    fn users_file(&self, list: &str, groups: &[String]) -> String {
        let label: Vec<_> = std::iter::once(list).chain(groups.iter().map(String::as_str)).collect();
        let plain = toml::name(&label.join("-"));
        let own = label.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>();
        let mut files = self.users.borrow_mut();
        let names = (1_usize..).map(|number| match number {
            1 => format!("{plain}.users"),
            number => format!("{plain}-{number}.users"),
        });
        for name in names {
            if *files.entry(name.clone()).or_insert_with(|| own.clone()) == own {
                return name;
            }
        }
        plain
    }

    /// Whether a proxy has nothing but a page of statistics, which brisk has in its dashboard.
    pub(crate) fn is_page_of_stats(&self, proxy: &Proxy<'a>) -> bool {
        // Only own lines count: `stats` in `defaults` says nothing about the purpose of one proxy.
        let has = |names: &[&str]| proxy.directive.inner().iter().any(|line| names.contains(&&*line.name));
        let is_page = has(&["stats"])
            && !has(&["server", "server-template", "use_backend", "default_backend", "dispatch"]);
        if is_page {
            let class = Class::NotCarried {
                reason: "brisk has no page of statistics in HAProxy's form".to_owned(),
                action: "write [dashboard], and [admin] for metrics".to_owned(),
            };
            self.whole(proxy.directive, &class);
        }
        is_page
    }
}
