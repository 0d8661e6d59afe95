//! Files, and the response for paths without a file.

use std::slice;

use crate::directive::Directive;
use crate::nginx::closing::closes;
use crate::nginx::flow::Flow;
use crate::nginx::location::{Kind, Location, Route, program};
use crate::nginx::pattern::{covers, is_every};
use crate::nginx::program::{Rewrite, Step, is_redirect};
use crate::nginx::proxy::rewritten;
use crate::nginx::scope::{PASSES, Scope};
use crate::nginx::site::Site;
use crate::nginx::variables::Use;
use crate::toml::{self, Keys};

/// Candidates of `try_files` that brisk looks for by itself.
const CANDIDATES: [&str; 6] =
    ["$uri", "$uri/", "$uri/index.html", "${uri}", "$uri/index.htm", "$document_uri"];

/// Reason for a changed path (`rewrite`) of files with a response for paths without a file (`try_files`).
pub(crate) const ONE_PATH: &str =
    "brisk changes the path of files, or that of requests to a server for paths without a file";

/// Keys of a route with an upstream that a route with a fallback has too.
const CHANGES: [&str; 6] =
    ["request_headers", "rewrite_path", "rewrite_location", "cookies", "body_size", "buffer_request"];

impl<'a> Site<'_, 'a> {
    /// One file for all paths of a route.
    fn one_file(&self, uri: &str, flow: &Flow<'_, 'a>, keys: &mut Keys) -> Result<(), String> {
        if uri.ends_with('/') {
            return Err("the file is a folder".to_owned());
        }
        // Not as `fallback`, with which the other files of the folder would be served too.
        self.formed_files(&("^".to_owned(), uri.to_owned()), flow, keys)
    }

    /// `try_files`.
    pub(crate) fn try_files(
        &self,
        files: &Directive,
        flow: &Flow<'_, 'a>,
        keys: &mut Keys,
    ) -> Result<(), String> {
        let (last, candidates) = files.args.split_last().ok_or("there are no files")?;
        let is_known = |file: &&String| CANDIDATES.contains(&file.as_str());
        if let Some(other) = candidates.iter().find(|file| !is_known(file)) {
            let detail = format!(
                "{other} is left out: brisk looks for the path, for index.html, and for the last entry"
            );
            self.context.different(files, detail);
        }
        let fixed = candidates.first().filter(|file| !file.contains('$'));
        match (candidates.iter().any(|file| is_known(&file)), last.strip_prefix('='), fixed) {
            (true, Some(status), _) => {
                if status != "404" {
                    self.context.different(files, "a path without a file is 404");
                }
                self.files(flow, keys)
            }
            (true, None, _) => self.fallback(("", last.as_str()), flow, keys),
            (false, Some(_), Some(file)) => self.one_file(file, flow, keys),
            (false, None, Some(_)) => match self.named(last) {
                Some(named) => {
                    let next = flow.to(named);
                    // nginx checks the restrictions of the named location too, so a route that has fewer of
                    // them would be open.
                    flow.same_restrictions(&next)?;
                    self.action(&next, None, keys)
                }
                None => self.fallback(("", last.as_str()), flow, keys),
            },
            (false, _, None) => Err("the files have other variables than $uri".to_owned()),
        }
    }

    /// Files, and `target` for paths without a file: a named location, a file, or a path of another location. `source` is the
    /// expression whose groups it has.
    pub(crate) fn fallback(
        &self,
        (source, target): (&str, &str),
        flow: &Flow<'_, 'a>,
        keys: &mut Keys,
    ) -> Result<(), String> {
        if let Some(named) = self.named(target) {
            return match program(named.scope.own()).split_last() {
                Some((step, before)) if step.name == "rewrite" => {
                    if before.iter().any(|own| closes(slice::from_ref(*own))) {
                        return Err(
                            "the location for paths without a file has conditions of its own".to_owned()
                        );
                    }
                    self.fallback_rewritten(flow, step, keys)
                }
                _ => self.fallback_upstream(flow, &flow.to(named), None, keys),
            };
        }
        let path = target.split(['?', '$']).next().unwrap_or_default();
        if !path.starts_with('/') {
            return Err("there is no location for paths without a file".to_owned());
        }
        // Without a location for the path, nginx stays in this one.
        let next = self.find(path).unwrap_or(flow.location);
        if !std::ptr::eq(next, flow.location) {
            flow.same_restrictions(&flow.to(next))?;
        }
        if next.refused || self.hidden((source, target), flow, &flow.to(next)).is_some() {
            return Err("a location for some of the paths has restrictions of its own".to_owned());
        }
        let (level, passes) = next.scope.all_of(&PASSES);
        if let Some(pass) = passes.first().filter(|_| level > 2) {
            let mut next = flow.to(next);
            // The last entry of `try_files` is the front controller, which PHP runs for every path without a
            // script.
            next.script = (pass.name == "fastcgi_pass").then(|| path.to_owned());
            return self.fallback_upstream(flow, &next, None, keys);
        }
        self.files(flow, keys)?;
        if keys.get("rewrite_path").is_some() {
            return Err(ONE_PATH.to_owned());
        }
        if keys.get("static").is_none() {
            // nginx has no files without `root`.
            keys.set("respond", "{ status = 404 }");
            return Ok(());
        }
        let below =
            path.strip_prefix(flow.at.path.trim_end_matches('/')).filter(|below| below.starts_with('/'));
        let below = below.ok_or("the file for paths without a file is outside of the folder of the route")?;
        self.check_source(below)?;
        let index = if below.ends_with('/') { "index.html" } else { "" };
        keys.set("fallback", toml::text(&format!("{below}{index}")));
        Ok(())
    }

    /// Files, and the script of a `rewrite` for paths without a file.
    fn fallback_rewritten(
        &self,
        flow: &Flow<'_, 'a>,
        step: &Directive,
        keys: &mut Keys,
    ) -> Result<(), String> {
        let (rewrite, next) = self.rewritten(flow, step)?;
        let next = flow.to(next);
        self.fallback_upstream(flow, &next, Some(&rewrite), keys)?;
        self.context.carried(step);
        Ok(())
    }

    /// The routes for changed paths of a named location to which `try_files` leads, except the last one.
    pub(crate) fn rewritten_paths(&self, flow: &Flow<'_, 'a>, routes: &mut Vec<Route>) {
        let files = flow.scope.one("try_files");
        let named = files.and_then(|files| self.named(files.args.last()?));
        let steps = named.map(|named| program(named.scope.own())).unwrap_or_default();
        let Some((_, before)) = steps.split_last().filter(|(last, _)| last.name == "rewrite") else { return };
        for step in before {
            let is_change = step.name == "rewrite";
            if is_change && matches!(self.rewrite(flow, step, routes), Ok(Step::Next | Step::Done)) {
                self.context.different(step, "brisk looks for no file of this path");
                continue;
            }
            let reason = "it is one of several changes of a path";
            self.context.missing(step, reason, "write a route with rewrite_path");
            if is_change && !is_redirect(step) {
                Self::refuse_changed(flow, step, routes);
            }
        }
    }

    /// Files, and the server of `next` for paths without a file.
    pub(crate) fn fallback_upstream(
        &self,
        flow: &Flow<'_, 'a>,
        next: &Flow<'_, 'a>,
        rewrite: Option<&Rewrite>,
        keys: &mut Keys,
    ) -> Result<(), String> {
        flow.same_restrictions(next)?;
        self.files(flow, keys)?;
        if keys.get("rewrite_path").is_some() {
            return Err(ONE_PATH.to_owned());
        }
        // Without files, all requests lead to the server, and the settings of files have no use.
        if keys.get("static").is_none() {
            keys.0.clear();
            return self.action(next, rewrite, keys);
        }
        let mut target = Keys::default();
        self.action(next, rewrite, &mut target)?;
        let upstream = target.get("upstream").ok_or("paths without a file do not lead to a server")?;
        keys.set("fallback", format!("{{ upstream = {upstream} }}"));
        // nginx takes header rules and body limits from the location with the server.
        self.route_settings(next, keys);
        for key in CHANGES {
            if let Some(value) = target.get(key) {
                keys.set(key, value);
            }
        }
        Ok(())
    }

    /// Files of `root` or `alias`.
    pub(crate) fn files(&self, flow: &Flow<'_, 'a>, keys: &mut Keys) -> Result<(), String> {
        let (scope, at) = (&flow.scope, flow.at);
        let (_, folders) = scope.all_of(&["root", "alias"]);
        let Some(folder) = folders.first() else {
            if at.path != "/" || !flow.when.is_empty() {
                keys.set("respond", "{ status = 404 }");
            }
            return Ok(());
        };
        let base = flow.values.fill(folder.arg(0).trim_end_matches('/'));
        // The path of an `alias` in a location with an expression is that of the file.
        if let Some((start, _)) =
            base.split_once('$').filter(|_| folder.name == "alias" && flow.values.groups)
            && let Some(end) = start.rfind('/')
            && let Ok(to) = self.context.template(&base[end..], &flow.values, Use::Path)
            && matches!(flow.location.kind, Kind::Expression { .. })
        {
            self.context.carried(folder);
            let result = self.below(&base[..end], (&flow.values.pattern, &to), scope, keys);
            return result.inspect_err(|reason| {
                self.context.missing(folder, reason.as_str(), "write a route for each file");
            });
        }
        if base.contains('$') {
            let reason = "the folder depends on a variable";
            self.context.missing(folder, reason, "write a host or a route for each folder");
            return Err(reason.to_owned());
        }
        self.context.carried(folder);
        let is_alias = folder.name == "alias";
        let path = if is_alias { self.alias(folder, &base, flow)? } else { format!("{base}{}", at.path) };
        if at.exact && (is_alias && self.context.is_file(&path) || self.context.has_file(&path)) {
            keys.set("static", self.context.file(&path));
        } else if at.exact && (is_alias || self.context.has_folder(&base, folder_of(&at.path))) {
            let (parent, name) = path.rsplit_once('/').unwrap_or((".", &path));
            keys.set("static", self.context.file(if parent.is_empty() { "/" } else { parent }));
            // The file is not on this machine. Its folder is served, with the file as the only response.
            if !name.is_empty() {
                keys.set("fallback", toml::text(&format!("/{name}")));
            }
        } else if !at.exact && is_alias && self.context.is_file(&path) {
            keys.set("exact", "true");
            keys.set("static", self.context.file(&path));
        } else if !at.exact && (is_alias || self.context.has_folder(&base, &at.path)) {
            let trimmed = path.trim_end_matches('/');
            keys.set("static", self.context.file(if trimmed.is_empty() { "/" } else { trimmed }));
        } else {
            // brisk requires that the folder exists; nginx would find no file.
            keys.set("respond", "{ status = 404 }");
            return Ok(());
        }
        self.file_settings(scope, keys);
        Ok(())
    }

    /// Files of a location without `try_files`, at the path that a `rewrite` forms.
    pub(crate) fn changed_files(
        &self,
        rewrite: &Rewrite,
        flow: &Flow<'_, 'a>,
        keys: &mut Keys,
    ) -> Result<(), String> {
        let (pattern, to) = rewrite;
        let result = if is_every(pattern) && !to.contains(['{', '?']) {
            self.one_file(to, flow, keys)
        } else {
            self.formed_files(rewrite, flow, keys)
        };
        result.inspect_err(|reason| {
            let folders = flow.scope.all_of(&["root", "alias"]).1;
            if let Some(place) = folders.first().copied().or(flow.location.directive) {
                self.context.missing(place, reason.as_str(), "write static with rewrite_path in a route");
            }
        })
    }

    /// Files at the path that a `rewrite` forms, below the folder of the location.
    pub(crate) fn formed_files(
        &self,
        (pattern, to): &Rewrite,
        flow: &Flow<'_, 'a>,
        keys: &mut Keys,
    ) -> Result<(), String> {
        let (_, folders) = flow.scope.all_of(&["root", "alias"]);
        let folder = *folders.first().ok_or("there is no root")?;
        let base = flow.values.fill(folder.arg(0));
        if base.contains('$') {
            return Err("the folder depends on a variable".to_owned());
        }
        let is_known = flow.when.has_path() || covers(pattern, &flow.at.path) || is_every(pattern);
        if !is_known && flow.at.path != "/" {
            return Err("the files of other paths are below another folder".to_owned());
        }
        // `alias` replaces the path of its location in the changed path.
        let own = match (self.owner(folder, flow), folder.name.as_str()) {
            (_, "root") => Some(to.clone()),
            (Some(Kind::Prefix { path, .. }), _) if path.ends_with('/') && base.ends_with('/') => {
                to.strip_prefix(path.as_str()).map(|rest| format!("/{rest}"))
            }
            _ => None,
        };
        let own = own.ok_or("the changed path is outside of the folder")?;
        self.context.carried(folder);
        self.below(base.trim_end_matches('/'), (pattern, &own), &flow.scope, keys)
    }

    /// Files at another path below a folder: `static` with `rewrite_path`.
    fn below(
        &self,
        folder: &str,
        (pattern, to): (&str, &str),
        scope: &Scope<'a>,
        keys: &mut Keys,
    ) -> Result<(), String> {
        self.check_source(to)?;
        keys.set("static", self.context.file(if folder.is_empty() { "/" } else { folder }));
        keys.set("rewrite_path", rewritten(pattern, to));
        self.file_settings(scope, keys);
        // brisk has no lists of folders with other paths.
        keys.0.retain(|(key, _)| key != "listing");
        Ok(())
    }

    /// Kind of the location that has a directive in its own block.
    fn owner<'s>(&'s self, line: &Directive, flow: &Flow<'s, 'a>) -> Option<&'s Kind> {
        let has_line = |location: &&Location<'a>| location.scope.own().iter().any(|own| own.id == line.id);
        let owner = [flow.location].into_iter().chain(&self.locations).find(has_line);
        owner.map(|location| &location.kind)
    }

    /// The folder for the path of a place. `alias` replaces the path of its own location, also for the locations inside of it.
    fn alias(&self, alias: &Directive, base: &str, flow: &Flow<'_, 'a>) -> Result<String, String> {
        let own = self.owner(alias, flow);
        let Some(Kind::Prefix { path, .. } | Kind::Exact(path)) = own else { return Ok(base.to_owned()) };
        match flow.at.path.strip_prefix(path.as_str()) {
            Some("") => Ok(base.to_owned()),
            Some(below) if path.ends_with('/') == alias.arg(0).ends_with('/') => {
                Ok(format!("{base}{}{below}", if path.ends_with('/') { "/" } else { "" }))
            }
            _ => {
                let reason = "the folder is that of paths which brisk cannot name";
                self.context.missing(alias, reason, "write a route for each folder");
                Err(reason.to_owned())
            }
        }
    }
}

/// Whether `try_files` finds the file of the path or responds with an error, as `$uri =404` does.
pub(crate) fn finds_only(files: &Directive) -> bool {
    let is_known = |file: &String| CANDIDATES.contains(&file.as_str());
    files.args.split_last().is_some_and(|(last, rest)| last.starts_with('=') && rest.iter().all(is_known))
}

/// The path without its last part.
fn folder_of(path: &str) -> &str {
    path.rfind('/').map_or("", |end| &path[..end])
}
