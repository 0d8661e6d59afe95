//! Folders with scripts of application servers that a route would send as text.

use std::path::{Path, PathBuf};

use brisk_config_file::KeyPath;
use brisk_upstream_group::features::cgi::Files;

use super::Context;
use crate::raw;

/// Warns of routes with files that share a folder with the scripts of an upstream and do not leave scripts to it.
pub(super) fn review(raw: &raw::Config, context: &mut Context<'_>) {
    let roots: Vec<_> =
        raw.upstream.iter().filter_map(|(name, group)| Some((name, scripts(group, context)?))).collect();
    for (index, host) in raw.host.iter().enumerate() {
        for (number, route) in host.routes().iter().enumerate() {
            let Some(folder) = &route.action.directory else { continue };
            let Ok(folder) = context.shared.base.join(folder).canonicalize() else { continue };
            // Both directions: a served folder may be a part of the scripts, or contain all of them.
            let overlaps = |root: &Path| folder.starts_with(root) || root.starts_with(&folder);
            let fallback = route.action.any_upstream().map(|(name, _)| name);
            let leaves = roots.iter().any(|(name, _)| fallback == Some(name.as_str()));
            let Some((name, root)) = roots.iter().find(|(_, root)| overlaps(root)).filter(|_| !leaves) else {
                continue;
            };
            let path = KeyPath::of("host").index(index).key("route").index(number).key("static");
            let warning = format!(
                "{path}: clients could read the source text of scripts in {}, which [upstream.{name}] executes: add \
                 fallback = {{ upstream = \"{name}\" }}, with which scripts are never sent, or serve a folder without scripts",
                if root.starts_with(&folder) { root.display() } else { folder.display() }
            );
            context.shared.findings.warn(warning);
        }
    }
}

/// The folder on this machine with the scripts of a group.
fn scripts(group: &raw::Upstream, context: &Context<'_>) -> Option<PathBuf> {
    let first = group.features.servers.servers.first()?;
    first.url.scheme().cgi()?;
    let keys = &group.features.cgi.cgi;
    let folder = match (&keys.files, &keys.root) {
        (Some(Files::Folder(folder)), _) => context.shared.base.join(folder),
        (Some(Files::None), _) | (None, None) => return None,
        (None, Some(root)) => PathBuf::from(root),
    };
    folder.canonicalize().ok()
}
