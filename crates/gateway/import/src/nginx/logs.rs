//! `access_log`: outputs of the access log, and the lists of them in hosts and routes.

use crate::directive::Directive;
use crate::nginx::condition::TRUE;
use crate::nginx::context::Context;
use crate::nginx::listen::Server;
use crate::nginx::log_outputs::Output;
use crate::nginx::scope::Scope;
use crate::nginx::service::first;
use crate::nginx::variables::{Use, Values, only_variable};
use crate::nginx::{maps, pattern};
use crate::table::Table;
use crate::toml::{self, Keys};

/// The format `combined` of nginx. Lines in files have further fields at their ends instead.
const COMBINED: &str = "{client.address} - {user} [{time.common}] \"{request.line}\" {response.status} {response.bytes} \"{request.header.referer}\" \"{request.header.user-agent}\"";

// Two fewer than lists of hosts and routes can name: `[otlp]` needs one for each of its signals.
/// Number of outputs in brisk at most.
const MOST: usize = 62;

/// Target, format and condition of an `access_log`.
fn identity(log: &Directive) -> String {
    format!("{} {} {}", log.arg(0), format_of(log), log.parameter("if").unwrap_or_default())
}

fn format_of(log: &Directive) -> &str {
    log.args.get(1).filter(|name| !name.contains('=')).map_or("combined", String::as_str)
}

fn is_off(log: &Directive) -> bool {
    log.arg(0) == "off"
}

/// All `access_log` in these directives and their blocks.
fn gather<'a>(block: &'a [Directive], all: &mut Vec<&'a Directive>) {
    for directive in block {
        if directive.name == "access_log" {
            all.push(directive);
        }
        gather(directive.inner(), all);
    }
}

impl<'a> Context<'a> {
    /// The outputs. Hosts without an `access_log` have that of `http`, or of the first server that has one.
    pub(crate) fn logs(&self, servers: &[Server<'a>], scopes: &[Scope<'a>]) -> Vec<Table> {
        let usual = first(scopes, "access_log");
        let mut all = usual.clone();
        all.extend(self.http.all("access_log"));
        for server in servers {
            gather(server.directive.inner(), &mut all);
        }
        let (off, all): (Vec<_>, Vec<_>) = all.into_iter().partition(|log| is_off(log));
        for log in &off {
            self.carried(log);
        }
        // `off` for the whole log only if no server has another target, since an output of brisk concerns all
        // hosts.
        let has_other = scopes.iter().any(|scope| scope.one("access_log").is_none_or(|log| !is_off(log)));
        if let (Some(log), true, false) = (off.first(), all.is_empty(), has_other) {
            self.logs.borrow_mut().is_off = true;
            let (header, keys) = ("[access_log]".to_owned(), Keys::of("format", "\"off\""));
            return vec![Table { header, keys, comment: log.comment() }];
        }
        if !usual.iter().any(|log| is_off(log)) {
            self.logs.borrow_mut().usual = usual.iter().map(|log| identity(log)).collect();
        }
        let mut tables: Vec<_> = all.into_iter().filter_map(|log| self.output(log)).collect();
        if let [only] = &mut tables[..]
            && ["only_listed", "only", "except"].iter().all(|key| only.keys.get(key).is_none())
        {
            // A single output is simpler as `[access_log]`, and needs no name.
            only.keys.0.retain(|(key, _)| key != "name");
            if only.keys.get("file").is_some() {
                "[access_log]".clone_into(&mut only.header);
            }
        }
        tables
    }

    /// The table of the output for `log`, if no other `access_log` has the same one.
    fn output(&self, log: &'a Directive) -> Option<Table> {
        if log.arg(0).contains('$') {
            self.missing(
                log,
                "the name of the file has a variable",
                "write [[access_log.output]] for each file",
            );
            return None;
        }
        let has = |option: &str| log.args.iter().skip(1).any(|arg| arg.starts_with(option));
        let condition = self.log_condition(log);
        if let Err(reason) = &condition {
            let action = "the log has a line for each request: write `only` in the output, or access_log = false in a route";
            self.different(log, format!("{reason}; {action}"));
        }
        if has("buffer=") || has("gzip") {
            self.different(log, "brisk writes lines after at most 50 ms, without compression");
        }
        self.carried(log);
        let identity = identity(log);
        let mut logs = self.logs.borrow_mut();
        if logs.outputs.iter().any(|output| output.identity == identity) {
            return None;
        }
        if logs.outputs.len() == MOST {
            self.missing(
                log,
                format!("brisk has at most {MOST} outputs"),
                "write one output for several hosts",
            );
            return None;
        }
        let name = logs.name_for(log.arg(0));
        let mut keys = Keys::of("name", toml::text(&name));
        if !logs.usual.contains(&identity) {
            keys.set("only_listed", "true");
        }
        logs.outputs.push(Output { identity, name });
        if let Some(server) = log.arg(0).strip_prefix("syslog:") {
            keys.set("syslog", syslog(server));
        } else {
            let standard = log.arg(0).strip_prefix("/dev/").filter(|name| name.starts_with("std"));
            keys.set("file", standard.map_or_else(|| self.file(log.arg(0)), toml::text));
        }
        self.log_format(log, &mut keys);
        keys.0.extend(condition.unwrap_or_default().0);
        Some(Table { header: "[[access_log.output]]".to_owned(), keys, comment: log.comment() })
    }

