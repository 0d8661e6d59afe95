//! State of a translation: named blocks of the input, tables of the output and notes for the report.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;

use crate::directive::Directive;
use crate::nginx::logs::Logs;
use crate::nginx::scope::Scope;
use crate::nginx::variables::{Use, Values, only_variable};
use crate::report::{Class, Report};
use crate::table::{self, Table};
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
    pub(crate) tables: RefCell<Vec<Table>>,
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
        table::named(&mut self.tables.borrow_mut(), kind, name, keys, &source.comment())
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

    /// The keys of the table for a `map`.
    pub(crate) fn map_keys(&self, map: &Directive) -> Result<Keys, String> {
        let values = Values::default();
        let mut keys = Keys::default();
        keys.set("from", toml::text(&self.template(map.arg(0), &values, Use::Value)?));
        let (mut exact, mut patterns) = (Keys::default(), Vec::new());
        let has_names = map.inner().iter().any(|line| line.name == "hostnames");
        for line in map.inner() {
            self.carried(line);
            if only_variable(line.arg(0)) != only_variable(map.arg(0))
                && !line.name.starts_with('~')
                && let Err(reason) = self.constant(line.arg(0))
            {
                self.missing(line, reason, "write a line for each value");
                continue;
            }
            match line.name.as_str() {
                "hostnames" | "volatile" | "include" => {}
                "default" if line.arg(0).starts_with('$') && line.arg(0) == map.arg(0) => {
                    patterns.push(("(.*)".to_owned(), "{1}".to_owned()));
                }
                "default" => keys.set("default", toml::text(&self.constant(line.arg(0))?)),
                key if key.starts_with('~') => {
                    let pattern = expression(key)?;
                    let mut groups = values.clone();
                    groups.groups = true;
                    patterns.push((pattern, self.template(line.arg(0), &groups, Use::Path)?));
                }
                key if has_names && (key.starts_with("*.") || key.starts_with('.')) => {
                    let domain =
                        crate::nginx::pattern::escaped(key.trim_start_matches('*').trim_start_matches('.'));
                    let start = if key.starts_with('*') { "." } else { "(^|.)" };
                    let pattern = format!("{}{domain}$", start.replace('.', r"\."));
                    patterns.push((pattern, self.constant(line.arg(0))?));
                }
                key if has_names && key.ends_with(".*") => {
                    let pattern =
                        format!("^{}[^.]+", crate::nginx::pattern::escaped(key.trim_end_matches('*')));
                    patterns.push((pattern, self.constant(line.arg(0))?));
                }
                key => exact.set(key.trim_start_matches('\\'), toml::text(&self.constant(line.arg(0))?)),
            }
        }
        let mut patterns: Vec<_> = patterns
            .into_iter()
            .map(|(regex, value)| {
                format!("{{ regex = {}, value = {} }}", toml::raw(&regex), toml::text(&value))
            })
            .collect();
        if !exact.is_empty() {
            let values: Vec<_> =
                exact.0.iter().map(|(key, value)| format!("{} = {value}", toml::raw(key))).collect();
            keys.set("values", format!("{{ {} }}", values.join(", ")));
        }
        if patterns.is_empty() && exact.is_empty() {
            // A table of brisk has an entry.
            let value = keys.get("default").unwrap_or("\"\"");
            patterns.push(format!("{{ regex = \"^\", value = {value} }}"));
        }
        if !patterns.is_empty() {
            keys.set("patterns", format!("[{}]", patterns.join(", ")));
        }
        Ok(keys)
    }

    fn constant(&self, text: &str) -> Result<String, String> {
        match only_variable(text) {
            _ if !text.contains('$') => Ok(text.to_owned()),
            Some(name) if self.maps.contains_key(name) => Err("a map refers to another map".to_owned()),
            _ => Err("a value of a map in brisk is a fixed text, or has groups of its expression".to_owned()),
        }
    }
}

/// The expression of a key `~...` or `~*...` of a map.
fn expression(key: &str) -> Result<String, String> {
    let text = key.trim_start_matches('~');
    match text.strip_prefix('*') {
        Some(text) => crate::nginx::pattern::translate(text, true),
        None => crate::nginx::pattern::translate(text, false),
    }
}
