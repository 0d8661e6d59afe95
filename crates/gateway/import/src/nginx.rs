//! Translation of nginx.
//!
//! The translation is in four steps. `grammar` and `include` read directives, `scope` applies nginx's inheritance, `site`
//! and `program` form routes that keep nginx's order of locations and rewrites, and `output` writes TOML.

pub(crate) mod access;
mod branch;
mod cgi;
mod changed;
mod closing;
pub(crate) mod condition;
mod content;
mod context;
pub(crate) mod dialect;
mod directives;
mod dns;
mod error_pages;
mod file_settings;
mod files;
mod flow;
mod formed;
mod geo;
pub(crate) mod grammar;
mod headers;
mod host;
pub(crate) mod include;
mod limits;
mod links;
mod listen;
pub(crate) mod location;
mod log_outputs;
mod logs;
mod maps;
mod method_list;
mod method_map;
mod methods;
mod output;
pub(crate) mod pattern;
mod prefixes;
mod program;
mod proxy;
mod referers;
mod replaced;
mod returning;
mod scheme;
mod scope;
mod service;
mod settings;
mod site;
mod sources;
mod stream;
pub(crate) mod trial;
mod upstream;
mod variables;

use std::cell::RefCell;
use std::path::Path;

use listen::Server;

use crate::directive::Directive;
use crate::report::{self, Class, Report};
use crate::{ImportError, Imported};

/// Translates the configuration of nginx in `path`, with the files that it includes. Reads files only.
///
/// # Errors
///
/// Syntax errors with file and line, and unreadable files.
pub fn nginx(path: &Path) -> Result<Imported, ImportError> {
    let (all, files) = include::Files::read(path)?;
    let imported = translate(&all, &files, path);
    if imported.files.is_empty() { Err(ImportError::Empty { file: path.to_owned() }) } else { Ok(imported) }
}

/// Translates directives. There are no files of brisk if there is no server.
pub(crate) fn translate(all: &[Directive], files: &include::Files, path: &Path) -> Imported {
    let report = RefCell::new(Report::new(files.count(), all));
    for (id, cause) in &files.missing {
        let class = if include::is_standard(cause) {
            Class::NotNeeded("brisk sends these variables to application servers".to_owned())
        } else {
            Class::NotCarried {
                reason: cause.clone(),
                action: "import on the machine that has the file".to_owned(),
            }
        };
        report.borrow_mut().note(*id, class);
    }
    note_unread(all, &report);
    // A file of `conf.d` has the content of `http` without its block.
    let mut http: Vec<Directive> = Vec::new();
    for directive in all {
        if directive.name == "http" {
            http.extend(directive.inner().iter().cloned());
        } else {
            http.push(directive.clone());
        }
    }
    let servers = http.iter().filter(|directive| directive.name == "server").map(Server::new);
    let (mut servers, other): (Vec<_>, Vec<_>) = servers.partition(Server::has_address);
    listen::share_tls(&mut servers);
    for server in other {
        let class = Class::NotCarried {
            reason: "the server has no IP address, and brisk listens on IP addresses".to_owned(),
            action: "write an address in https or http of [server]".to_owned(),
        };
        report.borrow_mut().note_whole(server.directive, &class);
    }
    let mut groups = listen::divide(servers);
    if groups.is_empty() && http.iter().any(|directive| directive.name == "stream") {
        groups.push(Vec::new());
    }
    let count = groups.len();
    let folder = path.parent().unwrap_or(Path::new(""));
    let texts = groups
        .iter()
        .enumerate()
        .map(|(index, servers)| output::file(&http, &report, servers, folder, index, count));
    let mut files: Vec<String> = texts.collect();
    classify(all, &report);
    report::warn("nginx", &report.borrow(), &mut files);
    Imported { files, report: report.into_inner() }
}

/// Notes files inside of a server or a location that were not read: they may have restrictions.
fn note_unread(directives: &[Directive], report: &RefCell<Report>) {
    for directive in directives {
        if matches!(&*directive.name, "server" | "location" | "if" | "limit_except") {
            for include in directive.inner().iter().filter(|line| line.name == "include") {
                if report.borrow().is_missing(include.id) {
                    report.borrow_mut().note_open(include.id);
                }
            }
        }
        note_unread(directive.inner(), report);
    }
}

/// Gives directives that the translation has not touched the class that their name has.
fn classify(directives: &[Directive], report: &RefCell<Report>) {
    for directive in directives {
        let is_noted = report.borrow().is_noted(directive.id);
        let is_beside = directive.name == "try_files"
            && directives.iter().any(|other| matches!(&*other.name, "proxy_pass" | "grpc_pass"));
        let class =
            directives::exception(directive, is_beside).or_else(|| directives::class_of(&directive.name));
        if !is_noted && let Some(class) = class {
            let is_whole =
                !matches!(&*directive.name, "http" | "server" | "location" | "if" | "limit_except");
            if is_whole {
                report.borrow_mut().note_whole(directive, &class);
            } else {
                report.borrow_mut().note(directive.id, class);
            }
        }
        classify(directive.inner(), report);
    }
}
