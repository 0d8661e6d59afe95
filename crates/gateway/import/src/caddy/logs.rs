//! Access logs. Caddy has none without the directive `log`.

use crate::caddy::address::Site;
use crate::caddy::context::Context;
use crate::caddy::environment::{self, resolve};
use crate::caddy::options::Options;
use crate::directive::Directive;
use crate::report::Class;
use crate::table::Table;
use crate::toml::{self, Keys};

/// Access logs of the sites of a file: `[access_log]` for one output, `[[access_log.output]]` for several.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    outputs: Vec<Keys>,
    /// Number in `outputs` of each site; `None` without `log`.
    sites: Vec<Option<usize>>,
}

impl Logs {
    /// Gathers the directives `log` of sites. Equal ones are one output.
    pub(crate) fn new<'s, 'a: 's>(context: &Context<'_>, sites: impl Iterator<Item = &'s Site<'a>>) -> Self {
        let mut logs = Self::default();
        for site in sites {
            let lines: Vec<_> = site.directive.inner().iter().filter(|line| line.name == "log").collect();
            let mut own = None;
            for line in lines {
                // Only the first `log` of a site is translated.
                if own.is_some() {
                    let class = Class::NotCarried {
                        reason: "a host has the log of its first directive".to_owned(),
                        action: "write a further output in [access_log]".to_owned(),
                    };
                    context.note_whole(line, &class);
                    continue;
                }
                let output = output(context, line);
                context.is_spent(logs.outputs.len());
                let index =
                    logs.outputs.iter().position(|other| *other == output).unwrap_or(logs.outputs.len());
                if index == logs.outputs.len() {
                    logs.outputs.push(output);
                }
                own = Some(index);
            }
            logs.sites.push(own);
        }
        logs
    }

    /// The tables of the file; `format = "off"` if no site has a `log`.
    pub(crate) fn tables(&self) -> Vec<Table> {
        let table =
            |header: &str, keys: Keys| Table { header: header.to_owned(), keys, comment: String::new() };
        match self.outputs.as_slice() {
            [] => vec![table("[access_log]", Keys::of("format", "\"off\""))],
            [one] => vec![table("[access_log]", one.clone())],
            all => all
                .iter()
                .take(62)
                .enumerate()
                .map(|(index, keys)| {
                    let mut keys = keys.clone();
                    keys.set("name", toml::text(&format!("log-{}", index + 1)));
                    keys.set("only_listed", "true");
                    table("[[access_log.output]]", keys)
                })
                .collect(),
        }
    }

    /// The key `access_log` of the host of a site: `false`, or a list such as `["log-1"]` if there are several outputs.
    pub(crate) fn host(&self, site: usize, keys: &mut Keys) {
        let own = self.sites.get(site).copied().flatten();
        match own {
            None if !self.outputs.is_empty() => keys.set("access_log", "false"),
            Some(index) if self.outputs.len() > 1 && index < 62 => {
                keys.set("access_log", format!("[\"log-{}\"]", index + 1));
            }
            _ => {}
        }
    }
}

/// The output of a directive `log`: its keys `format` and `file`.
fn output(context: &Context<'_>, log: &Directive) -> Keys {
    let (mut file, mut format) = ("stderr".to_owned(), "json");
    context.carried(log);
    if !log.args.is_empty() {
        context.different(log, "the name of the log is not in its lines");
    }
    for line in log.inner() {
        context.carried(line);
        match (line.name.as_str(), resolve(line.arg(0)).as_str()) {
            ("output", "file") => {
                file = context.path(line.arg(1));
                for own in line.inner() {
                    let advice =
                        "logrotate or a similar program rotates files; brisk opens them again on SIGUSR1";
                    context.note(own, Class::Difference(advice.to_owned()));
                }
            }
            ("output", name @ ("stdout" | "stderr")) => name.clone_into(&mut file),
            ("output", "discard") => format = "off",
            ("output", other) => {
                context.missing(
                    line,
                    format!("brisk has no output {other}"),
                    "write syslog or journal in [[access_log.output]]",
                );
            }
            ("format", "console" | "transform" | "formatted") => {
                format = "text";
                context.note_whole(
                    line,
                    &Class::Difference("brisk's lines have a form of their own".to_owned()),
                );
            }
            ("format", "json") => context.different(line, "the members have brisk's names"),
            ("format", other) => {
                let detail =
                    format!("{other}: the members have brisk's names, among them no headers of requests");
                context.note_whole(line, &Class::Difference(detail));
            }
            ("level", _) => context.different(line, "all requests have lines"),
            ("hostnames" | "no_hostname" | "sampling" | "include" | "exclude", _) => {
                context
                    .note_whole(line, &Class::Difference("the log has all requests of the host".to_owned()));
            }
            _ => {}
        }
    }
    let mut keys = Keys::of("format", toml::text(format));
    if format != "off" {
        keys.set("file", environment::text(&file));
    }
    keys
}

/// Notes about `log` in the global options, which is the log of the program.
pub(crate) fn note_global(context: &Context<'_>, options: &Options<'_>) {
    for log in options.blocks.iter().flat_map(|block| block.inner()).filter(|line| line.name == "log") {
        let class = Class::Difference(
            "the log of the program is on standard error, with the level of --log".to_owned(),
        );
        context.note_whole(log, &class);
    }
}
