//! Pages for errors: `handle_errors` with files, or with a fixed text.

use std::path::Path;

use crate::caddy::context::Context;
use crate::caddy::environment::{self, resolve};
use crate::caddy::site::Program;
use crate::directive::Directive;
use crate::nginx::condition::When;
use crate::nginx::location::Route;
use crate::report::Class;
use crate::toml::{self, Keys};

/// Names of the placeholder for the status, the short one first.
const STATUS: [&str; 2] = ["{err.status_code}", "{http.error.status_code}"];

/// The key `error_pages` of a host, and the `internal` routes of its pages.
pub(crate) fn pages(context: &Context<'_>, program: &Program<'_>, keys: &mut Keys, routes: &mut Vec<Route>) {
    let mut pages = Keys::default();
    for block in program.site.inner().iter().filter(|line| line.name == "handle_errors") {
        if let Err(reason) = block_pages(context, program, block, &mut pages, routes) {
            let action = "write error_pages in the host; until then clients get brisk's own pages".to_owned();
            context.note_whole(block, &Class::NotCarried { reason, action });
        }
    }
    if !pages.is_empty() {
        keys.set("error_pages", pages.inline());
    }
}

/// Statuses that a matcher of a block names, such as `expression {err.status_code} == 404`.
fn statuses(block: &Directive, name: &str) -> Option<Vec<String>> {
    let matcher = block.inner().iter().find(|line| line.name == name)?;
    let inner = matcher.inner().first();
    let text = inner.map_or_else(|| matcher.args.join(" "), Directive::text);
    let text = text.trim_start_matches("expression").trim().trim_matches('`').to_owned();
    let rest = STATUS.iter().find_map(|own| text.strip_prefix(own))?.trim();
    let list = rest.strip_prefix("==").map(|one| vec![one]).or_else(|| {
        Some(rest.strip_prefix("in")?.trim().strip_prefix('[')?.strip_suffix(']')?.split(',').collect())
    })?;
    let all: Vec<String> = list.into_iter().map(|status| status.trim().to_owned()).collect();
    all.iter().all(|status| is_status(status)).then_some(all)
}

fn is_status(text: &str) -> bool {
    text.parse::<u16>().is_ok_and(|status| (400..600).contains(&status))
}

fn block_pages(
    context: &Context<'_>,
    program: &Program<'_>,
    block: &Directive,
    pages: &mut Keys,
    routes: &mut Vec<Route>,
) -> Result<(), String> {
    let own: Vec<String> = if block.args.is_empty() {
        vec!["4xx".to_owned(), "5xx".to_owned()]
    } else {
        block.args.iter().map(|arg| resolve(arg)).collect()
    };
    if !own.iter().all(|status| is_status(status) || matches!(&**status, "4xx" | "5xx")) {
        return Err("a status is not from 400 to 599".to_owned());
    }
    let mut root = program.root.clone();
    let mut targets: Vec<(Vec<String>, String, &Directive)> = Vec::new();
    let (mut has_files, mut text) = (false, None);
    let wraps = |line: &&Directive| line.name == "handle" && line.args.is_empty();
    let inner = match block.inner() {
        [one] if wraps(&one) => one.inner(),
        all => all,
    };
    for line in inner {
        let matched = line.args.first().filter(|first| first.starts_with('@'));
        let codes = match matched {
            Some(name) => statuses(block, name)
                .ok_or("the pages depend on a condition that error_pages does not have")?,
            None => own.clone(),
        };
        let args: Vec<String> = line
            .args
            .iter()
            .filter(|arg| !arg.starts_with('@') && *arg != "*")
            .map(|arg| resolve(arg))
            .collect();
        match line.name.as_str() {
            "root" => root = args.first().map(|root| context.path(root)),
            "rewrite" => targets.push((codes, args.first().cloned().unwrap_or_default(), line)),
            "try_files" => targets.push((codes, args.last().cloned().unwrap_or_default(), line)),
            "file_server" => has_files = true,
            "respond" => text = Some((codes, args, line)),
            "import" => {}
            name if name.starts_with('@') => {}
            name => return Err(format!("pages of brisk are files or fixed texts, without {name}")),
        }
    }
    if let Some((codes, args, line)) = text {
        fixed(&codes, &args, line, pages, routes)?;
    } else if has_files {
        let root = root.ok_or("the folder of the pages is not stated")?;
        for (codes, target, _) in &targets {
            files(codes, target, &root, pages)?;
        }
    } else {
        return Err("the block has no file_server and no respond".to_owned());
    }
    context.carried_whole(block);
    Ok(())
}

/// Pages in files: `404 = "/srv/404.html"`. For a name with `{err.status_code}`, those that exist.
fn files(codes: &[String], target: &str, root: &str, pages: &mut Keys) -> Result<(), String> {
    let start = root.trim_end_matches('/');
    let slash = if target.starts_with('/') { "" } else { "/" };
    let path = format!("{start}{slash}{target}");
    if !STATUS.iter().any(|status| path.contains(status)) {
        if resolve(&path).contains('{') {
            return Err("the name of the page has placeholders".to_owned());
        }
        for code in codes {
            pages.set(code, environment::text(&path));
        }
        return Ok(());
    }
    let mut count = 0;
    for code in codes {
        let all: Vec<String> = match code.as_str() {
            "4xx" => (400..500).map(|code| code.to_string()).collect(),
            "5xx" => (500..600).map(|code| code.to_string()).collect(),
            own => vec![own.to_owned()],
        };
        for code in all {
            let file = STATUS.iter().fold(path.clone(), |path, status| path.replace(status, &code));
            if Path::new(&file).is_file() {
                pages.set(&code, environment::text(&file));
                count += 1;
            }
        }
    }
    if count == 0 { Err("no page for a status exists on this machine".to_owned()) } else { Ok(()) }
}

/// A page with a fixed text, which is the response of a route with `internal = true`, such as `/.error/404`.
fn fixed(
    codes: &[String],
    args: &[String],
    line: &Directive,
    pages: &mut Keys,
    routes: &mut Vec<Route>,
) -> Result<(), String> {
    let body = args.first().cloned().unwrap_or_default();
    let status = args.get(1).filter(|status| is_status(status) || status.as_str() == "200").cloned();
    for code in codes {
        let own =
            STATUS.iter().fold(
                body.clone(),
                |body, status| if is_status(code) { body.replace(status, code) } else { body },
            );
        if crate::caddy::placeholders::has_any(&own) {
            return Err("the text has the status or other placeholders".to_owned());
        }
        let path = format!("/.error/{code}");
        let mut page = Keys::of("route", toml::text(&path));
        if let Some(status) = &status {
            page.set("status", status.clone());
        }
        pages.set(code, page.inline());
        let mut keys = Keys::of("internal", "true");
        keys.set("respond", Keys::of("body", toml::raw(&own)).inline());
        // Two blocks may name the same status; brisk has one route for a path.
        if !routes.iter().any(|route| route.path == path) {
            routes.push(Route { path, exact: true, when: When::default(), keys, comment: line.comment() });
        }
    }
    Ok(())
}
