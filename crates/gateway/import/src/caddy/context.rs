//! State of a translation: notes for the report, tables of the output, and the bound of the work.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use crate::caddy::environment;
use crate::caddy::order::Order;
use crate::directive::Directive;
use crate::report::{Class, Report};
use crate::table::Tables;
use crate::toml::Keys;

/// State of the translation of a Caddyfile, which all [`Site`](crate::caddy::address::Site)s share.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) report: &'a RefCell<Report>,
    /// Tables behind the hosts of a file: `[upstream.NAME]` and `[map.NAME]`.
    pub(crate) tables: RefCell<Tables>,
    pub(crate) order: Order,
    /// Whether proxies in front of Caddy name the address of the client: the option `trusted_proxies`.
    pub(crate) has_trusted: bool,
    pub(crate) invoked: BTreeMap<String, &'a Directive>,
    /// Files of the configuration, which clients do not get.
    files: BTreeSet<PathBuf>,
    folder: PathBuf,
    steps: Cell<usize>,
    users: RefCell<Vec<String>>,
}

impl<'a> Context<'a> {
    /// Steps of all sites together, which `is_spent` counts.
    const MOST: usize = 6_000_000;

    pub(crate) fn new(report: &'a RefCell<Report>, folder: &Path, order: Order) -> Self {
        Self {
            report,
            tables: RefCell::default(),
            order,
            has_trusted: false,
            invoked: BTreeMap::new(),
            files: BTreeSet::new(),
            folder: folder.to_owned(),
            steps: Cell::new(0),
            users: RefCell::default(),
        }
    }

    /// Spends `steps`. Whether more than `MOST` are used.
    pub(crate) fn is_spent(&self, steps: usize) -> bool {
        self.steps.set(self.steps.get().saturating_add(steps));
        self.steps.get() > Self::MOST
    }

    /// `path` as a value of TOML: `a.pem` of `/etc/caddy/Caddyfile` is `"/etc/caddy/a.pem"`.
    pub(crate) fn file(&self, name: &str) -> String {
        environment::text(&self.path(name))
    }

    /// A path of the input, from the folder of the main file. One that begins with `{$` stays as it is.
    pub(crate) fn path(&self, name: &str) -> String {
        // The value of the variable may be an absolute path, so no folder comes before it.
        if name.starts_with("{$") {
            return name.to_owned();
        }
        let path = self.folder.join(name.strip_prefix("./").unwrap_or(name));
        path.to_string_lossy().into_owned()
    }

    /// Notes a file of directives, which clients do not get.
    pub(crate) fn hide_file(&mut self, file: &Path) {
        self.files.insert(whole(file));
    }

    /// Notes a file that clients do not get, from the folder of the main file.
    pub(crate) fn hide(&mut self, name: &str) {
        self.files.insert(whole(&self.folder.join(environment::resolve(name))));
    }

    /// Paths at which a folder has files that clients do not get.
    pub(crate) fn hidden(&self, folder: &str) -> Vec<String> {
        self.is_spent(self.files.len() / 4);
        let folder = whole(Path::new(&environment::resolve(folder)));
        let below = self.files.iter().filter_map(|file| file.strip_prefix(&folder).ok());
        below.map(|below| format!("/{}", below.display())).collect()
    }

    /// Whether clients do not get the file for a path.
    pub(crate) fn is_hidden(&self, folder: &str, path: &str) -> bool {
        let folder = PathBuf::from(environment::resolve(folder));
        self.files.contains(&whole(&folder.join(path.trim_start_matches('/'))))
    }

    /// The path of a secret file of brisk, from the folder of the main file. brisk sends no file below a name with a dot.
    pub(crate) fn secret(&self, name: &str) -> String {
        self.path(&format!(".brisk/{name}"))
    }

    /// The name of a file with the passwords of a directive. Those of the same users are one file.
    pub(crate) fn users_file(&self, lines: &str) -> String {
        let mut users = self.users.borrow_mut();
        let index = users.iter().position(|own| own == lines).unwrap_or(users.len());
        if index == users.len() {
            users.push(lines.to_owned());
        }
        self.secret(&format!("users-{}", index + 1))
    }

    /// The name of a table of the `kind` `upstream` or `map` with these `keys`.
    pub(crate) fn named_table(&self, kind: &str, name: &str, keys: &Keys, source: &Directive) -> String {
        self.tables.borrow_mut().named(kind, name, keys, source.comment())
    }

    pub(crate) fn note(&self, directive: &Directive, class: Class) {
        self.report.borrow_mut().note(directive.id, class);
    }

    pub(crate) fn note_whole(&self, directive: &Directive, class: &Class) {
        self.report.borrow_mut().note_whole(directive, class);
    }

    pub(crate) fn carried(&self, directive: &Directive) {
        self.note(directive, Class::Carried);
    }

    pub(crate) fn carried_whole(&self, directive: &Directive) {
        self.note_whole(directive, &Class::Carried);
    }

    pub(crate) fn different(&self, directive: &Directive, detail: impl Into<String>) {
        self.note(directive, Class::Difference(detail.into()));
    }

    pub(crate) fn unneeded(&self, directive: &Directive, reason: &str) {
        self.note_whole(directive, &Class::NotNeeded(reason.to_owned()));
    }

    pub(crate) fn missing(&self, directive: &Directive, reason: impl Into<String>, action: &str) {
        self.note(directive, Class::NotCarried { reason: reason.into(), action: action.to_owned() });
    }
}

/// The path from the root of the file system without `.` and `..`.
fn whole(path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).components() {
        if part == Component::ParentDir {
            whole.pop();
        } else {
            whole.push(part);
        }
    }
    whole
}
