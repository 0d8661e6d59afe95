//! `sub_filter`: texts that are replaced in responses.

use crate::nginx::flow::Flow;
use crate::nginx::site::Site;
use crate::nginx::variables::Use;
use crate::toml::{self, Keys};

/// Length in bytes of texts that brisk replaces, and their number.
const LONGEST: usize = 256;
const MOST: usize = 16;

impl Site<'_, '_> {
    /// `replace_text` of a route.
    pub(crate) fn replaced_texts(&self, flow: &Flow<'_, '_>, keys: &mut Keys) {
        let (scope, context) = (&flow.scope, self.context);
        let mut values = flow.values.clone();
        values.groups &= flow.when.has_path();
        let mut texts = Vec::new();
        for filter in scope.all("sub_filter") {
            let (from, to) = (filter.arg(0), context.template(filter.arg(1), &values, Use::Body));
            let fault = match &to {
                Err(reason) => Some(reason.clone()),
                Ok(_) if from.contains('$') => Some("the text that is replaced has a variable".to_owned()),
                Ok(_) if from.len() > LONGEST || texts.len() == MOST => {
                    Some(format!("brisk replaces {MOST} texts of {LONGEST} bytes"))
                }
                Ok(_) => None,
            };
            match (to, fault) {
                (Ok(to), None) => {
                    context.carried(filter);
                    texts.push(format!("{{ from = {}, to = {} }}", toml::text(from), toml::text(&to)));
                }
                (_, fault) => {
                    let action = "write replace_text in the route";
                    context.missing(filter, fault.unwrap_or_default(), action);
                }
            }
        }
        if texts.is_empty() {
            return;
        }
        let mut table = Keys::of("texts", format!("[{}]", texts.join(", ")));
        if let Some(types) = scope.one("sub_filter_types") {
            context.carried(types);
            // nginx has this type in every list.
            let html = ["text/html".to_owned()];
            let all = html.iter().chain(types.args.iter().filter(|kind| *kind != "text/html"));
            let is_all = types.has("*");
            table.set("types", if is_all { toml::list(["*"]) } else { toml::list(all) });
        }
        let once = scope.one("sub_filter_once");
        if let Some(once) = once {
            context.carried(once);
        }
        // In nginx, a text is replaced once unless the directive is off.
        if once.is_none_or(|once| once.arg(0) == "on") {
            table.set("once", "true");
        }
        if let Some(modified) = scope.one("sub_filter_last_modified") {
            if modified.arg(0) == "on" {
                context.different(modified, "brisk sends no Last-Modified with changed texts");
            } else {
                context.carried(modified);
            }
        }
        keys.set("replace_text", table.inline());
    }
}
