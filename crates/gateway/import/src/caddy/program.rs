//! The program of a site: its directives in the order in which Caddy executes them, each with its condition.

use std::rc::Rc;

use crate::caddy::context::Context;
use crate::caddy::matcher::{Formula, Named, named};
use crate::caddy::path::{Place, Shape, is_plain};
use crate::caddy::step::{Group, Step, is_known};
use crate::directive::Directive;
use crate::report::Class;

/// Directives of a site that are no steps for requests.
pub(crate) const SETTINGS: [&str; 6] = ["tls", "bind", "log", "handle_errors", "import", "abort_on_close"];

/// The steps of a block. Those of `route` and `invoke` stay in the order of the file: `sorted` is `false`.
pub(crate) fn steps<'a>(
    context: &Context<'a>,
    block: &'a [Directive],
    outer: &Named,
    sorted: bool,
    depth: usize,
) -> Vec<Step<'a>> {
    // Each block has a copy of the matchers around it. Without steps left, the hosts refuse requests.
    if context.is_spent(outer.len() / 4) {
        return Vec::new();
    }
    let matchers = named(block, outer, context.has_trusted);
    for definition in block.iter().filter(|line| line.name.starts_with('@')) {
        context.carried_whole(definition);
        if let Some(formula) = matchers.get(&definition.name) {
            segments(context, definition, formula);
        }
    }
    let is_step =
        |line: &&Directive| !SETTINGS.contains(&&*line.name) && !line.name.starts_with(['@', '(', '&']);
    let mut all: Vec<_> =
        block.iter().filter(is_step).map(|line| step(context, line, &matchers, depth)).collect();
    // Caddy forms a group of several directives only; one alone is joined with a neighbour that has the same matcher.
    for group in [Group::Handle, Group::Root] {
        let mut members: Vec<_> = all.iter_mut().filter(|step| step.group == Some(group)).collect();
        if let [one] = members.as_mut_slice() {
            one.group = None;
        }
    }
    if sorted { context.order.sort(all) } else { all }
}

fn step<'a>(context: &Context<'a>, directive: &'a Directive, matchers: &Named, depth: usize) -> Step<'a> {
    let name = directive.name.as_str();
    let (formula, args, has_matcher) = condition(directive, matchers);
    let block = match name {
        "handle" | "handle_path" | "route" => directive.inner(),
        "invoke" => context
            .invoked
            .get(directive.arg(usize::from(has_matcher)))
            .map_or(&[][..], |route| route.inner()),
        _ => &[],
    };
    // A named route may invoke itself.
    let inner = if depth < 64 {
        steps(context, block, matchers, name.starts_with("handle"), depth + 1)
    } else {
        Vec::new()
    };
    let group = match name {
        "handle" | "handle_path" => Some(Group::Handle),
        "rewrite" => Some(Group::Rewrite),
        "root" => Some(Group::Root),
        _ => None,
    };
    let restricts = inner.iter().any(|step| step.restricts) || refuses(name, &args);
    let own = if inner.is_empty() { directive.inner() } else { &[] };
    if !restricts && formula.single_path().is_some() && !directive.arg(0).starts_with('@') {
        segments(context, directive, &formula);
    }
    // A change of some paths only leaves the others as they are.
    let formula = match (name, args.as_slice()) {
        ("uri", [kind, text, ..]) if matches!(kind.as_str(), "strip_suffix" | "replace") => {
            let end = if kind == "replace" { "*" } else { "" };
            Rc::new(Formula::All(vec![(*formula).clone(), Formula::paths(&[format!("*{text}{end}")])]))
        }
        _ => formula,
    };
    let words = |line: &Directive| 1 + line.args.iter().map(|arg| 1 + arg.len() / 16).sum::<usize>();
    let size = formula.weight() + words(directive) + own.iter().map(words).sum::<usize>();
    Step { directive, args, formula, has_matcher, inner, group, restricts, size }
}

/// A note about a beginning of paths such as `/api*`, which brisk compares by whole segments.
fn segments(context: &Context<'_>, directive: &Directive, formula: &Formula) {
    let mut found = None;
    formula.visit(&mut |part| {
        if let Formula::Path(shapes) = part {
            found = found.take().or_else(|| shapes.iter().find_map(Shape::cut).map(str::to_owned));
        }
    });
    if let Some(path) = found {
        let detail =
            format!("{path} and the paths below it: brisk compares whole segments, Caddy also finds {path}x");
        context.different(directive, detail);
    }
}

