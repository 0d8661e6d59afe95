//! A configuration that a trial may serve: without the files that nginx would write, and without connections to other machines.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;

use super::dropped::is_dropped;
use super::{Stand, TrialListener};
use crate::directive::Directive;
use crate::nginx::listen;

/// Address in place of upstreams to which the trial sends no request: the upstreams of `fastcgi_pass`, `uwsgi_pass`, `scgi_pass`,
/// `grpc_pass` and `memcached_pass`. Both servers respond with 502.
const CLOSED: &str = "127.0.0.1:9";

/// The directives, with the addresses of upstreams and of the servers.
pub(super) struct Restated {
    pub(super) lines: Vec<Directive>,
    pub(super) listeners: Vec<TrialListener>,
    pub(super) upstreams: BTreeMap<String, u16>,
    groups: Vec<String>,
    /// Values that `set`, `map`, `geo` and `split_clients` give a variable, by its name.
    values: BTreeMap<String, Vec<String>>,
    /// Variables at the starts of `proxy_pass`.
    passes: BTreeSet<String>,
}

impl Restated {
    /// Restates all directives of a configuration.
    pub(super) fn of(
        all: &[Directive],
        stand: &Stand,
        port: &mut dyn FnMut() -> io::Result<u16>,
    ) -> io::Result<Self> {
        let mut restated = Self {
            lines: Vec::new(),
            listeners: Vec::new(),
            upstreams: BTreeMap::new(),
            groups: Vec::new(),
            values: BTreeMap::new(),
            passes: BTreeSet::new(),
        };
        restated.gather(all);
        restated.lines = restated.block(all, None, stand, port)?;
        Ok(restated)
    }

    fn gather(&mut self, lines: &[Directive]) {
        for line in lines {
            match (line.name.as_str(), assigned(line)) {
                ("upstream", _) => self.groups.push(line.arg(0).to_owned()),
                ("proxy_pass", _) => self.passes.extend(leading(line.arg(0))),
                ("set", Some(name)) => {
                    self.values.entry(name.to_owned()).or_default().push(line.arg(1).to_owned());
                }
                (_, Some(name)) => {
                    let options = ["hostnames", "volatile", "ranges", "include"];
                    let lines = line.inner().iter().filter(|own| !options.contains(&own.name.as_str()));
                    let values = lines.map(|own| own.arg(0).to_owned());
                    self.values.entry(name.to_owned()).or_default().extend(values);
                }
                _ => {}
            }
            if !is_table(line) {
                self.gather(line.inner());
            }
        }
    }

    /// Whether a directive assigns values to a variable at the start of a `proxy_pass`.
    fn is_passed(&self, line: &Directive) -> bool {
        assigned(line).is_some_and(|name| self.passes.contains(name))
    }

    fn block(
        &mut self,
        lines: &[Directive],
        around: Option<&Directive>,
        stand: &Stand,
        port: &mut dyn FnMut() -> io::Result<u16>,
    ) -> io::Result<Vec<Directive>> {
        let mut restated = Vec::new();
        // Keys of a table may have the names of directives.
        let is_kept =
            |line: &&Directive| !is_dropped(line) || (around.is_some_and(is_table) && line.name != "include");
        for line in lines.iter().filter(is_kept) {
            let Some(mut own) = self.line(line, around, stand, port)? else { continue };
            if let Some(inner) = &line.block {
                let inner = self.block(inner, Some(line), stand, port)?;
                let is_server = line.name == "server" && around.is_none_or(|around| around.name == "http");
                let inner = if is_server { self.server(line, inner, stand, port)? } else { Some(inner) };
                let Some(inner) = inner else { continue };
                own.block = Some(inner);
            }
            restated.push(own);
        }
        Ok(restated)
    }

    /// The block of a `server` with the certificate of the trial. `None` if the trial has none of its addresses.
    fn server(
        &mut self,
        server: &Directive,
        mut inner: Vec<Directive>,
        stand: &Stand,
        port: &mut dyn FnMut() -> io::Result<u16>,
    ) -> io::Result<Option<Vec<Directive>>> {
        let has_listen = |lines: &[Directive]| lines.iter().any(|line| line.name == "listen");
        if !has_listen(&inner) {
            if has_listen(server.inner()) {
                return Ok(None);
            }
            // Without this line, both programs would listen at port 80 of all addresses of this machine.
            let (name, args) = ("listen".to_owned(), vec!["80".to_owned()]);
            let mut line = Directive { name, args, block: None, ..server.clone() };
            self.listen(&mut line, "0.0.0.0:80".to_owned(), port)?;
            inner.push(line);
        }
        inner.extend(certificates(server, stand));
        Ok(Some(inner))
    }

