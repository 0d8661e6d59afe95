//! Changes of the path: `rewrite` and `uri`.

use crate::caddy::context::Context;
use crate::caddy::environment::resolve;
use crate::caddy::flow::Flow;
use crate::caddy::placeholders::split;
use crate::caddy::step::Step;
use crate::caddy::world::{View, World};
use crate::nginx::pattern;

const REFUSES: &str = "write rewrite_path in the route; until then it refuses requests";

/// `rewrite`, `uri` and `method`, which change the [`View`] of `world`, or refuse requests.
pub(crate) fn apply(context: &Context<'_>, step: &Step<'_>, world: &mut World) -> Flow {
    let directive = step.directive;
    let args: Vec<String> = step.args.iter().map(|arg| resolve(arg)).collect();
    let arg = |index: usize| args.get(index).map_or("", String::as_str);
    let view = match directive.name.as_str() {
        "rewrite" => rewritten(arg(0), world),
        "uri" => match arg(0) {
            "strip_prefix" => stripped(arg(1), world),
            "strip_suffix" => pattern_of(world, &format!("^(.+){}$", regex::escape(arg(1))), "{1}"),
            "replace" if !arg(1).is_empty() => pattern_of(
                world,
                &format!("^(.*?){}(.*)$", regex::escape(arg(1))),
                &format!("{{1}}{}{{2}}", arg(2)),
            )
            .inspect(|_| {
                context.different(directive, "brisk replaces the first occurrence, and only in the path");
            }),
            "path_regexp" => Err("brisk replaces the whole path by one expression".to_owned()),
            "query" => {
                context.missing(
                    directive,
                    "brisk does not change parameters of the query",
                    "let the application ignore them",
                );
                world.change_query();
                return Flow::Continue;
            }
            other => Err(format!("brisk has no counterpart of uri {other}")),
        },
        _ => Err("brisk does not change the method of a request".to_owned()),
    };
    match view {
        Ok(view) => {
            context.carried(directive);
            world.view = view;
            Flow::Continue
        }
        Err(reason) => {
            context.missing(directive, reason, REFUSES);
            Flow::REFUSE
        }
    }
}

fn pattern_of(world: &World, pattern: &str, to: &str) -> Result<View, String> {
    if !world.view.is_original() {
        return Err("brisk changes the path of a request once".to_owned());
    }
    pattern::translate(pattern, false)?;
    Ok(View::Pattern { pattern: pattern.to_owned(), to: to.to_owned() })
}

fn stripped(prefix: &str, world: &World) -> Result<View, String> {
    let prefix = prefix.trim_end_matches('/');
    let View::Moved { strip, add } = &world.view else { return Err("the path is changed before".to_owned()) };
    if prefix.is_empty() {
        return Ok(world.view.clone());
    }
    // The prefix is in the text that an earlier `rewrite` has put there.
    if let Some(rest) = add.strip_prefix(prefix) {
        return Ok(View::Moved { strip: strip.clone(), add: rest.to_owned() });
    }
    if !add.is_empty() {
        return Ok(world.view.clone());
    }
    let all = format!("{strip}{prefix}");
    let is_below = world.place.path == all || world.place.path.starts_with(&format!("{all}/"));
    // Paths with the prefix have a place of their own.
    Ok(if is_below { View::Moved { strip: all, add: String::new() } } else { world.view.clone() })
}

