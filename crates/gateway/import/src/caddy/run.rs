//! The program of a site, followed for the requests of each route.
//!
//! A condition that does not depend on the place of a route divides its requests: first come the routes for those that meet it, then
//! the routes for all others. Every request of the first part has a route there, so the second part needs no negated condition.

use crate::caddy::context::Context;
use crate::caddy::flow::{Absent, Flow};
use crate::caddy::handlers::apply;
use crate::caddy::matcher::Value;
use crate::caddy::plan::{Action, Plan, combine};
use crate::caddy::state::State;
use crate::caddy::step::{Group, Step};
use crate::caddy::world::{Branch, View, World};
use crate::directive::Directive;
use crate::nginx::condition::When;
use crate::toml::Keys;

/// Advice for conditions that brisk does not have: `when` has to be written by hand.
const ADVICE: &str =
    "write a route with `when`, before the other route of this path; until then the route refuses requests";

/// Routes of one place at most, beyond which a configuration is of no use.
const MOST_ROUTES: usize = 1000;

/// Calls of [`follow`] and `files` inside each other at most.
const DEEPEST: usize = 48;

/// A block, such as that of `handle`, whose steps are executed.
#[derive(Clone, Debug)]
pub(crate) struct Frame<'p, 'a> {
    steps: &'p [Step<'a>],
    at: usize,
    taken: Vec<Group>,
    /// Whether the step before was executed; `None` before the first one, or if that is not known.
    last: Option<bool>,
}

impl<'p, 'a> Frame<'p, 'a> {
    pub(crate) fn new(steps: &'p [Step<'a>]) -> Self {
        Self { steps, at: 0, taken: Vec::new(), last: None }
    }
}

impl Frame<'_, '_> {
    /// Goes on to the next [`Step`].
    fn pass(&mut self, is_executed: Option<bool>) {
        self.at += 1;
        self.last = is_executed;
    }

    /// Whether the step is executed because the one before it was, or was not: Caddy joins neighbours with the same matcher, which it
    /// compares once, even if the first of them changes the path.
    fn repeated(&self) -> Option<bool> {
        let (step, before) = (self.steps.get(self.at)?, self.steps.get(self.at.checked_sub(1)?)?);
        let is_apart = |step: &Step<'_>| matches!(&*step.directive.name, "try_files" | "php_fastcgi");
        let is_same = step.group == before.group
            && step.has_matcher == before.has_matcher
            && step.formula == before.formula;
        self.last.filter(|_| is_same && !is_apart(step) && !is_apart(before))
    }
}

/// Follows the program for the requests of `world`, and appends a [`Plan`] for each of their routes.
pub(crate) fn follow<'p, 'a>(
    context: &Context<'a>,
    mut frames: Vec<Frame<'p, 'a>>,
    mut state: State<'a>,
    mut world: World,
    depth: usize,
    routes: &mut Vec<Plan>,
) {
    loop {
        let Some(frame) = frames.last_mut() else {
            return finish(context, &state, &world, Action::Empty, None, routes);
        };
        let steps: &'p [Step<'a>] = frame.steps;
        let Some(step) = steps.get(frame.at) else {
            frames.pop();
            continue;
        };
        let repeated = frame.repeated();
        // An earlier step of the same group was executed, so that this one is not.
        if repeated != Some(true) && step.group.is_some_and(|group| frame.taken.contains(&group)) {
            frame.pass(Some(false));
            continue;
        }
        if context.is_spent(step.size + world.size()) || depth > DEEPEST || routes.len() > MOST_ROUTES {
            context.missing(step.directive, "the site has too many conditions", ADVICE);
            return finish(context, &state, &world, Action::Refuse, Some(step.directive), routes);
        }
        let value = repeated.map_or_else(|| step.formula.value(&world, step.restricts), Value::of);
        match value {
            Value::False => frame.pass(Some(false)),
            Value::True => {
                frame.pass(Some(true));
                frame.taken.extend(step.group);
                match apply(context, step, &mut state, &mut world) {
                    Flow::Continue => {}
                    Flow::Enter => frames.push(Frame::new(&step.inner)),
                    Flow::Finish(action) => {
                        return finish(context, &state, &world, action, Some(step.directive), routes);
                    }
                    Flow::Files(missing) => {
                        return files(context, step, frames, &state, &world, missing, depth, routes);
                    }
                }
            }
            Value::Unknown(reason) if step.is_harmless() => {
                context.missing(step.directive, reason, "write a route with `when` for it");
                frame.pass(None);
            }
            Value::Unknown(reason) => {
                context.missing(step.directive, reason, ADVICE);
                return finish(context, &state, &world, Action::Refuse, Some(step.directive), routes);
            }
            Value::Undecided(Branch::File) => {
                return files(context, step, frames, &state, &world, None, depth, routes);
            }
            Value::Undecided(branch) => {
                let first = world.with(&branch, true);
                if first.when().is_some() {
                    context.is_spent(state.size() + 4 * world.size());
                    follow(context, frames.clone(), state.clone(), first, depth + 1, routes);
                    world = world.with(&branch, false);
                } else if clashes(context, step) {
                    return finish(context, &state, &world, Action::Refuse, Some(step.directive), routes);
                } else {
                    frame.pass(None);
                }
            }
        }
    }
}

