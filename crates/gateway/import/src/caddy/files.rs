//! Files: `file_server` and `try_files`.

use crate::caddy::context::Context;
use crate::caddy::environment::resolve;
use crate::caddy::flow::Absent;
use crate::caddy::flow::Flow;
use crate::caddy::path::is_plain;
use crate::caddy::plan::Action;
use crate::caddy::state::State;
use crate::caddy::step::Step;
use crate::caddy::world::{View, World};
use crate::directive::Directive;
use crate::report::Class;
use crate::toml::Keys;

/// `file_server`: the key `static`, and `listing = true` for `browse`.
pub(crate) fn serve(context: &Context<'_>, step: &Step<'_>, state: &State<'_>, world: &World) -> Flow {
    let directive = step.directive;
    let (mut root, mut keys) = (state.root.clone(), Keys::default());
    if step.args.iter().any(|arg| arg == "browse") {
        keys.set("listing", "true");
    }
    context.carried(directive);
    for line in directive.inner() {
        if line.name == "root" {
            root = Some(context.path(line.arg(0)));
            context.carried(line);
        } else if let Some(flow) = option(context, line, &mut keys) {
            return flow;
        }
    }
    let root = root.unwrap_or_else(|| context.path(""));
    if root.contains('{') && !crate::caddy::environment::has_variable(&root) || resolve(&root).contains('{') {
        context.missing(
            directive,
            "the folder depends on the request",
            "write a host or a route for each folder; until then it refuses requests",
        );
        return Flow::REFUSE;
    }
    if context.hidden(&root).iter().any(|path| !is_plain(path)) {
        context.missing(
            directive,
            "the folder has a file of the configuration whose name no route of brisk can hide",
            "serve another folder; until then it refuses requests",
        );
        return Flow::REFUSE;
    }
    if let View::Fixed(path) = &world.view
        && context.is_hidden(&root, path.split('?').next().unwrap_or_default())
    {
        return Flow::Finish(Action::Respond(Keys::of("status", "404")));
    }
    if world.has_file() == Some(false) && !matches!(world.view, View::Fixed(_)) {
        return Flow::Finish(Action::Respond(Keys::of("status", "404")));
    }
    Flow::Finish(Action::Static { root, view: world.view.clone(), keys, fallback: None })
}

/// A line in the block of `file_server`; the [`Flow`] if it decides, as `pass_thru` does.
fn option(context: &Context<'_>, line: &Directive, keys: &mut Keys) -> Option<Flow> {
    match line.name.as_str() {
        "browse" => {
            keys.set("listing", "true");
            if line.args.is_empty() && line.block.is_none() {
                context.carried(line);
            } else {
                context.note_whole(line, &Class::Difference("brisk's list has a page of its own".to_owned()));
            }
        }
        "precompressed" => {
            keys.set("precompressed", "true");
            context.carried(line);
        }
        "hide" => return hidden(context, line),
        "index" if line.arg(0) == "index.html" => context.carried(line),
        "index" => {
            context.missing(line, "the page of a folder is index.html in brisk", "name the file index.html");
        }
        "pass_thru" => {
            context.carried(line);
            return Some(Flow::Files(None));
        }
        "disable_canonical_uris" => context.different(line, "brisk redirects a folder to its slash"),
        "etag_file_extensions" => context.unneeded(line, "brisk forms ETag from the file"),
        "status" | "fs" => {
            let reason = format!("brisk has no counterpart of {}", line.name);
            context.missing(line, reason, "until then the route refuses requests");
            return Some(Flow::REFUSE);
        }
        _ => {}
    }
    None
}

/// `hide`. brisk never sends names that begin with `.`; other names need a route.
fn hidden(context: &Context<'_>, line: &Directive) -> Option<Flow> {
    let is_dotted = |name: &String| name.rsplit('/').next().is_some_and(|last| last.starts_with('.'));
    if line.args.iter().all(is_dotted) {
        context.carried(line);
        return None;
    }
    let action =
        "write a route with respond = { status = 404 } for the files; until then the route refuses requests";
    context.missing(line, "brisk hides names that begin with a dot only", action);
    Some(Flow::REFUSE)
}

/// `try_files`. brisk looks for `{path}` and then for the last of the others: `{path} /index.html` or `{path} =404`.
pub(crate) fn try_files(context: &Context<'_>, step: &Step<'_>, world: &World) -> Flow {
    let directive = step.directive;
    context.carried(directive);
    for line in directive.inner() {
        context.missing(line, "brisk takes the first file", "write the files in this order");
    }
    let args: Vec<String> = step.args.iter().map(|arg| resolve(arg)).collect();
    let is_own = |text: &str| {
        matches!(text, "{path}" | "{path}/" | "{path}/index.html" | "{http.request.uri.path}" | "{uri}")
    };
    let others: Vec<&str> = args.iter().map(String::as_str).filter(|text| !is_own(text)).collect();
    let fallback = match others.as_slice() {
        [] => return Flow::Continue,
        [one] => *one,
        [first @ .., last] => {
            let detail = format!(
                "brisk looks for the file of the path, then {last}: {} is not tried",
                first.join(" ")
            );
            if !last.starts_with(['/', '=']) && !last.contains(".html") && !last.contains(".php") {
                context.missing(
                    directive,
                    detail,
                    "write a route for each form of the path; until then it refuses requests",
                );
                return Flow::REFUSE;
            }
            context.missing(directive, detail, "name the files by their paths, or write redirects");
            *last
        }
    };
    if let Some(status) = fallback.strip_prefix('=') {
        return Flow::Files(Some(Absent::Responds(Action::Respond(Keys::of(
            "status",
            status.parse::<u16>().unwrap_or(404).to_string(),
        )))));
    }
    let query_end = ["?{query}", "?{http.request.uri.query}", "?{?query}"];
    let fallback = query_end.iter().find_map(|end| fallback.strip_suffix(end)).unwrap_or(fallback);
    if fallback.contains("{path}") && others.len() == 1 && !fallback.contains('?') {
        let detail = format!(
            "brisk looks for the file of the path only: {fallback} is not tried, and the response is 404"
        );
        context.missing(directive, detail, "name the files by their paths, or write redirects");
        return Flow::Continue;
    }
    let slash = if fallback.starts_with('/') { "" } else { "/" };
    let path = format!("{slash}{fallback}");
    if path.contains('{') && !path.contains(".php?") {
        context.missing(
            directive,
            "the last file depends on the request",
            "until then the route refuses requests",
        );
        return Flow::REFUSE;
    }
    // The requests are divided already, by an earlier `try_files` or the matcher `file`.
    if world.has_file().is_some() {
        return Flow::Continue;
    }
    Flow::Files(Some(Absent::Path(path)))
}
