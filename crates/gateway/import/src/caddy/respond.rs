//! Responses without a file or an upstream: `respond`, `error` and `redir`.

use crate::caddy::context::Context;
use crate::caddy::environment::{self, resolve};
use crate::caddy::flow::{Flow, REFUSES};
use crate::caddy::placeholders::{Use, has_any, template};
use crate::caddy::plan::Action;
use crate::caddy::state::State;
use crate::caddy::step::Step;
use crate::caddy::world::World;
use crate::toml::{self, Keys};

/// `respond`: the table `respond` with `status`, `body` and `content_type`.
pub(crate) fn fixed(context: &Context<'_>, step: &Step<'_>, state: &State<'_>, world: &World) -> Flow {
    let directive = step.directive;
    let is_status = |text: &str| text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    let (mut body, mut status) = match step.args.as_slice() {
        [one] if is_status(&resolve(one)) => (String::new(), resolve(one)),
        [one] => (resolve(one), String::new()),
        [body, status, ..] => (resolve(body), resolve(status)),
        [] => (String::new(), String::new()),
    };
    context.carried(directive);
    for line in directive.inner() {
        context.carried(line);
        match line.name.as_str() {
            "body" => body = resolve(line.arg(0)),
            "close" => context.unneeded(line, "brisk decides about the end of connections"),
            name if is_status(name) => name.clone_into(&mut status),
            _ => {}
        }
    }
    let number = if status.is_empty() { Some(200) } else { status.parse::<u16>().ok() };
    let Some(number) = number.filter(|number| (200..600).contains(number)) else {
        context.missing(directive, format!("{status} is no status of a response"), REFUSES);
        return Flow::REFUSE;
    };
    let mut keys = Keys::default();
    if number != 200 {
        keys.set("status", number.to_string());
    }
    if !body.is_empty() {
        let own = match template(&body, state, world, Use::Body) {
            Ok(own) => own,
            Err(reason) => {
                context.missing(directive, reason, REFUSES);
                return Flow::REFUSE;
            }
        };
        let kind = state
            .content_type()
            .map(str::to_owned)
            .or_else(|| is_json(&body).then(|| "application/json".to_owned()));
        if has_any(&body) && kind.as_deref().is_some_and(|kind| !kind.starts_with("text/plain")) {
            context.different(directive, "brisk escapes the values of variables in HTML, XML and JSON");
        }
        keys.set("body", toml::raw(&own));
        if let Some(kind) = kind {
            keys.set("content_type", environment::text(&kind));
        }
    }
    // Status 200 without a body is the response that Caddy sends without a directive too.
    if keys.is_empty() {
        return Flow::Finish(Action::Empty);
    }
    Flow::Finish(Action::Respond(keys))
}

/// Whether Caddy sends a text as `application/json`. The exact check of its syntax decides about few texts.
fn is_json(text: &str) -> bool {
    let text = text.trim();
    let has_ends = |start: char, end: char| text.starts_with(start) && text.ends_with(end);
    text.len() > 2
        && (has_ends('{', '}') && (text.contains("\":") || text.contains("\" :")) || has_ends('[', ']'))
}

/// `error`, whose response `error_pages` can replace. Its status is 500 if none from 400 to 599 is stated.
pub(crate) fn error(context: &Context<'_>, step: &Step<'_>) -> Flow {
    let status =
        step.args.iter().rev().find_map(|arg| resolve(arg).parse::<u16>().ok().filter(|_| arg.len() == 3));
    context.carried(step.directive);
    for line in step.directive.inner() {
        context.different(line, "brisk's page for the error has its own text");
    }
    let status = status.filter(|status| (400..600).contains(status)).unwrap_or(500);
    Flow::Finish(Action::Respond(Keys::of("status", status.to_string())))
}

/// `redir`: the key `redirect`, a text for status 308, and otherwise `{ to = "/a", status = 302 }`.
pub(crate) fn redirect(context: &Context<'_>, step: &Step<'_>, state: &State<'_>, world: &World) -> Flow {
    let directive = step.directive;
    let refuse = |reason: &str| {
        context.missing(directive, reason, REFUSES);
        Flow::REFUSE
    };
    let status = match resolve(step.arg(1)).as_str() {
        "permanent" => 301,
        "temporary" | "" => 302,
        "html" => {
            context.different(directive, "brisk redirects with status 302 in place of a page");
            302
        }
        other => match other.parse::<u16>() {
            Ok(status) if matches!(status, 301 | 302 | 303 | 307 | 308) => status,
            _ => return refuse("redirects of brisk have status 301, 302, 303, 307 or 308"),
        },
    };
    let to = step.arg(0);
    if !(to.starts_with('/') || to.contains("://") || to.starts_with('{')) {
        return refuse("a redirect of brisk begins with a scheme or with /");
    }
    let target = match template(to, state, world, Use::Redirect) {
        Ok(target) => target,
        Err(reason) => return refuse(&reason),
    };
    if chooses_host(&target) {
        return refuse("a client could choose the host of the redirect");
    }
    context.carried(directive);
    let table = if status == 308 {
        environment::text(&target)
    } else {
        format!("{{ to = {}, status = {status} }}", environment::text(&target))
    };
    Flow::Finish(Action::Redirect(table))
}

/// Whether a variable that clients choose is in place of the host, as in `https://{request.query.to}`.
fn chooses_host(target: &str) -> bool {
    let Some((_, rest)) = target.split_once("://") else {
        return target.starts_with('{')
            && !target.starts_with("{path}")
            && !target.starts_with("{request.path}");
    };
    let ends = ["/", "?", "{path}", "{request.path}", "{request.query_part}"];
    let end = ends.iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
    let authority = rest[..end].replace("{host}", "").replace("{server.port}", "").replace("{$", "");
    authority.contains('{')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_do_not_choose_hosts() {
        for (target, expected) in [
            ("https://a.example{path}", false),
            ("https://www.{host}{path}", false),
            ("https://{request.query.to}/", true),
            ("{request.header.x}", true),
            ("{path}/", false),
            ("/a/{request.query.b}", false),
            ("https://{$DOMAIN}/", false),
        ] {
            assert_eq!(chooses_host(target), expected, "{target}");
        }
    }

    #[test]
    fn json_is_found_by_its_ends() {
        assert!(is_json("{\"a\": 1}") && is_json(" [1] ") && !is_json("{a}") && !is_json("text"));
    }
}
