//! State of a translation: the report, tables of the output, and the proxies of the input.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use crate::directive::Directive;
use crate::haproxy::files::Files;
use crate::haproxy::proxy::{Proxies, Proxy};
use crate::report::{Class, Report};
use crate::table::{Table, Tables};
use crate::toml::{self, Keys};

/// Comparisons that `step` counts at most, so that many hosts with many rules end in a bounded time.
const MOST_STEPS: usize = 30_000_000;

/// Lines `log` of `global` that are read.
const MOST_LOGS: usize = 60;

/// Bytes of all routes that `room` counts at most.
const LARGEST: usize = 24 << 20;

/// Bytes of the lists of all tests at most.
const LARGEST_LISTS: usize = 128 << 20;

/// A number and its period in milliseconds.
type Limit = (u64, u64);

/// Limits of the connections of a client: their number, and their number in a period.
type Limits = (Option<Limit>, Option<Limit>);

/// The translation of one configuration.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) report: RefCell<Report>,
    pub(crate) files: RefCell<Files>,
    pub(crate) proxies: Proxies<'a>,
    /// Last lines of `global` by their names, such as `crt-base`.
    globals: BTreeMap<&'a str, &'a Directive>,
    /// Lines `log` of `global`.
    pub(crate) global_logs: Vec<&'a Directive>,
    named_sections: BTreeMap<(&'a str, &'a str), &'a Directive>,
    /// Numbers of the proxies with a `stick-table`, by their names.
    stick_tables: BTreeMap<&'a str, usize>,
    /// Tables with names, by headers such as `[upstream.app]`.
    tables: RefCell<Tables>,
    /// Headers of the tables that the current file uses, in their order.
    used: RefCell<Vec<String>>,
    seen: RefCell<BTreeSet<String>>,
    /// Results of `group`, by the number of the proxy and `tcp`.
    pub(crate) groups: RefCell<BTreeMap<(usize, bool), Result<String, String>>>,
    /// Limits of the connections of each client by frontends, for `[server]`.
    pub(crate) connections: RefCell<BTreeMap<&'a str, Limits>>,
    /// Lists of users with their groups by the names of their files.
    pub(crate) users: RefCell<BTreeMap<String, Vec<String>>>,
    steps: Cell<usize>,
    size: Cell<usize>,
    /// Bytes of lists of patterns.
    lists: Cell<usize>,
}

impl<'a> Context<'a> {
    /// The state before a translation.
    pub(crate) fn new(sections: &'a [Directive], proxies: Proxies<'a>, report: Report, files: Files) -> Self {
        let globals =
            || sections.iter().filter(|section| section.name == "global").flat_map(Directive::inner);
        let first = |section: &'a Directive| section.args.first().map_or("", String::as_str);
        // Later entries replace earlier ones, so with `rev` the first proxy of a name remains.
        let with_tables = proxies.all.iter().enumerate().rev();
        let with_tables = with_tables.filter(|(_, proxy)| proxy.one("stick-table", "").is_some());
        let stick_tables = with_tables.map(|(index, proxy)| (proxy.name(), index)).collect();
        Self {
            report: RefCell::new(report),
            files: RefCell::new(files),
            globals: globals().map(|line| (line.name.as_str(), line)).collect(),
            global_logs: globals().filter(|line| line.name == "log").take(MOST_LOGS).collect(),
            named_sections: sections
                .iter()
                .rev()
                .map(|section| ((section.name.as_str(), first(section)), section))
                .collect(),
            stick_tables,
            proxies,
            tables: RefCell::default(),
            used: RefCell::default(),
            seen: RefCell::default(),
            groups: RefCell::default(),
            connections: RefCell::default(),
            users: RefCell::default(),
            steps: Cell::new(0),
            size: Cell::new(0),
            lists: Cell::new(0),
        }
    }

    /// Notes that a line is carried over: `Class::Carried`.
    pub(crate) fn carried(&self, line: &Directive) {
        self.report.borrow_mut().note(line.id, Class::Carried);
    }

    /// Notes that a line is carried with a difference: `Class::Difference`.
    pub(crate) fn different(&self, line: &Directive, detail: impl Into<String>) {
        self.report.borrow_mut().note(line.id, Class::Difference(detail.into()));
    }

