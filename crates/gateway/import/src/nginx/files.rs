//! Files, and the response for paths without a file.

use std::slice;

use crate::directive::Directive;
use crate::nginx::closing::closes;
use crate::nginx::flow::{Flow, Rewrite};
use crate::nginx::location::{Kind, Location, Route, program};
use crate::nginx::program::{Step, is_redirect, without_query};
use crate::nginx::scope::PASSES;
use crate::nginx::site::Site;
use crate::nginx::variables::Use;
use crate::toml::{self, Keys};

/// Candidates of `try_files` that brisk looks for by itself.
pub(crate) const CANDIDATES: [&str; 6] =
    ["$uri", "$uri/", "$uri/index.html", "${uri}", "$uri/index.htm", "$document_uri"];

/// Reason for a changed path (`rewrite`) of files with a response for paths without a file (`try_files`).
pub(crate) const ONE_PATH: &str =
    "brisk changes the path of files, or that of requests to a server for paths without a file";

/// Keys of a route with an upstream that a route with a fallback has too.
const CHANGES: [&str; 6] =
    ["request_headers", "rewrite_path", "rewrite_location", "cookies", "body_size", "buffer_request"];

impl<'a> Site<'_, 'a> {
    /// `try_files`.
    pub(crate) fn try_files(
        &self,
        files: &Directive,
        flow: &Flow<'_, 'a>,
        keys: &mut Keys,
    ) -> Result<(), String> {
        let (last, candidates) = files.args.split_last().ok_or("there are no files")?;
        if let Some(formed) = self.formed_candidates(candidates, flow) {
            let is_before_others = candidates.iter().rev().skip(1).any(|file| file == "$uri/");
            if is_before_others && flow.at.path == "/" {
                let detail =
                    "a path without the final slash is the file of a later entry before it is a folder";
                self.context.different(files, detail);
            }
            let flow = Flow { formed: Some(formed), ..flow.clone() };
            return match last.strip_prefix('=') {
                Some(_) => self.files(&flow, keys),
                None => self.fallback(("", last.as_str()), &flow, keys),
            };
        }
        let is_known = |file: &&String| CANDIDATES.contains(&file.as_str());
        let has_known = candidates.iter().any(|file| is_known(&file));
        if let Some(other) = candidates.iter().find(|file| has_known && !is_known(file)) {
            let detail = format!(
                "{other} is left out: brisk looks for the path, for index.html, and for the last entry"
            );
            self.context.different(files, detail);
        }
        let fixed = candidates.first().filter(|file| !file.contains('$'));
        match (has_known, last.strip_prefix('='), fixed) {
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
                    self.action(&next, &[], keys)
                }
                None => self.fallback(("", last.as_str()), flow, keys),
            },
            (false, None, None) => self.without_files(files, last, flow, keys),
            (false, Some(_), None) => Err("the files have other variables than $uri".to_owned()),
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
                _ => self.fallback_upstream(flow, &flow.to(named), &[], keys),
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
            if without_query(target).contains('?') {
                match self.last_entry(target, flow) {
                    Ok(rewrite) => return self.fallback_upstream(flow, &next, &[rewrite], keys),
                    Err(reason) => {
                        if let Some(files) = flow.scope.one("try_files") {
                            self.context
                                .different(files, format!("{reason}: the query of the last entry is lost"));
                        }
                    }
                }
            }
            // The last entry of `try_files` is the front controller, which PHP runs for every path without a
            // script.
            next.script = (pass.name == "fastcgi_pass").then(|| path.to_owned());
            return self.fallback_upstream(flow, &next, &[], keys);
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
        // Files of several paths are below the folder of the server.
        let is_formed = keys.get("rewrite_files").is_some();
        let prefix = if is_formed { "" } else { flow.at.path.trim_end_matches('/') };
        let below = path.strip_prefix(prefix).filter(|below| below.starts_with('/'));
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
        self.fallback_upstream(flow, &next, &[rewrite], keys)?;
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
        rewrites: &[Rewrite],
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
            return self.action(next, rewrites, keys);
        }
        self.or_server(next, rewrites, keys)
    }

    /// The server of `next` for paths without a file.
    pub(crate) fn or_server(
        &self,
        next: &Flow<'_, 'a>,
        rewrites: &[Rewrite],
        keys: &mut Keys,
    ) -> Result<(), String> {
        let mut target = Keys::default();
        self.action(next, rewrites, &mut target)?;
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
        if let Some((pattern, to)) = &flow.formed {
            return self.candidate_files(pattern, to, flow, keys);
        }
        if !flow.absent.is_empty() {
            return self.absent_files(flow, keys);
        }
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
            let result =
                self.below((&base[..end], "rewrite_path"), &[(flow.values.pattern.clone(), to)], scope, keys);
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

    /// Kind of the `location` that has a directive in its own block.
    pub(crate) fn owner<'s>(&'s self, line: &Directive, flow: &Flow<'s, 'a>) -> Option<&'s Kind> {
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