    /// One directive without its block, or `None` if the trial has nothing in place of it.
    fn line(
        &mut self,
        line: &Directive,
        around: Option<&Directive>,
        stand: &Stand,
        port: &mut dyn FnMut() -> io::Result<u16>,
    ) -> io::Result<Option<Directive>> {
        let outer = around.map_or("", |around| around.name.as_str());
        let mut own = Directive { block: None, ..line.clone() };
        let is_key = around.is_some_and(is_table) && line.name != "include";
        let name = if is_key { "" } else { line.name.as_str() };
        match name {
            "include" => match stand.media_types(line.arg(0)) {
                Some(file) => own.args = vec![file.display().to_string()],
                None => return Ok(None),
            },
            "listen" => match listen::address(line.arg(0)) {
                Some(address) => self.listen(&mut own, address, port)?,
                None => return Ok(None),
            },
            "server" if outer == "upstream" => {
                // One recorder for all servers of a group: each of both programs chooses among them by itself.
                let first = around.and_then(|group| group.inner().iter().find(|own| own.name == "server"));
                if !first.is_some_and(|first| std::ptr::eq(first, line)) {
                    return Ok(None);
                }
                own.args = vec![self.upstream(around.map_or("", |group| group.arg(0)), port)?];
            }
            "proxy_pass" => own.args = vec![self.url(line.arg(0), port)?],
            name if name.ends_with("_pass") => own.args = vec![CLOSED.to_owned()],
            // Relative names start at the folder of the configuration, as in the translation.
            "root" | "alias" | "auth_basic_user_file" => {
                for arg in own.args.iter_mut().filter(|arg| !arg.starts_with('$')) {
                    *arg = stand.source.join(&*arg).display().to_string();
                }
            }
            _ if self.is_passed(line) || around.is_some_and(|around| self.is_passed(around)) => {
                for arg in own.args.iter_mut().filter(|arg| arg.contains("://")) {
                    *arg = self.url(&arg.clone(), port)?;
                }
            }
            _ => {}
        }
        Ok(Some(own))
    }

    fn listen(
        &mut self,
        line: &mut Directive,
        address: String,
        port: &mut dyn FnMut() -> io::Result<u16>,
    ) -> io::Result<()> {
        // The clients of the trial are not behind a proxy.
        line.args.retain(|arg| !matches!(arg.as_str(), "proxy_protocol" | "reuseport"));
        let has_tls = line.has("ssl");
        if let Some(listener) = self.listeners.iter_mut().find(|listener| listener.address == address) {
            listener.has_tls |= has_tls;
        } else {
            let (nginx, brisk) = (port()?, port()?);
            self.listeners.push(TrialListener { address, nginx, brisk, has_tls });
        }
        Ok(())
    }

    /// The address of a recorder in place of an upstream, such as `127.0.0.1:4000`.
    fn upstream(&mut self, address: &str, port: &mut dyn FnMut() -> io::Result<u16>) -> io::Result<String> {
        if !self.upstreams.contains_key(address) {
            self.upstreams.insert(address.to_owned(), port()?);
        }
        Ok(format!("127.0.0.1:{}", self.upstreams[address]))
    }

