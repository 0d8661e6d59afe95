//! State of a translation: named blocks of the input, tables of the output and notes for the report.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;

use crate::directive::Directive;
use crate::nginx::log_outputs::Logs;
use crate::nginx::scope::Scope;
use crate::report::{Class, Report};
use crate::table::{Table, Tables};
use crate::toml::{self, Keys};

/// State of the translation of the servers of one file.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) report: &'a RefCell<Report>,
    pub(crate) http: Scope<'a>,
    pub(crate) maps: BTreeMap<String, &'a Directive>,
    pub(crate) geos: BTreeMap<String, &'a Directive>,
    pub(crate) splits: BTreeMap<String, &'a Directive>,
    pub(crate) groups: BTreeMap<String, &'a Directive>,
    pub(crate) zones: BTreeMap<String, &'a Directive>,
    /// Tables behind the hosts: upstreams, limits and maps.
    pub(crate) tables: RefCell<Tables>,
    /// Size of bodies that `[server]` sets.
    pub(crate) body_size: Cell<Option<u64>>,
    /// Variables whose tables are being written, which may refer to each other.
    pub(crate) open: RefCell<Vec<String>>,
    /// Outputs of the access log.
    pub(crate) logs: RefCell<Logs>,
    /// Folder at which relative paths start.
    folder: &'a Path,
}

impl<'a> Context<'a> {
    /// The state for the directives of `http`.
    pub(crate) fn new(http: &'a [Directive], report: &'a RefCell<Report>, folder: &'a Path) -> Self {
        let named = |kind: &str, variable: &dyn Fn(&'a Directive) -> String| {
            let found = http.iter().filter(|directive| directive.name == kind);
            found.map(|directive| (variable(directive), directive)).collect::<BTreeMap<_, _>>()
        };
        let last = |directive: &'a Directive| {
            directive.args.last().map_or("", |name| name.trim_start_matches('$')).to_owned()
        };
        let zone = |directive: &'a Directive| {
            directive.parameter("zone").map_or("", |zone| zone.split(':').next().unwrap_or("")).to_owned()
        };
        // In nginx, zones of both kinds share their names.
        let mut zones = named("limit_req_zone", &zone);
        zones.extend(named("limit_conn_zone", &zone));
        Self {
            report,
            http: Scope::default().child(http),
            maps: named("map", &last),
            geos: named("geo", &last),
            splits: named("split_clients", &last),
            groups: named("upstream", &|directive| directive.arg(0).to_owned()),
            zones,
            tables: RefCell::default(),
            body_size: Cell::new(None),
            open: RefCell::default(),
            logs: RefCell::default(),
            folder,
        }
    }

    /// The name of a file in TOML, absolute if the folder is.
    pub(crate) fn file(&self, name: &str) -> String {
        toml::text(&self.folder.join(name).to_string_lossy())
    }

    /// Whether the name is that of a file, or of a missing file with an extension in a folder that exists.
    pub(crate) fn is_file(&self, name: &str) -> bool {
        let path = self.folder.join(name);
        // nginx starts without the file of a location, and `brisk check` accepts a file with an extension
        // that is written later.
        let is_missing = !path.exists() && path.parent().is_some_and(Path::is_dir);
        path.is_file() || (is_missing && path.extension().is_some())
    }

    /// Whether the file exists on this machine.
    pub(crate) fn has_file(&self, path: &str) -> bool {
        self.folder.join(path).is_file()
    }

    /// Whether there is a file or folder with this name on this machine.
    pub(crate) fn has_file_or_folder(&self, path: &str) -> bool {
        self.folder.join(path).exists()
    }

    /// Whether `path` below `root` is a folder, as far as `root` exists on this machine.
    pub(crate) fn has_folder(&self, root: &str, path: &str) -> bool {
        let root = self.folder.join(root);
        !root.is_dir() || root.join(path.trim_start_matches('/')).is_dir()
    }

    /// Adds a table to the output.
    pub(crate) fn table(&self, header: String, keys: Keys, source: &Directive) {
        let comment = source.comment();
        self.tables.borrow_mut().push(Table { header, keys, comment });
    }

    /// The name of the table of this kind (`limit`, `upstream`) with these keys, which is written if there is none.
    pub(crate) fn named_table(&self, kind: &str, name: &str, keys: &Keys, source: &Directive) -> String {
        self.tables.borrow_mut().named(kind, name, keys, source.comment())
    }

    /// Notes that a directive, without its block, is carried over.
    pub(crate) fn carried(&self, directive: &Directive) {
        self.report.borrow_mut().note(directive.id, Class::Carried);
    }

    /// Notes that a directive with all of its block is carried over.
    pub(crate) fn carried_whole(&self, directive: &Directive) {
        self.note_whole(directive, &Class::Carried);
    }

    /// Notes that a directive is carried with a difference.
    pub(crate) fn different(&self, directive: &Directive, detail: impl Into<String>) {
        self.report.borrow_mut().note(directive.id, Class::Difference(detail.into()));
    }

    /// Notes that a directive needs no counterpart.
    pub(crate) fn unneeded(&self, directive: &Directive, reason: &str) {
        self.report.borrow_mut().note(directive.id, Class::NotNeeded(reason.to_owned()));
    }

    /// Notes that requests which a directive refuses are served.
    pub(crate) fn open(&self, directive: &Directive) {
        self.report.borrow_mut().note_open(directive.id);
    }

    /// Notes that a directive with all of its block is not carried.
    pub(crate) fn missing(&self, directive: &Directive, reason: impl Into<String>, action: &str) {
        let class = Class::NotCarried { reason: reason.into(), action: action.to_owned() };
        self.note_whole(directive, &class);
    }

    /// Notes a class for a directive and all of its block.
    pub(crate) fn note_whole(&self, directive: &Directive, class: &Class) {
        self.report.borrow_mut().note_whole(directive, class);
    }
}
