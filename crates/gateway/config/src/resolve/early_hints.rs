//! `early_hints`: hints sent before the responses with pages.

use std::sync::Arc;

use brisk_answer::settings::EarlyHintsSettings;
use brisk_config_file::KeyPath;

use super::context::Context;
use crate::raw::{self, EarlyHints};

/// Links of a route at most: more are not sent at once.
const MOST: usize = 16;

/// The hints of the route at `path`.
pub(super) fn of_route(
    raw: &raw::Route,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Arc<EarlyHintsSettings>> {
    let Some(EarlyHints::On(table)) = &raw.early_hints else { return None };
    let path = path.key("early_hints");
    if raw.upstream.is_none() {
        context.findings.wrong(&path, "has no effect without `upstream`: other answers come at once");
    }
    let links = path.key("links");
    let links = if context.findings.written(&links) { links } else { path };
    if table.links.len() > MOST {
        let message = format!("{} links are too many: {MOST} are sent at once", table.links.len());
        context.findings.wrong(&links, message);
    }
    let usual = EarlyHintsSettings::usual();
    let mut settings = EarlyHintsSettings {
        upstream: table.upstream.unwrap_or(usual.upstream),
        learn: table.learn.unwrap_or(usual.learn),
        ..usual
    };
    for (index, text) in table.links.iter().enumerate() {
        match text.parse() {
            Ok(link) => settings.links.push(link),
            Err(error) => {
                context.findings.wrong(&links.index(index), format!("{text:?} is no hint: {error}"));
            }
        }
    }
    Some(Arc::new(settings))
}
