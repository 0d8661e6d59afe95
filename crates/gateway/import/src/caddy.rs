//! Translation of a Caddyfile.
//!
//! The translation is in four steps. `lexer`, `grammar` and `include` read directives, `program` sorts them as Caddy does, `run` follows
//! the program of a site for the requests of each route, and `output` writes TOML.

mod address;
mod auth;
mod context;
mod environment;
mod errors;
mod files;
mod flow;
mod grammar;
mod handlers;
mod headers;
mod health;
mod host_name;
pub(crate) mod include;
mod lexer;
mod logs;
mod matcher;
mod options;
mod order;
mod output;
mod path;
mod php;
mod placeholders;
mod plan;
mod program;
mod proxy;
mod respond;
mod rewrite;
mod run;
mod site;
mod state;
mod step;
mod tls;
mod transport;
mod units;
mod world;

use std::cell::RefCell;
use std::path::Path;

use crate::directive::Directive;
use crate::report::{self, Class, Report};
use crate::{ImportError, Imported};
use address::{Site, divide};
use context::Context;
use options::Options;
use order::Order;

/// Translates the Caddyfile in `path`, with the files of each `import`. Reads files only.
///
/// # Errors
///
/// [`ImportError::Syntax`] with file and line, `Unreadable`, `TooLarge`, and `NoSite` if there is no site.
pub fn caddy(path: &Path) -> Result<Imported, ImportError> {
    let (all, files) = include::Files::read(path)?;
    let imported = translate(&all, &files, path);
    if imported.files.is_empty() { Err(ImportError::NoSite { file: path.to_owned() }) } else { Ok(imported) }
}

/// Translates directives. `files` of [`Imported`] is empty if there is no site.
pub(crate) fn translate(all: &[Directive], files: &include::Files, path: &Path) -> Imported {
    let report = RefCell::new(Report::new(files.count(), all));
    let options = Options::of(all);
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut context = Context::new(&report, folder, Order::of(all));
    gather(all, &mut context);
    context.has_trusted = options.has_trusted();
    for block in all.iter().filter(|block| block.name.starts_with("&(")) {
        context.invoked.insert(block.name.trim_matches(['&', '(', ')']).to_owned(), block);
    }
    let is_site = |block: &&Directive| !block.name.starts_with(['(', '&', '@']) && block.name != "import";
    let sites: Vec<_> = all.iter().filter(is_site).map(|block| Site::new(block, &options)).collect();
    for site in &sites {
        if !site.unread.is_empty() {
            let reason = format!(
                "{}: names of brisk are exact or begin with *., without a path",
                site.unread.join(", ")
            );
            let class = Class::NotCarried { reason, action: "list the names".to_owned() };
            if site.addresses.is_empty() {
                context.note_whole(site.directive, &class);
            } else {
                context.note(site.directive, class);
            }
        }
    }
    let groups = divide(&sites, &options);
    let count = groups.len();
    hide_results(&mut context, count);
    let mut texts: Vec<String> = groups
        .iter()
        .enumerate()
        .map(|(index, group)| output::file(&context, &options, group, index, count))
        .collect();
    options::note(&context, &options);
    logs::note_global(&context, &options);
    rest(&context, all, files);
    report::warn("Caddy", &report.borrow(), &mut texts);
    drop(context);
    Imported { files: texts, report: report.into_inner() }
}

/// Hides the files of directives and private keys.
fn gather(directives: &[Directive], context: &mut Context<'_>) {
    let mut last = None;
    for directive in directives {
        let file = &directive.place.file;
        if last != Some(file) {
            context.hide_file(file);
            last = Some(file);
        }
        if matches!(&*directive.name, "tls" | "tls_client_auth") && directive.args.len() > 1 {
            context.hide(directive.arg(1));
        }
        gather(directive.inner(), context);
    }
}

/// Hides the result under the names of the documentation: it has hashes of passwords.
fn hide_results(context: &mut Context<'_>, count: usize) {
    for name in ["brisk.toml", "report.md"] {
        context.hide(name);
    }
    for number in 2..=count.min(100) {
        context.hide(&format!("brisk-{number}.toml"));
    }
}

/// Classes of directives that sites do not have: `import`, snippets such as `(a)`, and named routes such as `&(a)`.
fn rest(context: &Context<'_>, all: &[Directive], files: &include::Files) {
    for (id, cause) in &files.missing {
        let action = "import on the machine that has the file".to_owned();
        context.report.borrow_mut().note(*id, Class::NotCarried { reason: cause.clone(), action });
    }
    for block in all {
        let name = block.name.trim_matches(['&', '(', ')']).to_owned();
        if block.name == grammar::GLOBAL {
            continue;
        }
        if block.name.starts_with('(') {
            if files.used.contains(&name) {
                context.carried(block);
            } else {
                context.unneeded(block, "no site imports the snippet");
            }
        } else if block.name.starts_with("&(") {
            context.carried(block);
        }
    }
    noted(context, all);
}

/// Gives imports and directives inside of carried ones, such as the arguments of a snippet, a class.
fn noted(context: &Context<'_>, directives: &[Directive]) {
    for directive in directives {
        let is_noted = context.report.borrow().is_noted(directive.id);
        if !is_noted && (directive.name == "import" || directive.name.starts_with("{block")) {
            context.carried(directive);
        }
        if directive.name == "import" {
            let unused = Class::NotNeeded("the snippet does not use the block".to_owned());
            for inner in directive.inner() {
                if !context.report.borrow().is_noted(inner.id) {
                    context.note_whole(inner, &unused);
                }
            }
        }
        noted(context, directive.inner());
    }
}
