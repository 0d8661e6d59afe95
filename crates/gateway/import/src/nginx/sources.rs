//! Source text of scripts, which no route sends.

use crate::nginx::condition::When;
use crate::nginx::location::{At, Location, Route};
use crate::nginx::site::Site;
use crate::nginx::variables::Values;
use crate::toml::Keys;

/// Ends of the names of scripts, in lower case.
const SOURCES: [&str; 3] = [".php", ".phtml", ".phar"];

impl<'a> Site<'_, 'a> {
    /// Whether a `location` leads to scripts.
    pub(crate) fn has_scripts(&self) -> bool {
        let has_one = || self.locations.iter().any(|other| other.scope.one("fastcgi_pass").is_some());
        *self.index.has_scripts.get_or_init(has_one)
    }

    /// Requires that a changed path of files is not that of a script.
    pub(crate) fn check_source(&self, path: &str) -> Result<(), String> {
        let path = path.split('?').next().unwrap_or_default().to_ascii_lowercase();
        if self.has_scripts() && SOURCES.iter().any(|end| path.ends_with(end)) {
            return Err("the file is a script, whose source text brisk does not send".to_owned());
        }
        Ok(())
    }

    /// Makes the last routes short and safe: without a route for scripts whose requests the next one gives to the same server, and,
    /// if a server has scripts that no route finds here, with one that sends no source text.
    pub(crate) fn without_sources(
        location: &Location<'a>,
        start: usize,
        has_scripts: bool,
        routes: &mut Vec<Route>,
    ) {
        let Some(last) = routes.last().filter(|last| last.keys.get("static").is_some()) else { return };
        let fallback = last.keys.get("fallback").filter(|fallback| fallback.starts_with('{'));
        if fallback.is_none() && has_scripts {
            let path = last.path.clone();
            let when = When::plain("path_regex", "'(?i)\\.(php|phtml|phar)$'".to_owned());
            let at = At { path, exact: false, when: when.clone(), values: Values::default() };
            let mut keys = Keys::default();
            keys.set("respond", "{ status = 404 }");
            return routes.insert(start, Self::route(location, &at, when, keys));
        }
        let (Some(fallback), Some(before)) = (fallback, start.checked_sub(1)) else { return };
        let own = routes[before].keys.get("upstream").map(|name| format!("{{ upstream = {name} }}"));
        let count = last.keys.0.iter().filter(|(key, _)| key != "index").count();
        let is_same = own.is_some_and(|own| own == fallback) && count == 2;
        let scripts = &routes[before];
        let is_plain = scripts.keys.0.len() == 1 && scripts.path == last.path && !scripts.exact;
        if is_same && is_plain && routes.len() == start + 1 && scripts.when.is_about_scripts() {
            routes.remove(before);
        }
    }
}