/// Whether a directive refuses requests, as `basic_auth` or `respond 403`. One that is not known may.
fn refuses(name: &str, args: &[String]) -> bool {
    let status = |text: &String| text.parse::<u16>().ok().filter(|_| text.len() == 3);
    match name {
        "respond" => args.iter().filter_map(status).any(|status| status >= 400),
        "abort" | "error" | "basic_auth" | "basicauth" | "forward_auth" | "request_header" => true,
        _ => !is_known(name),
    }
}

/// The [`Formula`] of a directive, its arguments without the matcher, and whether it has one other than `*`.
fn condition(directive: &Directive, matchers: &Named) -> (Rc<Formula>, Vec<String>, bool) {
    let all = || (Rc::new(Formula::always()), directive.args.clone(), false);
    let first = directive.arg(0);
    // `root /srv` and `redir /a` have a target, not a matcher: a path is one only before another argument.
    let single = directive.args.len() == 1;
    let takes_path = match directive.name.as_str() {
        "try_files" | "tracing" | "log_append" => false,
        "root" | "rewrite" | "method" | "redir" => !single,
        _ => true,
    };
    let formula = if first == "*" && directive.name != "try_files" {
        Rc::new(Formula::always())
    } else if first.starts_with('@') {
        let reason = || Formula::Unknown(format!("the matcher {first} is not defined"));
        matchers.get(first).cloned().unwrap_or_else(|| Rc::new(reason()))
    } else if first.starts_with('/') && takes_path {
        Rc::new(Formula::paths(&[first]))
    } else {
        return all();
    };
    (formula, directive.args.get(1..).unwrap_or_default().to_vec(), first != "*")
}

/// Places at which the path decides about a step, below the prefix that outer blocks `handle_path` remove.
pub(crate) fn places(steps: &[Step<'_>], stripped: &str, all: &mut Vec<Place>) {
    let mut add = |path: &str, exact: bool| {
        let path = if stripped.is_empty() { path.to_owned() } else { format!("{stripped}{path}") };
        if is_plain(&path) {
            all.push(Place { path, exact });
        }
    };
    for step in steps {
        step.formula.visit(&mut |part| {
            if let Formula::Path(shapes) = part {
                for place in shapes.iter().filter_map(Shape::place) {
                    add(&place.path, place.exact);
                }
            }
        });
        if step.directive.name == "uri" && step.arg(0) == "strip_prefix" {
            add(step.arg(1).trim_end_matches('/'), false);
        }
    }
    for step in steps {
        match step.stripped() {
            Some(prefix) => places(&step.inner, &format!("{stripped}{prefix}"), all),
            None => places(&step.inner, stripped, all),
        }
    }
}

/// Paths in the conditions of steps that refuse requests, at most 1,000, because each condition is compared with all of them.
pub(crate) fn restricted(steps: &[Step<'_>], all: &mut Vec<Shape>) {
    for step in steps.iter().filter(|step| step.restricts) {
        step.formula.visit(&mut |part| {
            let Formula::Path(shapes) = part else { return };
            for shape in shapes {
                if all.len() < 1000 && shape.place().is_some() && !all.contains(shape) {
                    all.push(shape.clone());
                }
            }
        });
        restricted(&step.inner, all);
    }
}

/// Notes for directives inside of blocks that no request reaches.
pub(crate) fn unreached(context: &Context<'_>, steps: &[Step<'_>]) {
    for step in steps {
        let is_noted = context.report.borrow().is_noted(step.directive.id);
        if !is_noted && is_known(&step.directive.name) {
            let class = if context.is_spent(0) {
                Class::NotCarried {
                    reason: "the file has too many conditions and paths".to_owned(),
                    action: "divide it, or write the routes by hand; until then the host refuses requests"
                        .to_owned(),
                }
            } else {
                Class::NotNeeded("no request reaches the directive".to_owned())
            };
            context.note_whole(step.directive, &class);
        }
        unreached(context, &step.inner);
    }
}
