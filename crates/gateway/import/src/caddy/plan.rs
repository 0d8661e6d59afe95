//! Responses of routes, and their form in brisk at a place.

use std::path::Path;

use crate::caddy::environment;
use crate::caddy::path::Place;
use crate::caddy::world::View;
use crate::nginx::condition::When;
use crate::nginx::location::Route;
use crate::toml::{self, Keys};

/// The response of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// `respond = { status = 200 }`: no body, which Caddy sends if no directive responds.
    Empty,
    /// `respond = { status = 501 }`, because the response or a restriction is not carried.
    Refuse,
    /// The table `respond`.
    Respond(Keys),
    /// The table `redirect`.
    Redirect(String),
    /// Files below the folder `root`: the key `static`.
    Static { root: String, view: View, keys: Keys, fallback: Option<Fallback> },
    /// The key `upstream`; `is_cgi` for `php_fastcgi`.
    Upstream { name: String, keys: Keys, is_cgi: bool },
}

/// The key `fallback`, for requests without a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fallback {
    File(String),
    Upstream(String),
}

/// A [`Route`] without its [`Place`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) when: When,
    pub(crate) action: Action,
    pub(crate) keys: Keys,
    /// The path that the upstream gets; `View::default()` is that of the client.
    pub(crate) view: View,
    pub(crate) comment: String,
}

/// Keys that restrict requests.
const RESTRICTIONS: [&str; 4] = ["basic_auth", "forward_auth", "body_size", "buffer_request"];

/// Joins each [`Plan`] of `without` with that of `with`. The second part is whether they differ in headers or `compression`.
pub(crate) fn combine(with: &[Plan], without: Vec<Plan>) -> Result<(Vec<Plan>, bool), String> {
    if with == without.as_slice() {
        return Ok((without, false));
    }
    let [file] = with else {
        return Err("requests with a file have several responses".to_owned());
    };
    let mut differs = false;
    let mut plans = Vec::new();
    for absent in without {
        let is_refused = file.action == Action::Refuse || absent.action == Action::Refuse;
        let restrictions = |plan: &Plan| {
            RESTRICTIONS.map(|key| plan.keys.get(key).map(|value| value.replace(", forward = true", "")))
        };
        let of_upstream = matches!(absent.action, Action::Upstream { .. });
        let is_same = restrictions(file)[..2] == restrictions(&absent)[..2]
            && (of_upstream || file.keys == absent.keys);
        if !is_same && !is_refused && restrictions(file)[..2] != restrictions(&absent)[..2] {
            return Err("requests with a file and those without one have different restrictions".to_owned());
        }
        let headers = |plan: &Plan| {
            ["response_headers", "compression", "access_log"].map(|key| plan.keys.get(key).map(str::to_owned))
        };
        differs |= headers(file) != headers(&absent);
        plans.push(if is_refused {
            Plan { action: Action::Refuse, keys: Keys::default(), ..absent }
        } else {
            joined(file, absent)?
        });
    }
    Ok((plans, differs))
}

fn joined(file: &Plan, absent: Plan) -> Result<Plan, String> {
    let none = || Err("brisk has no route that responds so with and without a file".to_owned());
    match (&file.action, &absent.action) {
        (Action::Static { root, view, keys, fallback: None }, Action::Upstream { name, keys: own, .. }) => {
            let fallback = Some(Fallback::Upstream(name.clone()));
            let mut all = keys.clone();
            all.0.extend(own.0.iter().cloned());
            let action = Action::Static { root: root.clone(), view: view.clone(), keys: all, fallback };
            Ok(Plan { action, ..absent })
        }
        (
            Action::Static { root, view, keys, fallback: None },
            Action::Static { root: other, view: View::Fixed(path), .. },
        ) if root == other => {
            let path = path.split('?').next().unwrap_or_default().to_owned();
            let fallback = Some(Fallback::File(path));
            let action =
                Action::Static { root: root.clone(), view: view.clone(), keys: keys.clone(), fallback };
            Ok(Plan { action, when: absent.when, ..file.clone() })
        }
        (Action::Static { .. }, Action::Respond(keys)) if *keys == Keys::of("status", "404") => {
            Ok(Plan { when: absent.when, ..file.clone() })
        }
        (Action::Empty, Action::Upstream { is_cgi: true, .. }) => Ok(absent),
        (one, two) if one == two && file.view == absent.view => Ok(absent),
        _ => none(),
    }
}

