//! Translation of HAProxy: `haproxy` reads files, and `translate` forms the TOML of each process.
//!
//! The translation is in four steps. `grammar` reads lines, `acl` and `test` read conditions, `flow` forms routes that keep the
//! order of HAProxy's rules, and `unit` and `settings` write TOML for each process.

mod acl;
mod bind;
mod certificates;
mod checks;
mod context;
mod counter;
mod directives;
mod effect;
pub(crate) mod files;
mod flow;
mod formula;
mod grammar;
mod group;
mod host_name;
mod limits;
mod logs;
mod map;
mod pages;
mod path_test;
mod proxy;
mod redirect;
mod respond;
mod rule;
mod sample;
mod server;
mod settings;
mod site;
mod state;
mod switching;
mod tcp;
mod template;
mod test;
mod unit;
mod values;
mod when;

use std::path::Path;

use crate::directive::Directive;
use crate::report::{self, Class, Report};
use crate::{ImportError, Imported};

use context::Context;
use files::Files;
use proxy::Proxies;

/// Translates the configuration of HAProxy in `path`, a file or a folder of files, with the lists and maps that it names. Reads
/// files only.
///
/// # Errors
///
/// Syntax errors with file and line, and unreadable files.
pub fn haproxy(path: &Path) -> Result<Imported, ImportError> {
    let (all, count, files) = Files::read(path)?;
    let imported = translate(&all, count, files, path)?;
    if imported.files.is_empty() {
        Err(ImportError::NoFrontend { file: path.to_owned() })
    } else {
        Ok(imported)
    }
}

/// Translates sections. `Imported::files` is empty if there is no `frontend` or `listen` with an address.
pub(crate) fn translate(
    all: &[Directive],
    count: usize,
    files: Files,
    path: &Path,
) -> Result<Imported, ImportError> {
    let report = Report::new(count, &all.iter().map(shown).collect::<Vec<_>>());
    let proxies = Proxies::new(all).ok_or_else(|| ImportError::TooLarge { file: path.to_owned() })?;
    let context = Context::new(all, proxies, report, files);
    let units = context.units();
    let count = units.len();
    let mut files: Vec<String> =
        units.iter().enumerate().map(|(index, unit)| context.text(unit, index + 1, count)).collect();
    classify(all, &context);
    let report = context.report.into_inner();
    report::warn("HAProxy", &report, &mut files);
    Ok(Imported { files, report })
}

/// A section as the report shows it: `***` in place of the passwords of `user` and of `stats auth`.
fn shown(section: &Directive) -> Directive {
    let mut shown = section.clone();
    for line in shown.block.iter_mut().flatten() {
        for arg in &mut line.args {
            *arg = grammar::with_variables(arg);
        }
        let secret = match line.name.as_str() {
            "user" => line.args.iter().position(|arg| arg.ends_with("password")).map(|at| at + 1),
            "stats" if line.arg(0) == "auth" => Some(1),
            _ => None,
        };
        if let Some(arg) = secret.and_then(|at| line.args.get_mut(at)) {
            "***".clone_into(arg);
        }
    }
    shown
}

/// Gives lines that the translation has not touched the class of `class_of`, and sections the class that their name has.
fn classify(sections: &[Directive], context: &Context<'_>) {
    let is_noted = |line: &Directive| context.report.borrow().is_noted(line.id);
    for section in sections {
        for line in section.inner() {
            let class = directives::class_of(section, line);
            if let Some(class) = class.filter(|_| !is_noted(line)) {
                context.report.borrow_mut().note(line.id, class);
            }
        }
        if is_noted(section) {
            continue;
        }
        let class = match section.name.as_str() {
            "global" | "defaults" => Class::Carried,
            "frontend" | "backend" | "listen" | "userlist" | "resolvers" => {
                Class::NotNeeded("no route of the result uses it".to_owned())
            }
            _ => Class::NotCarried {
                reason: "brisk has no such section".to_owned(),
                action: "the lines of the section name the counterparts".to_owned(),
            },
        };
        context.report.borrow_mut().note(section.id, class);
    }
}
