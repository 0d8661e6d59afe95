//! Changes of responses: `proxy_redirect`, `proxy_cookie_path` and its relatives, and `types` of files.

use crate::directive::Directive;
use crate::nginx::context::Context;
use crate::nginx::scope::Scope;
use crate::toml::{self, Keys};

/// Extensions of files that get the default type if `types` does not list them.
const USUAL: [&str; 16] = [
    "html", "htm", "txt", "css", "js", "json", "xml", "svg", "md", "csv", "pdf", "png", "jpg", "jpeg", "gif",
    "webp",
];

/// Number of lines of `types` from which it is the usual table, `mime.types`.
const TABLE: usize = 30;

impl Context<'_> {
    /// `rewrite_location` and `cookies` of a route with an upstream.
    pub(crate) fn returning(&self, scope: &Scope<'_>, authority: &str, keys: &mut Keys) {
        self.redirects(scope, authority, keys);
        let mut cookies = Keys::default();
        self.replaced(scope, "path", &mut cookies);
        self.replaced(scope, "domain", &mut cookies);
        for flags in scope.all("proxy_cookie_flags") {
            let words: Vec<_> = flags.args.iter().skip(1).map(String::as_str).collect();
            let is_known = flags.arg(0) == "~" && words.iter().all(|word| flag(word, &mut cookies));
            if is_known || flags.arg(0) == "off" {
                self.carried(flags);
            } else {
                self.missing(
                    flags,
                    "the attributes of brisk concern all cookies of a route",
                    "write cookies in the route",
                );
            }
        }
        if !cookies.is_empty() {
            keys.set("cookies", cookies.inline());
        }
    }

    fn redirects(&self, scope: &Scope<'_>, authority: &str, keys: &mut Keys) {
        let mut table = Keys::default();
        for rule in scope.all("proxy_redirect") {
            let (from, to) = (rule.arg(0), rule.arg(1));
            // Own addresses become paths, which are valid under every name of the host.
            let to = ["$scheme://$host", "$scheme://$http_host", "$scheme://$server_name", "https://$host"]
                .iter()
                .find_map(|own| to.strip_prefix(own).filter(|rest| rest.starts_with('/')))
                .unwrap_or(if to == "$scheme://" { "https://" } else { to });
            if from == "off" {
                self.carried(rule);
                let is_unix = |line: &Directive| line.arg(0).starts_with("unix:");
                let group = self.groups.get(authority).map(|group| group.inner());
                let mut servers =
                    group.unwrap_or_default().iter().filter(|line| line.name == "server").peekable();
                let has_no_name =
                    authority.starts_with("unix:") || (servers.peek().is_some() && servers.all(is_unix));
                if !has_no_name {
                    keys.set("rewrite_location", "false");
                }
            } else if from == "default" {
                self.carried(rule);
            } else if !is_beginning(from) || !is_beginning(to) {
                self.missing(
                    rule,
                    "brisk replaces fixed beginnings of redirects",
                    "write rewrite_location = { \"FROM\" = \"TO\" } in the route",
                );
            } else {
                table.set(from, toml::text(to));
                self.carried(rule);
            }
        }
        if !table.is_empty() {
            keys.set("rewrite_location", quoted(&table));
        }
    }

    /// `proxy_cookie_path` or `proxy_cookie_domain`.
    fn replaced(&self, scope: &Scope<'_>, kind: &'static str, cookies: &mut Keys) {
        let mut table = Keys::default();
        for rule in scope.all(&format!("proxy_cookie_{kind}")) {
            let (from, to) = (rule.arg(0), rule.arg(1));
            // Attributes are often appended to the path.
            let mut parts = to.split(';').map(str::trim);
            let to = parts.next().unwrap_or_default();
            let is_text = !from.starts_with('~') && !from.contains('$') && !to.contains('$');
            let mut attributes = parts.filter(|part| !part.is_empty()).map(str::to_ascii_lowercase);
            if from == "off" {
                self.carried(rule);
            } else if is_text && attributes.all(|word| flag(&word, cookies)) {
                self.carried(rule);
                if from != to {
                    table.set(from, toml::text(to));
                }
            } else {
                let reason = format!("brisk replaces a fixed {kind} of cookies");
                self.missing(rule, reason, "write cookies in the route");
            }
        }
        if !table.is_empty() {
            cookies.set(kind, quoted(&table));
        }
    }

    /// `types` and `default_type` for a folder.
    pub(crate) fn types(&self, scope: &Scope<'_>, keys: &mut Keys) {
        let blocks = scope.all("types");
        let by_default = scope.one("default_type");
        let lines: Vec<_> = blocks.iter().flat_map(|block| block.inner()).collect();
        for block in &blocks {
            self.carried_whole(block);
        }
        // The default of nginx. In brisk, it is `application/octet-stream`.
        let kind = by_default.map_or("text/plain", |directive| directive.arg(0));
        if let Some(directive) = by_default {
            self.carried(directive);
            if kind != "application/octet-stream" {
                keys.set("default_type", toml::text(kind));
            }
        }
        if blocks.is_empty() || lines.len() >= TABLE {
            return;
        }
        let mut table = Keys::default();
        for line in lines {
            line.args.iter().for_each(|suffix| table.set(suffix, toml::text(&line.name)));
        }
        // `types` of nginx replaces its whole table, so other extensions have the default type. brisk would
        // add to its own.
        for suffix in USUAL {
            if table.get(suffix).is_none() {
                table.set(suffix, toml::text(kind));
            }
        }
        keys.set("types", table.inline());
    }
}

/// Whether a text is a fixed beginning of a URL.
fn is_beginning(text: &str) -> bool {
    (text.starts_with('/') || text.contains("://")) && !text.starts_with('~') && !text.contains('$')
}

/// An attribute of `Set-Cookie`. Whether it is known.
fn flag(word: &str, cookies: &mut Keys) -> bool {
    let (key, value) = match word {
        "secure" => ("secure", "true"),
        "nosecure" => ("secure", "false"),
        "httponly" => ("http_only", "true"),
        "nohttponly" => ("http_only", "false"),
        "samesite=strict" => ("same_site", "\"strict\""),
        "samesite=lax" => ("same_site", "\"lax\""),
        "samesite=none" => ("same_site", "\"none\""),
        "nosamesite" => ("same_site", "\"remove\""),
        _ => return false,
    };
    cookies.set(key, value);
    true
}

/// An inline table whose keys are texts with any characters.
fn quoted(table: &Keys) -> String {
    let parts: Vec<_> = table.0.iter().map(|(key, value)| format!("{} = {value}", toml::raw(key))).collect();
    format!("{{ {} }}", parts.join(", "))
}