impl Plan {
    /// The [`Route`] at `place`, inside of `outer`, another place with routes.
    pub(crate) fn route(self, place: &Place, outer: Option<&Place>) -> Route {
        let Place { path, exact } = place.clone();
        let mut comment = self.comment;
        let mut keys = Keys::default();
        let mut when = self.when;
        let mut at = (path, exact);
        let mut is_refused = false;
        match self.action {
            Action::Empty => keys.set("respond", "{ status = 200 }"),
            Action::Refuse => is_refused = true,
            Action::Respond(own) => keys.set("respond", own.inline()),
            Action::Redirect(own) => keys.set("redirect", own),
            Action::Upstream { name, keys: own, is_cgi } => {
                keys.set("upstream", toml::text(&name));
                is_refused = !moved(&self.view, place, is_cgi, &mut keys);
                keys.0.extend(own.0);
            }
            Action::Static { root, view, keys: own, fallback } => {
                let upstream = matches!(fallback, Some(Fallback::Upstream(_)));
                match files(&root, &view, place, outer, &when) {
                    Some((folder, new_place, new_when)) => {
                        keys.set("static", environment::text(&folder));
                        at = new_place;
                        when = new_when;
                    }
                    None => is_refused = true,
                }
                match fallback {
                    Some(Fallback::File(file)) if at.0 == "/" || root_of(&view) => {
                        keys.set("fallback", environment::text(&relative(&file, &at.0)));
                    }
                    Some(Fallback::File(_)) => is_refused = true,
                    Some(Fallback::Upstream(name)) => {
                        keys.set("fallback", format!("{{ upstream = {} }}", toml::text(&name)));
                    }
                    None => {}
                }
                if upstream {
                    is_refused |= !moved(&self.view, place, false, &mut keys);
                }
                keys.0.extend(own.0);
            }
        }
        if is_refused {
            keys = Keys::of("respond", "{ status = 501 }");
            comment = format!("NOT CARRIED, see the report: {comment}");
        } else {
            keys.0.extend(self.keys.0);
        }
        Route { path: at.0, exact: at.1, when, keys, comment }
    }
}

fn root_of(view: &View) -> bool {
    matches!(view, View::Moved { add, .. } if add.is_empty())
}

/// The `fallback` file below the folder of a route, which is deeper than the `root` of Caddy for a deeper path.
fn relative(file: &str, place: &str) -> String {
    if place == "/" {
        file.to_owned()
    } else {
        file.strip_prefix(place.trim_end_matches('/')).unwrap_or(file).to_owned()
    }
}

/// The folder or file for a place. Where a folder does not exist, the route is at `/` with an expression, so that brisk accepts it,
/// unless routes between both would get its requests.
fn files(
    root: &str,
    view: &View,
    place: &Place,
    outer: Option<&Place>,
    when: &When,
) -> Option<(String, (String, bool), When)> {
    let visible = view.visible(place)?;
    let own = (place.path.clone(), place.exact);
    let base = root.trim_end_matches('/');
    if visible.path == "/" {
        return Some((if base.is_empty() { "/".to_owned() } else { base.to_owned() }, own, when.clone()));
    }
    let target = format!("{base}{}", visible.path);
    let last = visible.path.rsplit('/').next().unwrap_or_default();
    let is_file = last.contains('.') && !visible.path.ends_with('/');
    if (place.exact && is_file) || environment::has_variable(&target) {
        return Some((target, own, when.clone()));
    }
    // One fixed path is a file of an exact place only, which returns above.
    if matches!(view, View::Fixed(_)) {
        return None;
    }
    let metadata = Path::new(&target).metadata();
    let is_inner = outer.is_some_and(|outer| outer.path != "/");
    if is_inner || metadata.is_ok_and(|metadata| place.exact || metadata.is_dir()) {
        return Some((target.trim_end_matches('/').to_owned(), own, when.clone()));
    }
    let end = if place.exact { "$" } else { "" };
    let end = if !place.exact && !place.path.ends_with('/') { "(?:/|$)" } else { end };
    let expression = format!("^{}{end}", regex::escape(&place.path));
    let hoisted = when.and(&When::plain("path_regex", toml::raw(&expression)))?;
    view.is_original().then(|| (root.to_owned(), ("/".to_owned(), false), hoisted))
}

/// The keys for the path that an upstream gets: `strip_prefix`, `replace_prefix` or `rewrite_path`. Whether brisk can express it.
fn moved(view: &View, place: &Place, is_cgi: bool, keys: &mut Keys) -> bool {
    match view {
        View::Moved { strip, add } if strip.is_empty() && add.is_empty() => {}
        View::Moved { strip, add } if add.is_empty() => {
            let own = place.path.trim_end_matches('/') == strip;
            keys.set("strip_prefix", if own { "true".to_owned() } else { toml::text(strip) });
        }
        View::Moved { strip, add } if !strip.is_empty() => {
            if place.path.trim_end_matches('/') != strip {
                keys.set("strip_prefix", toml::text(strip));
            }
            let slash =
                if place.path.ends_with('/') && place.path.trim_end_matches('/') == strip { "/" } else { "" };
            keys.set("replace_prefix", toml::text(&format!("{add}{slash}")));
        }
        View::Moved { add, .. } => keys.set("rewrite_path", rewritten("^(.*)$", &format!("{add}{{1}}"))),
        View::Fixed(path) => {
            let end = if path.contains('?') { "?" } else { "" };
            keys.set("rewrite_path", rewritten("^.*$", &format!("{}{end}", path.replace('{', "{{"))));
        }
        View::Pattern { pattern, to } => keys.set("rewrite_path", rewritten(pattern, to)),
    }
    !(is_cgi && matches!(view, View::Pattern { .. }))
}

fn rewritten(pattern: &str, to: &str) -> String {
    format!("{{ pattern = {}, to = {} }}", toml::raw(pattern), toml::text(to))
}