/// The [`View`] by the target of a `rewrite`: `/a{uri}` is `Moved`, `/a` is `Fixed`, and `/a?b={path}` is a `Pattern`.
pub(crate) fn rewritten(target: &str, world: &World) -> Result<View, String> {
    if target.is_empty() || !(target.starts_with('/') || target.starts_with('{') || !target.starts_with('?'))
    {
        return Err("brisk rewrites paths, not only the query".to_owned());
    }
    let whole = [
        "{uri}",
        "{http.request.uri}",
        "{path}?{query}",
        "{path}{?query}",
        "{path}",
        "{http.request.uri.path}",
    ];
    if let Some(add) = whole.iter().find_map(|end| target.strip_suffix(end))
        && split(add).is_none()
        && !add.contains('?')
    {
        return match &world.view {
            View::Moved { strip, add: own } => {
                Ok(View::Moved { strip: strip.clone(), add: format!("{}{own}", add.trim_end_matches('/')) })
            }
            _ => Err("the path is changed before".to_owned()),
        };
    }
    let slash = if target.starts_with('/') || target.starts_with('{') { "" } else { "/" };
    let target = format!("{slash}{target}");
    let has_query = target.contains("{query}")
        || target.contains("{?query}")
        || target.contains("{http.request.uri.query}");
    let target =
        ["?{query}", "&{query}", "{?query}", "?{http.request.uri.query}", "&{http.request.uri.query}"]
            .iter()
            .fold(target, |text, part| text.replace(part, ""));
    // With `?` at the end, brisk does not append the query of the client.
    let end = if target.contains('?') && !has_query { "?" } else { "" };
    if split(&target).is_none() {
        let keeps = target.contains('?') && has_query;
        return Ok(if keeps {
            View::Pattern { pattern: "^.*$".to_owned(), to: target }
        } else {
            View::Fixed(target)
        });
    }
    let View::Moved { strip, add } = &world.view else { return Err("the path is changed before".to_owned()) };
    if !add.is_empty() {
        return Err("brisk changes the path of a request once".to_owned());
    }
    template(&target, end, strip, world)
}

/// A path with groups of the expression of the route, such as `{re.1}`, or with `{path}`.
fn template(target: &str, end: &str, strip: &str, world: &World) -> Result<View, String> {
    let has_groups = target.contains("{re.") || target.contains("{http.regexp.");
    let pattern = match world.expression() {
        Some(own) if has_groups => own.to_owned(),
        None if has_groups => {
            return Err("the rewrite has groups of an expression that the route does not have".to_owned());
        }
        _ => format!("^{}(.*)$", regex::escape(strip)),
    };
    let mut to = String::new();
    let mut rest = target;
    while let Some((before, name, behind)) = split(rest) {
        to.push_str(&before.replace('{', "{{"));
        let group = name.strip_prefix("re.").or_else(|| name.strip_prefix("http.regexp."));
        match (name, group) {
            (_, Some(group)) => to.extend(["{", group.rsplit('.').next().unwrap_or(group), "}"]),
            ("path" | "http.request.uri.path", None) if !has_groups => to.push_str("{1}"),
            _ => return Err(format!("rewritten paths of brisk have no variable for {{{name}}}")),
        }
        rest = behind;
    }
    to.push_str(&rest.replace('{', "{{"));
    Ok(View::Pattern { pattern, to: format!("{to}{end}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caddy::host_name::HostName;
    use crate::caddy::path::Place;

    #[test]
    fn targets_become_paths() {
        let world = World::new(
            Place { path: "/".to_owned(), exact: false },
            HostName::Other,
            Some(true),
            std::rc::Rc::default(),
        );
        let moved = |add: &str| Ok(View::Moved { strip: String::new(), add: add.to_owned() });
        assert_eq!(rewritten("/app{uri}", &world), moved("/app"));
        assert_eq!(rewritten("/index.html", &world), Ok(View::Fixed("/index.html".to_owned())));
        let to = |to: &str| Ok(View::Pattern { pattern: "^(.*)$".to_owned(), to: to.to_owned() });
        assert_eq!(rewritten("/index.php?p={path}&{query}", &world), to("/index.php?p={1}"));
        assert_eq!(rewritten("{path}/x?a=b", &world), to("{1}/x?a=b?"));
        assert!(rewritten("/{re.x.1}", &world).is_err() && rewritten("?a=b", &world).is_err());
    }
}