    /// `only` or `except` for the parameter `if`.
    fn log_condition(&self, log: &Directive) -> Result<Keys, String> {
        let Some(condition) = log.parameter("if") else { return Ok(Keys::default()) };
        let name = only_variable(condition).ok_or("the condition is not one variable")?;
        let (key, source, regex) = match self.maps.get(name) {
            None => ("only", condition, TRUE.to_owned()),
            Some(map) => {
                let (lines, by_default) = self.chosen_lines(map, &|result| !matches!(result, "" | "0"))?;
                let patterns = lines.into_iter().map(|line| key_pattern(map, line));
                let patterns = patterns.collect::<Result<Vec<_>, _>>()?;
                self.carried_whole(map);
                match (patterns.is_empty(), by_default) {
                    (true, true) => return Ok(Keys::default()),
                    (true, false) => return Err("the condition never holds".to_owned()),
                    (false, true) => ("except", map.arg(0), patterns.join("|")),
                    (false, false) => ("only", map.arg(0), patterns.join("|")),
                }
            }
        };
        let value = self.template(source, &Values::default(), Use::Log)?;
        let test = format!("{{ value = {}, regex = {} }}", toml::text(&value), toml::raw(&regex));
        Ok(Keys::of(key, test))
    }

    /// Value of `access_log` for a host or route.
    pub(crate) fn logged_to(&self, scope: &Scope<'_>) -> String {
        let (own, logs) = (scope.all("access_log"), self.logs.borrow());
        if own.iter().any(|log| is_off(log)) {
            return logs.is_off.to_string();
        }
        let own: Vec<_> = own.into_iter().map(identity).collect();
        let names = |of: &[String]| -> Vec<_> {
            let outputs = logs.outputs.iter().filter(|output| of.contains(&output.identity));
            outputs.map(|output| &output.name).collect()
        };
        let (names, usual) = (names(&own), names(&logs.usual));
        if names.is_empty() || names == usual { "true".to_owned() } else { toml::list(names) }
    }

    fn log_format(&self, log: &Directive, keys: &mut Keys) {
        let name = format_of(log);
        let formats = self.http.all("log_format");
        let format = formats.iter().find(|format| format.arg(0) == name);
        if format.is_none() && log.arg(0).starts_with("syslog:") {
            return keys.set("format", format!("{{ template = {} }}", toml::raw(COMBINED)));
        }
        let Some(format) = format else {
            return self
                .different(log, "the lines are in the combined format, with further fields at their ends");
        };
        if format.args.iter().any(|part| part == "escape=json") {
            keys.set("format", "\"json\"");
            return self.different(format, "the lines are JSON with the fields of brisk");
        }
        let text: String = format
            .args
            .iter()
            .skip(1)
            .filter(|part| !part.starts_with("escape="))
            .map(String::as_str)
            .collect();
        match self.template(&text, &Values::default(), Use::Log) {
            Ok(template) => {
                keys.set("format", format!("{{ template = {} }}", toml::text(&template)));
                self.carried(format);
            }
            Err(reason) => {
                self.different(format, format!("{reason}; the lines are in the text format of brisk"));
            }
        }
    }
}

/// The expression for the texts of a line of a `map`.
fn key_pattern(map: &Directive, line: &Directive) -> Result<String, String> {
    if maps::is_wildcard(map, line) {
        return Err("the key of the map is a name with a wildcard".to_owned());
    }
    let (operator, text) = maps::comparison(&line.name);
    match operator {
        // nginx compares texts without their case.
        "=" => Ok(format!("(?i:^{}$)", pattern::escaped(&text))),
        operator => Ok(format!("(?:{})", pattern::translate(&text, operator == "~*")?)),
    }
}

fn syslog(text: &str) -> String {
    let mut keys = Keys::default();
    for part in text.split(',') {
        let Some((name, value)) = part.split_once('=') else { continue };
        match name {
            "server" if value.starts_with("unix:") => keys.set("server", toml::text(value)),
            "server" => {
                let port = if value.contains(':') { "" } else { ":514" };
                keys.set("server", toml::text(&format!("udp://{value}{port}")));
            }
            "facility" | "severity" => keys.set(name, toml::text(value)),
            "tag" => keys.set("app_name", toml::text(value)),
            _ => {}
        }
    }
    keys.inline()
}
