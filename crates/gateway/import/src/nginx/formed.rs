//! Files at changed paths: those of a `rewrite`, and candidates of `try_files` with other parts than `$uri`.

use crate::directive::Directive;
use crate::nginx::cgi::is_script;
use crate::nginx::closing::closes;
use crate::nginx::files::{CANDIDATES, ONE_PATH};
use crate::nginx::flow::{Flow, Rewrite};
use crate::nginx::location::{Kind, Location, Route, program};
use crate::nginx::pattern::{self, covers, is_every};
use crate::nginx::program::{is_redirect, without_query};
use crate::nginx::proxy::{all_rewritten, rewritten};
use crate::nginx::scope::{PASSES, Scope};
use crate::nginx::site::Site;
use crate::nginx::variables::{Use, Values};
use crate::toml::{self, Keys};

/// Stands for the path of the request in a candidate.
const PATH: char = '\u{4}';

impl<'a> Site<'_, 'a> {
    /// One file for all paths of a route.
    pub(crate) fn one_file(&self, uri: &str, flow: &Flow<'_, 'a>, keys: &mut Keys) -> Result<(), String> {
        if uri.ends_with('/') {
            return Err("the file is a folder".to_owned());
        }
        // Not as `fallback`, with which the other files of the folder would be served too.
        self.formed_files(&[("^".to_owned(), uri.to_owned())], flow, keys)
    }

    /// Files of a location without `try_files`, at the paths that each `rewrite` forms.
    pub(crate) fn changed_files(
        &self,
        rewrites: &[Rewrite],
        flow: &Flow<'_, 'a>,
        keys: &mut Keys,
    ) -> Result<(), String> {
        let result = match rewrites {
            [(pattern, to)] if is_every(pattern) && !to.contains(['{', '?']) => self.one_file(to, flow, keys),
            _ => self.formed_files(rewrites, flow, keys),
        };
        result.inspect_err(|reason| {
            let folders = flow.scope.all_of(&["root", "alias"]).1;
            if let Some(place) = folders.first().copied().or(flow.location.directive) {
                self.context.missing(place, reason.as_str(), "write static with rewrite_path in a route");
            }
        })
    }

    /// Files at the paths that each `rewrite` forms, below the folder of the location (`root`, `alias`).
    pub(crate) fn formed_files(
        &self,
        rewrites: &[Rewrite],
        flow: &Flow<'_, 'a>,
        keys: &mut Keys,
    ) -> Result<(), String> {
        self.files_at(rewrites, "rewrite_path", flow, keys)
    }

    /// [`Self::formed_files`] with the paths in `key`.
    fn files_at(
        &self,
        rewrites: &[Rewrite],
        key: &str,
        flow: &Flow<'_, 'a>,
        keys: &mut Keys,
    ) -> Result<(), String> {
        let (_, folders) = flow.scope.all_of(&["root", "alias"]);
        let folder = *folders.first().ok_or("there is no root")?;
        let base = flow.values.fill(folder.arg(0));
        if base.contains('$') {
            return Err("the folder depends on a variable".to_owned());
        }
        let is_root = folder.name == "root";
        let owner = self.owner(folder, flow).filter(|_| !is_root);
        // `alias` replaces the path of its location in the changed path.
        let own = |to: &str| match owner {
            _ if is_root => Some(to.to_owned()),
            Some(Kind::Prefix { path, .. }) if path.ends_with('/') && base.ends_with('/') => {
                to.strip_prefix(path.as_str()).map(|rest| format!("/{rest}"))
            }
            _ => None,
        };
        let own = rewrites.iter().map(|(pattern, to)| Some((pattern.clone(), own(to)?)));
        let mut own = own.collect::<Option<Vec<_>>>().ok_or("the changed path is outside of the folder")?;
        let is_whole = |(pattern, _): &Rewrite| {
            covers(pattern, &flow.at.path) || is_every(pattern) || flow.when.is_of_path(pattern)
        };
        let start = match owner {
            Some(Kind::Prefix { path, .. }) => path.as_str(),
            _ => "/",
        };
        if flow.at.path != start && !rewrites.iter().any(is_whole) {
            if !is_root {
                return Err("the files of other paths are below another folder".to_owned());
            }
            // Other paths are below the same folder.
            own.push(("^.*$".to_owned(), "{0}".to_owned()));
        }
        self.context.carried(folder);
        self.below((base.trim_end_matches('/'), key), &own, &flow.scope, keys)
    }

    /// Files at other paths below a folder: `static` with `key`, which is `rewrite_path` or `rewrite_files`.
    pub(crate) fn below(
        &self,
        (folder, key): (&str, &str),
        rewrites: &[Rewrite],
        scope: &Scope<'a>,
        keys: &mut Keys,
    ) -> Result<(), String> {
        rewrites.iter().try_for_each(|(_, to)| self.check_source(to))?;
        keys.set("static", self.context.file(if folder.is_empty() { "/" } else { folder }));
        keys.set(key, all_rewritten(rewrites));
        self.file_settings(scope, keys);
        // brisk has no lists of folders with other paths.
        keys.0.retain(|(key, _)| key != "listing");
        Ok(())
    }

    /// Files at changed paths (`rewrite_files`), and the server of a named location (`@name`) for those without a file, which gets
    /// the changed path too (`rewrite_path`).
    pub(crate) fn formed_or_server(
        &self,
        rewrites: &[Rewrite],
        files: &Directive,
        flow: &Flow<'_, 'a>,
        keys: &mut Keys,
    ) -> Result<(), String> {
        let (last, candidates) = files.args.split_last().ok_or("there are no files")?;
        let is_plain = candidates.iter().all(|file| CANDIDATES.contains(&file.as_str()));
        let named = self.named(last).filter(|named| is_plain && program(named.scope.own()).is_empty());
        let next = flow.to(named.ok_or(ONE_PATH)?);
        flow.same_restrictions(&next)?;
        self.files_at(rewrites, "rewrite_files", flow, keys)?;
        self.or_server(&next, rewrites, keys)
    }

    /// The expression and the templates for candidates of `try_files`; none if brisk looks for all of them by itself, or cannot
    /// form them.
    pub(crate) fn formed_candidates(
        &self,
        candidates: &[String],
        flow: &Flow<'_, 'a>,
    ) -> Option<(String, Vec<String>)> {
        let is_known = |file: &String| CANDIDATES.contains(&file.as_str());
        let is_usual = candidates.iter().all(|file| is_known(file) || file == "/dev/null");
        // A file of a fixed path alone is one for all paths, and the source text of a script is no file.
        if is_usual
            || !candidates.iter().any(|file| file.contains('$'))
            || candidates.iter().any(|file| is_script(file))
        {
            return None;
        }
        let (_, folders) = flow.scope.all_of(&["root", "alias"]);
        folders
            .first()
            .filter(|folder| folder.name == "root" && !flow.values.fill(folder.arg(0)).contains('$'))?;
        let mut to = Vec::new();
        for file in candidates.iter().filter(|file| *file != "/dev/null") {
            let marked = flow.values.fill(file).replace("${uri}", "$uri").replace("$document_uri", "$uri");
            // A folder is found by its path. Below another path, brisk sends its page without the redirect to the final slash.
            let is_found =
                marked == "$uri/" && flow.at.path == "/" && candidates.iter().any(|file| file == "$uri");
            if marked.contains("$uri_") || is_found {
                continue;
            }
            let formed =
                self.context.template(&marked.replace("$uri", &PATH.to_string()), &flow.values, Use::Path);
            let formed = formed.ok()?.replace(PATH, "{0}");
            self.check_source(&formed).ok()?;
            if !to.contains(&formed) {
                to.push(formed);
            }
        }
        let has_path = to.iter().any(|file| file.contains("{0}"));
        let has_groups = to.iter().any(|file| file.replace("{0}", "").replace("{{", "").contains('{'));
        match (&flow.location.kind, has_path, has_groups) {
            _ if to.is_empty() => None,
            (_, _, false) => Some(("^.*$".to_owned(), to)),
            // The whole match need not be the whole path.
            (Kind::Expression { .. }, false, true) if flow.values.groups => {
                Some((flow.values.pattern.clone(), to))
            }
            _ => None,
        }
    }

    /// Files at the paths of [`Self::formed_candidates`].
    pub(crate) fn candidate_files(
        &self,
        pattern: &str,
        to: &[String],
        flow: &Flow<'_, 'a>,
        keys: &mut Keys,
    ) -> Result<(), String> {
        let root = flow.scope.one("root").ok_or("there is no root")?;
        let base = flow.values.fill(root.arg(0));
        if base.contains('$') {
            return Err("the folder depends on a variable".to_owned());
        }
        let base = base.trim_end_matches('/');
        self.context.carried(root);
        keys.set("static", self.context.file(if base.is_empty() { "/" } else { base }));
        keys.set("rewrite_files", candidates(pattern, to));
        self.file_settings(&flow.scope, keys);
        keys.0.retain(|(key, _)| key != "listing");
        Ok(())
    }

    /// The changes of an `if (!-e $request_filename)` with several `rewrite`, as networks of sites in `WordPress` have it; none for
    /// another one. Redirects become routes.
    pub(crate) fn absent_paths(
        &self,
        flow: &Flow<'_, 'a>,
        step: &'a Directive,
        routes: &mut Vec<Route>,
    ) -> Option<Vec<Rewrite>> {
        let is_absent = step.args.iter().any(|arg| matches!(arg.trim_start_matches('('), "!-e" | "!-f"));
        let is_several = step.inner().len() > 1 && step.inner().iter().all(|line| line.name == "rewrite");
        if !is_absent || !is_several {
            return None;
        }
        let (redirects, mut changes): (Vec<_>, Vec<_>) =
            step.inner().iter().partition(|line| is_redirect(line));
        let before = changes.split_last().map_or(&[][..], |(_, before)| before);
        if before.iter().any(|line| !matches!(line.arg(2), "last" | "break")) {
            return None;
        }
        // An expression that cannot match below this prefix is none of this location.
        changes.retain(|line| flow.at.exact || pattern::can_match(line.arg(0), false, &flow.at.path));
        let change = |line: &&'a Directive| {
            let kept = without_query(line.arg(1));
            let source = pattern::translate(line.arg(0), false).ok()?;
            let groups = flow.values.clone().with_groups(&source);
            let to = self.context.template(&kept, &groups, Use::Path).ok()?;
            let changed = (line.arg(0), kept.as_str());
            let is_closed = !self.is_open(&kept, flow) || self.hidden(changed, flow, flow).is_some();
            let is_used = is_to_end(&source) || flow.location.scope.all_of(&PASSES).0 > 2;
            let is_followed = !is_used || self.stays(changed, flow);
            (!is_closed).then_some((*line, (source, to), is_followed))
        };
        let all = changes.iter().map(change).collect::<Option<Vec<_>>>()?;
        for line in redirects {
            if self.rewrite(flow, line, routes).is_err() {
                self.context.different(line, "not for paths of locations with an expression");
            }
        }
        let mut changes = Vec::new();
        for (line, rewrite, is_followed) in all {
            if is_followed {
                changes.push(rewrite);
            } else {
                self.context.different(line, "not for paths of locations that nginx leaves by it");
            }
        }
        Some(changes)
    }

    /// Files at the path of the request, or at a path of [`Flow::absent`].
    pub(crate) fn absent_files(&self, flow: &Flow<'_, 'a>, keys: &mut Keys) -> Result<(), String> {
        let is_file = |(pattern, to): &&Rewrite| is_to_end(pattern) && self.check_source(to).is_ok();
        let all = flow.absent.iter().filter(is_file);
        let mut tables: Vec<_> =
            all.map(|(pattern, to)| candidates(pattern, &["{0}".to_owned(), to.clone()])).collect();
        let (_, folders) = flow.scope.all_of(&["root", "alias"]);
        let is_root = folders.first().is_some_and(|folder| folder.name == "root");
        if tables.is_empty() || !is_root {
            return self.files(&Flow { absent: Vec::new(), ..flow.clone() }, keys);
        }
        if flow.at.path != "/" {
            // Other paths are below the same folder.
            tables.push(candidates("^.*$", &["{0}".to_owned()]));
        }
        self.candidate_files("^.*$", &[], flow, keys)?;
        keys.set("rewrite_files", format!("[{}]", tables.join(", ")));
        Ok(())
    }

    /// The changed path of a `rewrite` that concerns all paths (`^(.*)$`), and the location that it reaches.
    pub(crate) fn rewritten(
        &self,
        flow: &Flow<'_, 'a>,
        step: &Directive,
    ) -> Result<(Rewrite, &Location<'a>), String> {
        let every = ["^/(.*)", "^/(.*)$", "^(.*)$", "^(.*)", "(.*)"];
        if !is_every(step.arg(0)) && !every.contains(&step.arg(0)) {
            return Err("the last rewrite is not for all paths".to_owned());
        }
        let groups = Values { groups: true, ..flow.values.clone() };
        let to = self.context.template(&without_query(step.arg(1)), &groups, Use::Path)?;
        let is_whole = matches!(step.arg(0), "^(.*)$" | "^(.*)" | "(.*)");
        let end = step.arg(1).strip_prefix("$1").filter(|end| is_whole && end.starts_with('.'));
        let (next, is_hidden) = if let Some(end) = end.filter(|end| !end.contains(['$', '?', '/'])) {
            // Only a location whose path has a part of the end is another one than before.
            let next = self.find(&format!("/x{end}")).ok_or("no location fits the new path")?;
            (next, next.refused || self.hides_end(end, &flow.to(next)))
        } else {
            let next = self.target(step.arg(1)).ok_or("no location fits the new path")?;
            (next, self.reached((step.arg(0), step.arg(1)), flow, Some(next))?.is_some())
        };
        if is_hidden {
            return Err("a location for some of the new paths has restrictions of its own".to_owned());
        }
        Ok(((pattern::translate(step.arg(0), false)?, to), next))
    }

    /// Whether a location with restrictions that `next` does not have is about paths that end with a part of `end` (`.php`), which
    /// a change appends.
    fn hides_end(&self, end: &str, next: &Flow<'_, 'a>) -> bool {
        let is_about =
            |path: &str| (1..=end.len()).any(|part| end.get(..part).is_some_and(|part| path.ends_with(part)));
        let is_expression = matches!(next.location.kind, Kind::Expression { .. });
        let mut others = self.locations.iter().filter(|other| match &other.kind {
            Kind::Prefix { path, .. } | Kind::Exact(path) => is_about(path),
            // nginx takes the first expression that matches.
            Kind::Expression { .. } => !is_expression || other.number < next.location.number,
            Kind::Named(_) => false,
        });
        let is_restricted = |other: &Location<'a>| {
            other.refused || closes(other.scope.own()) && next.same_restrictions(&next.to(other)).is_err()
        };
        others.any(is_restricted)
    }

    /// The last entry of `try_files` for all paths, because brisk cannot form the paths of the files before it, as
    /// `/$cache/$uri`.
    pub(crate) fn without_files(
        &self,
        files: &Directive,
        last: &str,
        flow: &Flow<'_, 'a>,
        keys: &mut Keys,
    ) -> Result<(), String> {
        let detail = "brisk looks for no files whose paths have these variables: the last entry responds to all requests";
        if let Some(named) = self.named(last) {
            let next = flow.to(named);
            flow.same_restrictions(&next)?;
            self.action(&next, &[], keys)?;
            self.context.different(files, detail);
            return Ok(());
        }
        let next = self.find(last.split(['?', '$']).next().unwrap_or_default());
        let next = next.filter(|next| !std::ptr::eq(*next, flow.location));
        let next = flow.to(next.ok_or("there is no location for paths without a file")?);
        flow.same_restrictions(&next)?;
        if self.reached(("", last), flow, Some(next.location))?.is_some() {
            return Err("a location for some of the paths has restrictions of its own".to_owned());
        }
        self.action(&next, &[self.last_entry(last, flow)?], keys)?;
        self.context.different(files, detail);
        Ok(())
    }

    /// The change of all paths to the last entry of `try_files`, whose query (`?file=$1`) replaces that of the client.
    pub(crate) fn last_entry(&self, last: &str, flow: &Flow<'_, 'a>) -> Result<Rewrite, String> {
        let kept = without_query(last);
        let end = if kept == last { "?" } else { "" };
        let marked = kept.replace("$uri", &PATH.to_string());
        let to = self.context.template(&marked, &flow.values, Use::Path)?;
        let has_groups = to.replace("{{", "").contains('{');
        let is_expression = flow.values.groups && matches!(flow.location.kind, Kind::Expression { .. });
        let pattern = match (has_groups, to.contains(PATH)) {
            (false, _) => "^.*$".to_owned(),
            (true, false) if is_expression => flow.values.pattern.clone(),
            _ => return Err("the whole match of the expression need not be the path".to_owned()),
        };
        Ok((pattern, format!("{}{end}", to.replace(PATH, "{0}"))))
    }
}

/// Whether an expression is about whole paths (`^/a/(.*)$`). Without `.*` at its end, it is about scripts, and its match may be a part of the
/// path only.
fn is_to_end(pattern: &str) -> bool {
    pattern.starts_with('^') && pattern.trim_end_matches([')', '$']).ends_with(".*")
}

/// A table of `rewrite_files`: an expression with the paths of files for its matches, of which the first with a file is sent.
fn candidates(pattern: &str, to: &[String]) -> String {
    match to {
        [one] => rewritten(pattern, one),
        all => format!("{{ pattern = {}, to = {} }}", toml::raw(pattern), toml::list(all)),
    }
}