    /// A URL of `proxy_pass`, or of a value that leads there, over plain HTTP. A variable stays only if all of its values are
    /// recorders.
    fn url(&mut self, url: &str, port: &mut dyn FnMut() -> io::Result<u16>) -> io::Result<String> {
        let Some((_, rest)) = url.split_once("://") else {
            let is_url =
                leading(url).is_some_and(|name| self.has_values(&name, |value| value.contains("://")));
            return Ok(if is_url { url.to_owned() } else { format!("http://{CLOSED}") });
        };
        let (authority, path) = match rest.strip_prefix("unix:") {
            Some(socket) => socket.split_once(':').unwrap_or((socket, "")),
            None => rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())),
        };
        let is_group = |name: &str| self.groups.iter().any(|group| group == name);
        if is_group(authority) || self.has_values(authority, is_group) {
            return Ok(format!("http://{rest}"));
        }
        Ok(format!("http://{}{path}", self.upstream(authority, port)?))
    }

    /// Whether a text is a variable whose values all fulfil a condition.
    fn has_values(&self, variable: &str, is_right: impl Fn(&str) -> bool) -> bool {
        self.values.get(variable).is_some_and(|values| values.iter().all(|value| is_right(value)))
    }

    /// The text for nginx, with `pid`, `error_log` and temporary paths of the trial.
    pub(super) fn nginx(&self, stand: &Stand) -> String {
        let folder = stand.folder.display();
        let process =
            "daemon off;\nmaster_process off;\nerror_log stderr warn;\nevents { worker_connections 512; }\n";
        let mut text = String::new();
        // nginx loads modules before it reads a block.
        let (modules, lines): (Vec<_>, Vec<_>) =
            self.lines.iter().cloned().partition(|line| line.name == "load_module");
        self.write(&modules, "", &mut text);
        let _ = writeln!(text, "{process}pid {folder}/nginx.pid;");
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {folder}/{kind};\n"));
        // Without a log, nginx opens a file of the system.
        let paths = format!("access_log off;\n{}", paths.concat());
        if lines.iter().any(|line| line.name == "http") {
            self.write(&lines, &paths, &mut text);
        } else {
            let _ = writeln!(text, "http {{\n{paths}");
            self.write(&lines, "", &mut text);
            text.push_str("}\n");
        }
        text
    }

    fn write(&self, lines: &[Directive], paths: &str, text: &mut String) {
        for line in lines {
            let listener = listen::address(line.arg(0)).filter(|_| line.name == "listen");
            let listener = listener
                .and_then(|address| self.listeners.iter().find(|listener| listener.address == address));
            text.push_str(&quoted(&line.name));
            for (index, arg) in line.args.iter().enumerate() {
                match listener.filter(|_| index == 0) {
                    Some(listener) => {
                        let _ = write!(text, " 127.0.0.1:{}", listener.nginx);
                    }
                    // Options of sockets, such as `ipv6only=on`, concern the original address.
                    None if listener.is_some() && arg.contains('=') => {}
                    None => text.extend([" ", &quoted(arg)]),
                }
            }
            match &line.block {
                Some(inner) => {
                    text.push_str(" {\n");
                    if line.name == "http" {
                        text.push_str(paths);
                    }
                    self.write(inner, "", text);
                    text.push_str("}\n");
                }
                None => text.push_str(";\n"),
            }
        }
    }

    /// A text of brisk with the ports of the trial in `http`, `https` and `listen`.
    pub(super) fn brisk(&self, text: &str) -> String {
        let is_address =
            |line: &str| ["https = ", "http = ", "listen = "].iter().any(|key| line.starts_with(key));
        let lines = text.lines().map(|line| {
            let listeners = self.listeners.iter().filter(|_| is_address(line));
            listeners.fold(format!("{line}\n"), |line, listener| {
                let port = format!("\"127.0.0.1:{}\"", listener.brisk);
                line.replace(&format!("\"{}\"", listener.address), &port)
            })
        });
        lines.collect()
    }

    /// Names of the headers in `proxy_set_header`.
    pub(super) fn forwarded(&self) -> Vec<String> {
        let mut names = Vec::new();
        gather_headers(&self.lines, &mut names);
        names
    }
}

/// Whether the lines of a block are keys and values.
fn is_table(block: &Directive) -> bool {
    matches!(block.name.as_str(), "map" | "geo" | "types" | "split_clients")
}

/// The variable that `set`, `map`, `geo` or `split_clients` assigns.
fn assigned(line: &Directive) -> Option<&str> {
    match line.name.as_str() {
        "set" => Some(line.arg(0)),
        "map" | "geo" | "split_clients" => line.args.last().map(String::as_str),
        _ => None,
    }
}

/// The variable at the start of a text: `$to` of `$to/path`.
fn leading(text: &str) -> Option<String> {
    let name = text.strip_prefix('$')?;
    let name = name.strip_prefix('{').unwrap_or(name);
    let end = name.find(|next: char| !next.is_ascii_alphanumeric() && next != '_').unwrap_or(name.len());
    Some(format!("${}", &name[..end]))
}

/// `ssl_certificate` and `ssl_certificate_key` for a `server`.
fn certificates(server: &Directive, stand: &Stand) -> [Directive; 2] {
    [("ssl_certificate", &stand.chain), ("ssl_certificate_key", &stand.key)].map(|(name, file)| {
        let args = vec![file.display().to_string()];
        Directive { name: name.to_owned(), args, block: None, ..server.clone() }
    })
}

fn gather_headers(lines: &[Directive], names: &mut Vec<String>) {
    for line in lines {
        let name = line.arg(0).to_ascii_lowercase();
        // Both servers frame requests in their own way.
        let is_compared =
            !matches!(&*name, "connection" | "upgrade" | "content-length" | "transfer-encoding");
        if line.name == "proxy_set_header" && is_compared && !names.contains(&name) {
            names.push(name);
        }
        gather_headers(line.inner(), names);
    }
}

