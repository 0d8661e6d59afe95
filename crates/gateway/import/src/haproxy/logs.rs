//! Access logs: `log` and `log-format`.

use crate::directive::Directive;
use crate::haproxy::context::Context;
use crate::haproxy::host_name::HostName;
use crate::haproxy::proxy::Proxy;
use crate::haproxy::template::{self, Place, Use};
use crate::table::Table;
use crate::toml::{self, Keys};

/// Facilities of syslog that brisk has under the same name.
const FACILITIES: [&str; 20] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "local0", "local1",
    "local2", "local3", "local4", "local5", "local6", "local7", "ftp", "ntp",
];

/// Severities of syslog, the most important ones first.
const LEVELS: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

/// Place of `info` in [`LEVELS`].
const INFO: usize = 6;

impl<'a> Context<'a> {
    /// `[access_log]` with its outputs, as the frontend has them.
    pub(crate) fn logs(&self, proxy: &Proxy<'a>) -> Vec<Table> {
        let own: Vec<&Directive> = proxy.all("log").take(60).collect();
        let is_global = own.iter().any(|line| line.arg(0) == "global");
        let globals = self.global_logs.iter().copied().filter(|_| is_global);
        let mut outputs: Vec<Keys> = Vec::new();
        for line in own.iter().copied().filter(|line| line.arg(0) != "global").chain(globals) {
            // Lines of requests have the severity `info`.
            if line
                .args
                .iter()
                .skip(2)
                .find_map(|word| LEVELS.iter().position(|own| own == word))
                .is_some_and(|level| level < INFO)
            {
                self.unneeded(line, "messages about the process are on standard error");
                continue;
            }
            self.carried(line);
            match output(line) {
                Ok((output, difference)) => {
                    if let Some(detail) = difference {
                        self.different(line, detail);
                    }
                    if !outputs.contains(&output) {
                        outputs.push(output);
                    }
                }
                Err(reason) => self.missing(line, reason, "write [[access_log.output]]"),
            }
        }
        own.iter().filter(|line| line.arg(0) == "global").for_each(|line| self.carried(line));
        if outputs.is_empty() {
            return Vec::new();
        }
        let mut tables = Vec::new();
        if let Some(format) = self.format(proxy) {
            let keys = Keys::of("format", format!("{{ template = {} }}", toml::text(&format)));
            tables.push(Table { header: "[access_log]".to_owned(), keys, comment: String::new() });
        }
        let table = |keys| Table { header: "[[access_log.output]]".to_owned(), keys, comment: String::new() };
        tables.extend(outputs.into_iter().take(60).map(table));
        tables
    }

    /// The template of `log-format`.
    fn format(&self, proxy: &Proxy<'a>) -> Option<String> {
        let line = proxy.one("log-format", "")?;
        let resolve = |sample| Ok(sample);
        let place = Place {
            host: &HostName::Other,
            secure: true,
            frontend: proxy.name(),
            backend: "-",
            resolve: &resolve,
        };
        if line.arg(0).is_empty() || proxy.is_tcp() {
            self.different(line, "the lines have the format of brisk");
            return None;
        }
        match template::text(line.arg(0), Use::Log, &place) {
            Ok(text) if text.contains('{') => {
                self.different(line, "counters and states of HAProxy are `-`");
                Some(text.replace(['\r', '\n'], " "))
            }
            Ok(_) => None,
            Err(reason) => {
                self.missing(line, reason, "write format = { template = \"...\" } in [access_log]; until then the lines have the format of brisk");
                None
            }
        }
    }
}

/// An output of brisk, perhaps with a difference.
fn output(line: &Directive) -> Result<(Keys, Option<String>), String> {
    let target = line.arg(0);
    let words = line.args.iter().skip(1).map(String::as_str);
    let facility = words
        .clone()
        .find(|word| FACILITIES.contains(word))
        .filter(|name| *name != "syslog")
        .unwrap_or("local0");
    if matches!(target, "stdout" | "stderr") {
        return Ok((Keys::of("file", toml::text(target)), None));
    }
    if target == "/dev/log" {
        let journal = Keys::of("facility", toml::text(facility)).inline();
        let detail = "lines are in the journal of systemd";
        return Ok((Keys::of("journal", journal), Some(detail.to_owned())));
    }
    let target = target.strip_prefix("udp@").unwrap_or(target);
    let server = if let Some(path) =
        target.strip_prefix("unix@").or_else(|| target.starts_with('/').then_some(target))
    {
        format!("unix:{path}")
    } else if let Some(tcp) = target.strip_prefix("tcp@") {
        format!("tcp://{tcp}")
    } else if target.contains('@') || target.is_empty() {
        return Err("brisk does not write to this target".to_owned());
    } else {
        // HAProxy uses the port 514 too if a target has none.
        let has_port =
            target.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
        format!("udp://{target}{}", if has_port { "" } else { ":514" })
    };
    let mut syslog = Keys::of("server", toml::text(&server));
    syslog.set("facility", toml::text(facility));
    let detail = "messages have the form of RFC 5424";
    Ok((Keys::of("syslog", syslog.inline()), Some(detail.to_owned())))
}
