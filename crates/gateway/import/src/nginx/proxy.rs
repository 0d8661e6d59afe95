//! The server behind a location, and the path that it gets.

use std::collections::BTreeSet;

use crate::directive::Directive;
use crate::nginx::cgi::is_script;
use crate::nginx::flow::{Flow, Rewrite};
use crate::nginx::location::Kind;
use crate::nginx::pattern;
use crate::nginx::site::Site;
use crate::nginx::upstream::{Protocol, is_repeated};
use crate::nginx::variables::{Use, only_variable};
use crate::toml::{self, Keys};

/// Reason for addresses that clients could choose (SSRF, CWE-918).
const VARIABLE_SERVER: &str = "the address of the server depends on a variable: brisk forwards to fixed servers only, so that no client \
                               chooses one; a map of the permitted servers is carried";

/// Ends of URLs that mean the path and query of the client.
const WHOLE: [&str; 4] = ["$request_uri", "$uri$is_args$args", "$uri?$args", "$uri"];

impl<'a> Site<'_, 'a> {
    /// The keys for `proxy_pass` and its relatives.
    pub(crate) fn pass(
        &self,
        pass: &'a Directive,
        flow: &Flow<'_, 'a>,
        rewrites: &[Rewrite],
        keys: &mut Keys,
    ) -> Result<(), String> {
        let (protocol, target) = match pass.name.as_str() {
            "proxy_pass" | "grpc_pass" => self.url(pass, flow, keys)?,
            "fastcgi_pass" => (Protocol::FastCgi, pass.arg(0).to_owned()),
            "uwsgi_pass" => (Protocol::Uwsgi, pass.arg(0).trim_start_matches("uwsgi://").to_owned()),
            "scgi_pass" => (Protocol::Scgi, pass.arg(0).trim_start_matches("scgi://").to_owned()),
            "stub_status" => return Err("the metrics of brisk are at the address of [admin]".to_owned()),
            name => return Err(format!("brisk has no counterpart of {name}")),
        };
        if protocol.cgi().is_some() && target.contains(['$', '/']) && !target.starts_with("unix:") {
            return Err(VARIABLE_SERVER.to_owned());
        }
        // A URL of a Unix socket has a second colon between the file and the path.
        let split = match target.strip_prefix("unix:") {
            Some(path) => path.find(':').map(|at| (at + 5, at + 6)),
            None => target.find('/').map(|at| (at, at)),
        };
        let (authority, uri) =
            split.map_or((target.as_str(), None), |(end, start)| (&target[..end], Some(&target[start..])));
        let script = flow
            .script
            .clone()
            .or_else(|| if pass.name == "fastcgi_pass" { self.script(flow) } else { None });
        let name = self.context.upstream(protocol, authority, &flow.scope, pass, script.as_deref())?;
        keys.0.insert(0, ("upstream".to_owned(), toml::text(&name)));
        self.context.carried(pass);
        let fixed = fixed_script(pass, flow).filter(|_| rewrites.is_empty());
        if rewrites.is_empty() && !flow.absent.is_empty() {
            let detail = "the path for this server is changed also where there is a file";
            self.context.different(pass, detail);
        }
        let rewrites = if rewrites.is_empty() { flow.absent.as_slice() } else { rewrites };
        if !rewrites.is_empty() {
            keys.set("rewrite_path", all_rewritten(rewrites));
        } else if let Some((files, script)) = fixed {
            keys.set("rewrite_path", rewritten("^.*$", script));
            self.context.carried(files);
        } else if flow.strips {
            keys.set("strip_prefix", "true");
        } else if let Some(uri) = uri {
            self.path(pass, flow, uri, keys)?;
        }
        self.context.returning(&flow.scope, authority, keys);
        // Repeating a request needs its body, which brisk holds only with a written size.
        let buffers = flow.scope.one("proxy_request_buffering").is_none_or(|own| own.arg(0) != "off");
        if flow.scope.one("proxy_next_upstream").is_some_and(is_repeated) && buffers {
            let size = flow.scope.one("client_max_body_size").and_then(|size| toml::bytes(size.arg(0)));
            keys.set("body_size", toml::size(size.filter(|size| *size > 0).unwrap_or(1 << 20)));
            keys.set("buffer_request", "true");
        }
        if protocol.cgi().is_none() {
            self.host(pass, flow, authority, keys);
        }
        Ok(())
    }

    /// The script for paths of scripts that do not exist: the last entry of `try_files` in the location of the scripts, or without
    /// one, of another location that leads there. nginx would let PHP respond with 404.
    fn script(&self, flow: &Flow<'_, 'a>) -> Option<String> {
        let front = |files: &Directive| {
            let path = files.args.last()?.split(['?', '$']).next()?;
            (path.starts_with('/') && is_script(path)).then(|| path.to_owned())
        };
        if let Some(files) = flow.scope.one("try_files") {
            self.context.carried(files);
            return front(files);
        }
        let fronts = self.index.fronts.get_or_init(|| {
            let all = self.locations.iter().filter_map(|location| front(location.scope.one("try_files")?));
            let mut known = BTreeSet::new();
            let first = all.filter(|path| known.insert(path.clone()));
            first.map(|path| (path.clone(), self.find(&path).map(|location| location.number))).collect()
        });
        let (script, _) = fronts.iter().find(|(_, place)| *place == Some(flow.location.number))?;
        let detail =
            format!("a script that does not exist is {script}; nginx would let PHP respond with 404");
        self.context.different(flow.scope.one("fastcgi_pass")?, detail);
        Some(script.clone())
    }

    /// The URL of a `proxy_pass`, with the values of its variables.
    fn url(
        &self,
        pass: &Directive,
        flow: &Flow<'_, 'a>,
        keys: &mut Keys,
    ) -> Result<(Protocol, String), String> {
        // The end that forwards the path unchanged is the default of brisk, and no path of its own.
        let whole = WHOLE.iter().find_map(|end| pass.arg(0).strip_suffix(end));
        let url = whole.unwrap_or(pass.arg(0));
        if let Some(split) = only_variable(url).and_then(|name| self.context.splits.get(name)) {
            return self.split(split, keys);
        }
        let start = url.find("://").map_or(0, |at| at + 3);
        let end = url[start..].find('/').map_or(url.len(), |at| at + start);
        let (mut server, path) = (flow.values.fill(&url[..end]), &url[end..]);
        let named = only_variable(&server).or_else(|| server.split_once("://$").map(|(_, name)| name));
        if let Some(map) = named.and_then(|name| self.context.maps.get(name)) {
            // The lines of the map have routes of their own, from `choices`. Here only the default is left.
            let by_default = map.inner().iter().find(|line| line.name == "default");
            self.context.carried_whole(map);
            let variable = map.args.last().cloned().unwrap_or_default();
            server = server.replace(&variable, by_default.map_or("", |line| line.arg(0)));
        }
        if server.contains(['$', '{']) {
            return Err(VARIABLE_SERVER.to_owned());
        }
        // `grpc_pass` may have an address without a scheme.
        let is_bare = pass.name == "grpc_pass" && !server.contains("://");
        let full = format!("{}{server}{path}", if is_bare { "grpc://" } else { "" });
        let (protocol, rest) = Protocol::of(&full).ok_or("the address of the server is no URL")?;
        Ok((protocol, rest.to_owned()))
    }

    /// `split_clients` with two servers.
    fn split(&self, split: &'a Directive, keys: &mut Keys) -> Result<(Protocol, String), String> {
        let [part, rest] = split.inner() else { return Err("a split of brisk has two parts".to_owned()) };
        let percent = part.name.strip_suffix('%').ok_or("the first part of the split has no percentage")?;
        let is_number = percent.parse::<f64>().is_ok_and(|number| (0.0..=100.0).contains(&number))
            // `parse` also accepts `inf` and `1e2`, which are not written as a percentage.
            && percent.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        if !is_number {
            return Err("the percentage of the split is not a number".to_owned());
        }
        let (other_protocol, other) = Protocol::of(part.arg(0)).ok_or("a part of the split is no URL")?;
        let next =
            self.context.upstream(other_protocol, other.trim_end_matches('/'), &self.scope, split, None)?;
        keys.set("split", format!("{{ upstream = {}, percent = {percent} }}", toml::text(&next)));
        self.context.carried_whole(split);
        self.context.different(split, "brisk draws visitors by a cookie of its own");
        let (protocol, address) = Protocol::of(rest.arg(0)).ok_or("a part of the split is no URL")?;
        Ok((protocol, address.to_owned()))
    }

    /// Whether two `rewrite` remove the prefix of the location from the path as sent: `rewrite ^ $request_uri;` and
    /// `rewrite ^/prefix(/.*) $1 break;`, with `$uri` behind the server.
    pub(crate) fn strips(&self, flow: &Flow<'_, 'a>, steps: &[&'a Directive]) -> bool {
        let ([first, second, ..], Kind::Prefix { path, .. }) = (steps, &flow.location.kind) else {
            return false;
        };
        let bare = path.trim_end_matches('/');
        let forms = [
            (format!("^({bare})?(/.*)"), "$2"),
            (format!("^{bare}(/.*)"), "$1"),
            (format!("^{bare}/(.*)"), "/$1"),
        ];
        let source = second.arg(0).replace('\\', "");
        let is_removal = second.name == "rewrite"
            && second.arg(2) == "break"
            && forms.iter().any(|(form, to)| source.trim_end_matches('$') == form && second.arg(1) == *to);
        let sends_path = flow.scope.one("proxy_pass").is_some_and(|pass| pass.arg(0).ends_with("$uri"));
        let is_raw =
            first.arg(1) == "$request_uri" && first.args.len() == 2 && pattern::is_every(first.arg(0));
        if is_raw && is_removal && sends_path && flow.at.path == *path {
            self.context.carried(first);
            self.context.carried(second);
            return true;
        }
        false
    }

    /// The path for the upstream of a `proxy_pass` with a path.
    fn path(&self, pass: &Directive, flow: &Flow<'_, 'a>, uri: &str, keys: &mut Keys) -> Result<(), String> {
        let (own, is_exact) = match &flow.location.kind {
            Kind::Prefix { path, .. } => (path.as_str(), false),
            Kind::Exact(path) => (path.as_str(), true),
            Kind::Expression { pattern, ignore_case } => {
                let to = self.context.template(uri, &flow.values, Use::Path)?;
                let pattern = pattern::translate(pattern, *ignore_case)?;
                // Without a final `?`, brisk appends the query of the client, nginx only if the target has
                // it.
                let keeps_query = uri.contains("$is_args$args") || uri.contains("?$args");
                let end = if keeps_query { "" } else { "?" };
                keys.set("rewrite_path", rewritten(&pattern, &format!("{to}{end}")));
                return Ok(());
            }
            Kind::Named(_) => return Err("a named location has no path".to_owned()),
        };
        if uri.contains('$') {
            return Err("the path for the server has variables".to_owned());
        }
        if uri == own {
            return Ok(());
        }
        // nginx replaces the text of the prefix alone, so slashes that differ are kept or doubled. Only an
        // expression does the same.
        let differs_in_slash = own.ends_with('/') != uri.ends_with('/') && own != "/" && uri != "/";
        let is_prefix = flow.at.path == own && !uri.contains('?') && !differs_in_slash;
        if !is_prefix || own.trim_end_matches('/') == uri.trim_end_matches('/') {
            let start = if is_exact { "^.*$".to_owned() } else { format!("^{}(.*)$", pattern::escaped(own)) };
            let to = if is_exact { uri.to_owned() } else { format!("{uri}{{1}}") };
            keys.set("rewrite_path", rewritten(&start, &to));
        } else if uri == "/" {
            keys.set("strip_prefix", "true");
            if !own.ends_with('/') {
                self.context
                    .different(pass, "nginx sends two slashes before the rest of the path, brisk one");
            }
        } else {
            keys.set("replace_prefix", toml::text(uri));
        }
        Ok(())
    }

    /// `Host` for a server with a name of its own, which nginx sends unless `proxy_set_header Host` says otherwise.
    fn host(&self, pass: &Directive, flow: &Flow<'_, 'a>, authority: &str, keys: &mut Keys) {
        let headers = flow.scope.all_of(&["proxy_set_header", "grpc_set_header"]).1;
        if headers.iter().any(|header| header.arg(0).eq_ignore_ascii_case("host")) {
            return;
        }
        let host = authority.split(':').next().unwrap_or_default();
        let is_address = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let is_public = host.contains('.') && !is_address && !self.context.groups.contains_key(authority);
        if is_public && headers.is_empty() {
            keys.set("request_headers", format!("{{ set = {{ Host = {} }} }}", toml::text(authority)));
        } else {
            let detail = "the server gets the Host of the client; nginx would send the name of the server";
            self.context.different(pass, detail);
        }
    }
}

/// The script that `try_files` names for all paths of a location with scripts: `try_files /one.php =404`.
fn fixed_script<'a>(pass: &Directive, flow: &Flow<'_, 'a>) -> Option<(&'a Directive, &'a str)> {
    let files = flow.scope.one("try_files").filter(|_| pass.name == "fastcgi_pass")?;
    let script = files.arg(0);
    let is_fixed = script.starts_with('/') && is_script(script) && !script.contains('$');
    (is_fixed && files.arg(1).starts_with('=')).then_some((files, script))
}

/// The value of `rewrite_path` or `rewrite_files` for several changes, of which the first that matches decides.
pub(crate) fn all_rewritten(rewrites: &[Rewrite]) -> String {
    let all: Vec<_> = rewrites.iter().map(|(pattern, to)| rewritten(pattern, to)).collect();
    match all.as_slice() {
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    }
}

/// The value of `rewrite_path`.
pub(crate) fn rewritten(pattern: &str, to: &str) -> String {
    format!("{{ pattern = {}, to = {} }}", toml::raw(pattern), toml::text(to))
}
