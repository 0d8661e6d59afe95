//! Effects of directives on requests: changes of the state, or a response.

use crate::caddy::context::Context;
use crate::caddy::environment::{self, resolve};
use crate::caddy::flow::Flow;
use crate::caddy::plan::Action;
use crate::caddy::state::State;
use crate::caddy::step::{Step, is_known};
use crate::caddy::units;
use crate::caddy::world::{View, World};
use crate::caddy::{auth, files, headers, php, proxy, respond, rewrite};
use crate::toml::{self, Keys};

/// Applies the directive of a [`Step`] to the requests of `world`: it changes `state` or `world`, or its [`Flow`] is a response.
pub(crate) fn apply<'a>(
    context: &Context<'a>,
    step: &Step<'a>,
    state: &mut State<'a>,
    world: &mut World,
) -> Flow {
    let directive = step.directive;
    match directive.name.as_str() {
        "handle" | "route" | "handle_path" | "invoke" => enter(context, step, world),
        "root" => {
            context.carried(directive);
            state.root = Some(context.path(step.arg(0)));
            Flow::Continue
        }
        "vars" => {
            vars(context, step, state, world);
            Flow::Continue
        }
        "map" => {
            state
                .mapped
                .extend(step.args.iter().skip(1).map(|name| name.trim_matches(['{', '}']).to_owned()));
            context.unneeded(directive, "directives that use its values are named");
            Flow::Continue
        }
        "header" => headers::response(context, step, state, world),
        "request_header" => headers::request(context, step, state, world),
        "request_body" => body(context, step, state),
        "encode" => encode(context, step, state),
        "basic_auth" | "basicauth" => auth::passwords(context, step, state),
        "forward_auth" => auth::forward(context, step, state, world),
        "redir" => respond::redirect(context, step, state, world),
        "respond" => respond::fixed(context, step, state, world),
        "error" => respond::error(context, step),
        "abort" => {
            context.different(directive, "clients get 403: brisk always responds");
            Flow::Finish(Action::Respond(Keys::of("status", "403")))
        }
        "rewrite" | "uri" | "method" => rewrite::apply(context, step, world),
        "try_files" => files::try_files(context, step, world),
        "file_server" => files::serve(context, step, state, world),
        "php_fastcgi" => php::serve(context, step, state, world),
        "reverse_proxy" => proxy::serve(context, step, state, world),
        "log_skip" | "skip_log" => {
            context.carried(directive);
            state.has_log = Some(false);
            Flow::Continue
        }
        name => other(context, step, name),
    }
}

fn enter(context: &Context<'_>, step: &Step<'_>, world: &mut World) -> Flow {
    context.carried(step.directive);
    let Some(prefix) = step.stripped().filter(|prefix| !prefix.is_empty()) else { return Flow::Enter };
    let moved = match &world.view {
        View::Moved { strip, add }
            if add.is_empty() && world.place.path.starts_with(&format!("{strip}{prefix}")) =>
        {
            View::Moved { strip: format!("{strip}{prefix}"), add: String::new() }
        }
        _ => {
            let reason = "brisk removes a prefix that the path of the route has, in the same case";
            context.missing(step.directive, reason, "write a route with strip_prefix");
            return Flow::REFUSE;
        }
    };
    world.view = moved;
    Flow::Enter
}

fn vars(context: &Context<'_>, step: &Step<'_>, state: &mut State<'_>, world: &World) {
    let own = (step.args.len() == 2).then(|| (step.arg(0), step.arg(1)));
    let lines = step.directive.inner().iter().map(|line| (line.name.as_str(), line.arg(0)));
    let pairs: Vec<_> =
        own.into_iter().chain(lines).map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    context.carried_whole(step.directive);
    for (name, value) in pairs {
        use crate::caddy::placeholders::{Use, template};
        match template(&value, state, world, Use::Value) {
            Ok(value) => {
                state.vars.insert(name, value);
            }
            Err(reason) => context.missing(step.directive, reason, "write the value where it is used"),
        }
    }
}