    /// Notes that a line needs no counterpart: `Class::NotNeeded`.
    pub(crate) fn unneeded(&self, line: &Directive, reason: &str) {
        self.report.borrow_mut().note(line.id, Class::NotNeeded(reason.to_owned()));
    }

    /// Notes that a line is not carried: `Class::NotCarried` with an `action` for the operator.
    pub(crate) fn missing(&self, line: &Directive, reason: impl Into<String>, action: &str) {
        let class = Class::NotCarried { reason: reason.into(), action: action.to_owned() };
        self.report.borrow_mut().note(line.id, class);
    }

    /// Notes that requests which a line refuses are served, for the warning of `translate`.
    pub(crate) fn open(&self, line: &Directive) {
        self.report.borrow_mut().note_open(line.id);
    }

    /// Notes the class of a section and of all its lines.
    pub(crate) fn whole(&self, section: &Directive, class: &Class) {
        self.report.borrow_mut().note_whole(section, class);
    }

    /// The name of the table of this `kind` with these `keys`, which is added if there is none. A second `app` is `app-2`.
    pub(crate) fn named(&self, kind: &str, name: &str, keys: &Keys, source: &Directive) -> String {
        let name = self.tables.borrow_mut().named(kind, name, keys, source.comment());
        self.using(kind, &name);
        name
    }

    /// Notes that the current file uses the table `[kind.name]`.
    pub(crate) fn using(&self, kind: &str, name: &str) {
        let header = format!("[{kind}.{name}]");
        if self.seen.borrow_mut().insert(header.clone()) {
            self.used.borrow_mut().push(header);
        }
    }

    /// Headers of the tables that were used since the last call.
    pub(crate) fn take_used(&self) -> Vec<String> {
        self.seen.borrow_mut().clear();
        self.used.take()
    }

    /// The table with this header.
    pub(crate) fn table(&self, header: &str) -> Option<Table> {
        self.tables.borrow().get(header).cloned()
    }

    /// Counts comparisons. Whether some of `MOST_STEPS` are left, and room for routes.
    pub(crate) fn step(&self, count: usize) -> bool {
        self.steps.set(self.steps.get().saturating_add(count));
        self.steps.get() <= MOST_STEPS && self.size.get() <= LARGEST
    }

    /// Counts the bytes of a copy of a list. Whether there is room for it.
    pub(crate) fn copied(&self, bytes: usize) -> bool {
        self.lists.set(self.lists.get().saturating_add(bytes));
        self.lists.get() <= LARGEST_LISTS
    }

    /// Counts the bytes of a route. Whether there is room for it.
    pub(crate) fn room(&self, bytes: usize) -> bool {
        self.size.set(self.size.get().saturating_add(bytes));
        self.size.get() <= LARGEST
    }

    /// The name of a file in TOML, absolute if the folder is: `"/etc/haproxy/a.pem"` for `a.pem` in `/etc/haproxy`.
    pub(crate) fn file(&self, name: &str) -> String {
        toml::text(&self.files.borrow().path(name).to_string_lossy())
    }

    /// The last line of `global` with this name.
    pub(crate) fn global(&self, name: &str) -> Option<&'a Directive> {
        self.globals.get(name).copied()
    }

    /// The first section of this `kind` with this name, such as `userlist admins`.
    pub(crate) fn section(&self, kind: &str, name: &str) -> Option<&'a Directive> {
        self.named_sections.get(&(kind, name)).copied()
    }

    /// The proxy with this name that has a `stick-table`.
    pub(crate) fn table_of(&self, name: &str) -> Option<&Proxy<'a>> {
        self.stick_tables.get(name).map(|index| &self.proxies.all[*index])
    }
}

/// A time of HAProxy (`30s`, `5000`, `1m`) in milliseconds.
pub(crate) fn milliseconds(text: &str) -> Option<u64> {
    if let Some(micro) = text.strip_suffix("us") {
        // Rounded up, so that a time below a millisecond is not 0.
        return micro.parse::<u64>().ok().map(|micro| micro.div_ceil(1000));
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    toml::milliseconds(text)
}

#[cfg(test)]
mod tests {
    use super::milliseconds;

    #[test]
    fn times_without_a_unit_are_milliseconds() {
        for (text, expected) in [
            ("5000", Some(5000)),
            ("5s", Some(5000)),
            ("1m", Some(60_000)),
            ("1500us", Some(2)),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(milliseconds(text), expected, "{text}");
        }
    }
}
