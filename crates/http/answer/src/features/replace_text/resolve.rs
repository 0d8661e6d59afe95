//! The texts of a route.

use std::sync::Arc;

use brisk_rules::BodyTemplate;
use brisk_transform::replace::{LONGEST, MediaTypes, TextReplacements};

use super::ReplaceTextSettings;
use super::keys::ReplaceText;
use crate::features::action::with_groups;
use crate::features::{Context, RouteScope};

/// Number of texts of a route, and length in bytes of a text in place of one.
const MOST: usize = 16;
const LONGEST_TO: usize = 4096;

/// The texts of a route. All mistakes are reported.
pub(super) fn settings(
    raw: &ReplaceText,
    route: &RouteScope<'_>,
    context: &mut Context<'_>,
) -> Option<ReplaceTextSettings> {
    let path = route.key("replace_text");
    let all = path.key("texts");
    if raw.texts.is_empty() || raw.texts.len() > MOST {
        let message = format!("needs 1 to {MOST} texts, as [{{ from = \"http://app/\", to = \"/\" }}]");
        context.findings.wrong(&all, message);
    }
    let mut to = Vec::new();
    for (index, text) in raw.texts.iter().enumerate() {
        let path = all.index(index);
        if !(1..=LONGEST).contains(&text.from.len()) {
            let message = format!("a text that is replaced has 1 to {LONGEST} bytes");
            context.findings.wrong(&path.key("from"), message);
        }
        if text.to.len() > LONGEST_TO {
            let message = format!("a text has at most {LONGEST_TO} bytes");
            context.findings.wrong(&path.key("to"), message);
        }
        // The values of a request are no markup, whichever type the response has.
        let form = |maps: &_, groups: Option<&_>| BodyTemplate::new(&text.to, "text/html", maps, groups);
        match with_groups(route, context, form) {
            Some(Ok(template)) => {
                context.note_fingerprints(|variable| template.has(variable));
                to.push(template);
            }
            Some(Err(reason)) => context.findings.wrong(&path.key("to"), reason),
            None => {}
        }
    }
    let from: Vec<_> = raw.texts.iter().map(|text| text.from.as_str()).collect();
    let from = TextReplacements::new(&from, types(raw, route, context), raw.once)?;
    // A text with a mistake is missing in `to`, whose indexes must match `from`.
    (to.len() == raw.texts.len()).then(|| ReplaceTextSettings { from: Arc::new(from), to: to.into() })
}

fn types(raw: &ReplaceText, route: &RouteScope<'_>, context: &mut Context<'_>) -> MediaTypes {
    let Some(types) = &raw.types else { return MediaTypes::Listed(["text/html".into()].into()) };
    if types.iter().any(|kind| kind == "*") {
        return MediaTypes::All;
    }
    for (index, kind) in types.iter().enumerate() {
        if !kind.contains('/') || kind.contains([';', '*', ' ']) {
            let path = route.key("replace_text").key("types").index(index);
            let message = format!("{kind:?} is no media type: write one as \"text/css\", or \"*\" for all");
            context.findings.wrong(&path, message);
        }
    }
    MediaTypes::Listed(types.iter().map(|kind| kind.to_ascii_lowercase().into()).collect())
}
