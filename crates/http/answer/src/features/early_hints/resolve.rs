//! `early_hints`: hints sent before the responses with pages.

use std::sync::Arc;

use super::hints::EarlyHintsSettings;
use super::keys::{EarlyHints, EarlyHintsKeys};
use crate::features::{Context, RouteScope};

/// Links of a route at most: more are not sent at once.
const MOST: usize = 16;

/// The hints of a route.
pub(super) fn of_route(
    keys: &EarlyHintsKeys,
    route: &RouteScope<'_>,
    context: &mut Context<'_>,
) -> Option<Arc<EarlyHintsSettings>> {
    let Some(EarlyHints::On(table)) = &keys.early_hints else { return None };
    let path = route.key("early_hints");
    if !route.has_upstream() {
        context.findings.wrong(&path, "has no effect without `upstream`: other answers come at once");
    }
    let links = path.key("links");
    // A list in place of the table has its links at the key itself.
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