/// A word as nginx reads it, in quotes if it has a space, `;`, `{` or `}`.
fn quoted(word: &str) -> String {
    let is_plain =
        |next: char| !next.is_whitespace() && !matches!(next, ';' | '{' | '}' | '"' | '\'' | '\\' | '#');
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::nginx::include::Files;

    /// A configuration with ports from 1001 on, and its text for nginx.
    fn restated(text: &str) -> (Restated, String) {
        let (all, _) = Files::of_text(text).expect("a configuration");
        let [folder, chain, key] = ["/t", "/t/chain", "/t/key"].map(PathBuf::from);
        let stand = Stand { folder, chain, key, source: PathBuf::new() };
        let mut next = 1000;
        let mut port = || {
            next += 1;
            Ok(next)
        };
        let restated = Restated::of(&all, &stand, &mut port).expect("ports");
        let nginx = restated.nginx(&stand);
        (restated, nginx)
    }

    #[test]
    fn servers_listen_at_ports_of_the_trial_only() {
        let (restated, nginx) = restated(
            "server { server_name a; return 204; } server { listen unix:/run/x; return 204; } \
             server { listen 443 quic; return 204; }",
        );
        assert_eq!((restated.listeners.len(), nginx.matches("server {").count()), (1, 1), "{nginx}");
        assert!(nginx.contains(&format!("listen 127.0.0.1:{};", restated.listeners[0].nginx)), "{nginx}");
    }

    #[test]
    fn keys_of_tables_are_no_directives() {
        let (_, nginx) = restated(
            "map $arg_a $b { user 1; my_pass 1; upstream 2; } upstream php { server 10.0.0.1:9000; } \
             server { location / { fastcgi_pass php; limit_rate 1k; js_content x; perl_set $a b; } }",
        );
        for part in ["user 1;", "my_pass 1;", "upstream 2;", "fastcgi_pass 127.0.0.1:9;"] {
            assert!(nginx.contains(part), "{part} is missing in {nginx}");
        }
        for part in ["limit_rate", "js_content", "perl_set", "10.0.0.1"] {
            assert!(!nginx.contains(part), "{part} is in {nginx}");
        }
    }

    #[test]
    fn a_trial_writes_no_files_and_asks_no_other_machine() {
        let text = "user www; events { } load_module a.so; http { access_log /var/log/a; upstream app { server 10.0.0.1 weight=2; server unix:/run/x; } \
                    map $arg_a $to { default https://10.0.0.2:8443; } \
                    server { listen 443 ssl reuseport; listen [::]:443 ssl ipv6only=on; ssl_certificate /etc/a; \
                    location / { proxy_pass https://app/x; } location ~ \\.php$ { fastcgi_pass unix:/run/php; } \
                    location /b { proxy_pass http://unix:/run/b:/c/; } location /c { proxy_pass $to; } \
                    location /d { proxy_pass http://$arg_d; } location /e { proxy_pass $arg_e; root www; } } }";
        let (restated, nginx) = restated(text);
        for part in [
            "listen 127.0.0.1:1009 ssl;",
            "upstream app {\nserver 127.0.0.1:1001;\n}",
            "default http://127.0.0.1:1002;",
            "proxy_pass http://app/x;",
            "location ~ \"\\\\.php$\" {\nfastcgi_pass 127.0.0.1:9;",
            "proxy_pass http://127.0.0.1:",
            "proxy_pass $to;",
            "proxy_pass http://127.0.0.1:9;\nroot www;",
            "ssl_certificate /t/chain;",
            "proxy_temp_path /t/proxy;",
        ] {
            let part = part.replace("1009", &restated.listeners[0].nginx.to_string());
            assert!(nginx.contains(&part), "{part} is missing in {nginx}");
        }
        for part in
            ["user", "/var/log", "10.0.0.", "/run/", "/etc/a", "reuseport", "ipv6only", "$arg_d", "$arg_e"]
        {
            assert!(!nginx.contains(part), "{part} is in {nginx}");
        }
        assert!(nginx.starts_with("load_module a.so;\ndaemon off;\n"), "{nginx}");
        let brisk = restated.brisk("https = [\"0.0.0.0:443\", \"[::]:443\"]\nbody = \"0.0.0.0:443\"");
        assert!(brisk.starts_with(&format!("https = [\"127.0.0.1:{}\", ", restated.listeners[0].brisk)));
        assert!(brisk.ends_with("body = \"0.0.0.0:443\"\n"), "{brisk}");
    }
}