fn body(context: &Context<'_>, step: &Step<'_>, state: &mut State<'_>) -> Flow {
    context.carried(step.directive);
    for line in step.directive.inner() {
        match (line.name.as_str(), units::size(&resolve(line.arg(0)))) {
            ("max_size", Some(size)) => {
                state.body_size = Some(units::written(size));
                context.carried(line);
            }
            ("max_size", None) => {
                context.missing(line, "the size is not a number", "write body_size in the route");
                return Flow::REFUSE;
            }
            _ => context.missing(line, "brisk has no counterpart", "write timeouts in [server]"),
        }
    }
    Flow::Continue
}

fn encode(context: &Context<'_>, step: &Step<'_>, state: &mut State<'_>) -> Flow {
    let mut keys = Keys::default();
    let mut codings: Vec<String> = step.args.clone();
    context.carried(step.directive);
    for line in step.directive.inner() {
        match line.name.as_str() {
            "gzip" | "zstd" | "br" => {
                codings.push(line.name.clone());
                let level = match line.name.as_str() {
                    "gzip" => toml::number(line.arg(0)).map(|level| ("gzip_level", level)),
                    _ => None,
                };
                match level {
                    Some((key, level)) => {
                        keys.set(key, level);
                        context.carried(line);
                    }
                    None if line.args.is_empty() => context.carried(line),
                    None => context.different(line, "with brisk's own level"),
                }
            }
            "minimum_length" => match units::size(line.arg(0)) {
                Some(size) => {
                    keys.set("least", units::written(size));
                    context.carried(line);
                }
                None => context.missing(line, "the length is not a number", "write least in compression"),
            },
            "match" => context.note_whole(
                line,
                &crate::report::Class::Difference(
                    "brisk compresses its usual types: write types in compression for others".to_owned(),
                ),
            ),
            _ => {}
        }
    }
    codings.retain(|coding| matches!(coding.as_str(), "gzip" | "zstd" | "br"));
    // `encode` without arguments has these two in Caddy.
    if codings.is_empty() {
        codings = vec!["zstd".to_owned(), "gzip".to_owned()];
    }
    codings.dedup();
    keys.0.insert(0, ("codings".to_owned(), environment::list(&codings)));
    state.compression = Some(keys.inline());
    Flow::Continue
}

/// Directives without a counterpart. Those that would respond, as `metrics`, or might refuse, close the route by `Flow::REFUSE`.
fn other(context: &Context<'_>, step: &Step<'_>, name: &str) -> Flow {
    let directive = step.directive;
    let refuse = "until then the route refuses requests";
    match name {
        "push" => context
            .unneeded(directive, "browsers do not accept pushed responses; early_hints have their purpose"),
        "tracing" => context.missing(
            directive,
            "spans are a setting of hosts",
            "write trace = true in the host, and [otlp]",
        ),
        "log_append" | "log_name" | "log_level" => {
            context.missing(
                directive,
                "lines of brisk's access log have fixed fields",
                "write a template in [access_log]",
            );
        }
        "intercept" => context.missing(
            directive,
            "brisk replaces responses of upstreams by error pages",
            "write error_pages with intercept = true",
        ),
        "metrics" => {
            context.missing(directive, "the metrics of brisk are at the address of [admin]", refuse);
            return Flow::REFUSE;
        }
        "templates" => {
            context.missing(
                directive,
                "brisk has no templates, and their source text must not be sent",
                refuse,
            );
            return Flow::REFUSE;
        }
        _ if is_known(name) => {
            context.missing(directive, format!("brisk has no counterpart of {name}"), refuse);
            return Flow::REFUSE;
        }
        _ => {
            let reason =
                format!("the importer does not know the directive {name}, which may restrict requests");
            context.missing(directive, reason, refuse);
            return Flow::REFUSE;
        }
    }
    Flow::Continue
}