/// Notes a condition that cannot be combined with those of the route. Whether the route has to refuse requests.
fn clashes(context: &Context<'_>, step: &Step<'_>) -> bool {
    if step.is_harmless() {
        let detail = "without the requests that also meet another condition of the same kind";
        context.different(step.directive, detail);
        return false;
    }
    context.missing(step.directive, "brisk has one condition of this kind for each route", ADVICE);
    true
}

/// Divides requests by the existence of their file. `missing` is the rest of those without one, if `try_files` states it.
#[expect(clippy::too_many_arguments, reason = "the state of a run")]
fn files<'p, 'a>(
    context: &Context<'a>,
    step: &'p Step<'a>,
    frames: Vec<Frame<'p, 'a>>,
    state: &State<'a>,
    world: &World,
    missing: Option<Absent>,
    depth: usize,
    routes: &mut Vec<Plan>,
) {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    follow(context, frames.clone(), state.clone(), world.with(&Branch::File, true), depth + 1, &mut with);
    let mut absent = world.with(&Branch::File, false);
    match missing {
        Some(Absent::Responds(action)) => {
            finish(context, state, &absent, action, Some(step.directive), &mut without);
        }
        Some(Absent::Path(path)) => {
            absent.view = View::Fixed(path);
            follow(context, frames, state.clone(), absent, depth + 1, &mut without);
        }
        None => follow(context, frames, state.clone(), absent, depth + 1, &mut without),
    }
    match combine(&with, without) {
        Ok((plans, differs)) => {
            if step.directive.name != "try_files" && step.directive.name != "php_fastcgi" {
                let detail = "a folder with index.html counts as a file in brisk";
                context.different(step.directive, detail);
            }
            if differs {
                context.different(
                    step.directive,
                    "headers and compression are the same with and without a file",
                );
            }
            routes.extend(plans);
        }
        Err(reason) => {
            context.missing(step.directive, reason, ADVICE);
            finish(context, state, world, Action::Refuse, Some(step.directive), routes);
        }
    }
}

fn finish(
    context: &Context<'_>,
    state: &State<'_>,
    world: &World,
    action: Action,
    source: Option<&Directive>,
    routes: &mut Vec<Plan>,
) {
    let (when, action) = match world.when() {
        Some(when) => (when, action),
        None => (When::default(), Action::Refuse),
    };
    let comment =
        source.map_or_else(|| "requests without a response in Caddy".to_owned(), Directive::comment);
    // A route that refuses requests needs no settings of a response.
    let is_refused = action == Action::Refuse;
    let keys = if is_refused { Keys::default() } else { state.keys(context, world, &action) };
    context.is_spent(20 + state.size() + keys.0.iter().map(|(_, value)| value.len()).sum::<usize>() / 8);
    routes.push(Plan { when, action, keys, view: world.view.clone(), comment });
}
