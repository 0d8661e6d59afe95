//! Passwords and the permission of another server: `basic_auth` and `forward_auth`.

use crate::caddy::context::Context;
use crate::caddy::environment::{self, resolve};
use crate::caddy::flow::{Flow, REFUSES};
use crate::caddy::headers;
use crate::caddy::proxy;
use crate::caddy::state::State;
use crate::caddy::step::Step;
use crate::caddy::world::World;
use crate::report::one_line;
use crate::table::Table;
use crate::toml::{self, Keys};

/// `basic_auth`. brisk reads users from a file, so the result is `{ file = "users-1" }` and a comment with the content.
pub(crate) fn passwords<'a>(context: &Context<'a>, step: &Step<'a>, state: &mut State<'a>) -> Flow {
    let directive = step.directive;
    // A second list of users cannot be added, and to drop one of them would open the route.
    if state.basic_auth.is_some() {
        context.missing(directive, "a route of brisk has one list of users", REFUSES);
        return Flow::REFUSE;
    }
    let mut lines = Vec::new();
    for user in directive.inner() {
        let (name, hash) = (resolve(&user.name), decoded(&resolve(user.arg(0))));
        let is_right = !name.is_empty()
            && !name.contains(|next: char| next.is_control() || matches!(next, ':' | '#'))
            && !hash.contains(|next: char| next.is_control() || matches!(next, ':' | ' '));
        if !is_right || !["$2a$", "$2b$", "$2y$", "$argon2id$"].iter().any(|kind| hash.starts_with(kind)) {
            context.missing(
                user,
                "brisk reads hashes of bcrypt and Argon2id",
                "write the user with one of them in the file",
            );
            continue;
        }
        context.carried(user);
        lines.push(format!("{name}:{hash}"));
    }
    if lines.is_empty() {
        context.missing(directive, "no user has a hash that brisk reads", REFUSES);
        return Flow::REFUSE;
    }
    let file = context.users_file(&lines.join("\n"));
    let mut keys = Keys::of("file", environment::text(&file));
    if step.args.len() > 1 {
        keys.set("realm", toml::text(&resolve(step.arg(1))));
    }
    context.different(
        directive,
        format!("brisk reads users from a file: write the lines of the comment at its route to {file}"),
    );
    note_lines(context, &file, &lines);
    state.basic_auth = Some(keys);
    Flow::Continue
}

/// The lines for the file of users, such as `alice:$2a$14$x`, as a comment behind all tables.
fn note_lines(context: &Context<'_>, file: &str, lines: &[String]) {
    let mut tables = context.tables.borrow_mut();
    let header = format!("# Lines of {}, with the rights of its owner only:", one_line(file));
    if tables.iter().any(|table| table.header.starts_with(&header)) {
        return;
    }
    let lines: Vec<_> = lines.iter().map(|line| one_line(line)).collect();
    let rest = lines.join("\n# ");
    let comment = String::new();
    tables.push(Table { header: format!("{header}\n# {rest}"), keys: Keys::default(), comment });
}

/// A hash in base64, as older versions of Caddy have it: `JDJhJDE0JHg=` becomes `$2a$14$x`.
fn decoded(hash: &str) -> String {
    if hash.starts_with('$') {
        return hash.to_owned();
    }
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for next in hash.bytes().take(1024).filter(|byte| *byte != b'=') {
        let value = match next {
            b'A'..=b'Z' => next - b'A',
            b'a'..=b'z' => next - b'a' + 26,
            b'0'..=b'9' => next - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return hash.to_owned(),
        };
        bits = (bits << 6) | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.extend(u8::try_from((bits >> count) & 0xff));
            bits &= (1 << count) - 1;
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| hash.to_owned())
}

/// The reason why directives before prevent a question.
fn prevented(state: &State<'_>, world: &World) -> Option<&'static str> {
    if state.forward_auth.is_some() {
        return Some("a route of brisk asks one server");
    }
    let reason = "the question of brisk has the headers of the client, without the rules before";
    world.has_changes().then_some(reason)
}

/// `forward_auth`.
pub(crate) fn forward<'a>(
    context: &Context<'a>,
    step: &Step<'a>,
    state: &mut State<'a>,
    world: &mut World,
) -> Flow {
    let directive = step.directive;
    let refuse = |reason: &str| Flow::refused(context, directive, reason);
    if let Some(reason) = prevented(state, world) {
        return refuse(reason);
    }
    let (mut path, mut copied) = (String::new(), Vec::new());
    context.carried(directive);
    for line in directive.inner() {
        match line.name.as_str() {
            "uri" => {
                path = resolve(line.arg(0));
                context.carried(line);
            }
            "copy_headers" => {
                let inner = line.inner().iter().map(|own| (&own.name, own.arg(0)));
                copied.extend(line.args.iter().cloned());
                copied.extend(
                    inner.map(|(name, to)| if to.is_empty() { name.clone() } else { format!("{name}>{to}") }),
                );
                context.carried_whole(line);
                if copied.iter().any(|name| name.contains('>')) {
                    context.missing(line, "brisk copies headers under their own names", REFUSES);
                    return Flow::REFUSE;
                }
            }
            "header_up" if headers::is_usual(&line.args) => context.carried(line),
            "trusted_proxies" => context.different(line, "write trusted_proxies in [server]"),
            "method" if line.arg(0) == "GET" => context.carried(line),
            "header_up" | "method" | "rewrite" | "handle_response" | "@good" => {
                let reason = "the question of brisk is a GET of a fixed path with the headers of the client";
                context.missing(line, reason, REFUSES);
                return Flow::REFUSE;
            }
            _ => {}
        }
    }
    if path.contains('{') || !path.starts_with('/') {
        return refuse("the path of the question has placeholders, or does not begin with /");
    }
    let mut keys = Keys::default();
    match proxy::upstream(context, step, state, world) {
        Ok(group) => {
            keys.set("upstream", toml::text(&group.name));
            keys.set("path", toml::text(&path));
        }
        Err(reason) => return refuse(&reason),
    }
    if !copied.is_empty() {
        keys.set("copy_headers", environment::list(&copied));
    }
    for name in &copied {
        world.change(name);
    }
    state.forward_auth = Some(keys);
    Flow::Continue
}

#[cfg(test)]
mod tests {
    use super::decoded;

    #[test]
    fn hashes_in_base64_are_decoded() {
        assert_eq!(decoded("JDJhJDE0JHg="), "$2a$14$x");
        assert_eq!(decoded("$2a$14$x"), "$2a$14$x");
        assert_eq!(decoded("!"), "!");
    }
}
