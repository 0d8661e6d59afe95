//! `secure_link` with `secure_link_md5` or `secure_link_secret`, and the `if` that refuse requests by `$secure_link`.

use crate::directive::Directive;
use crate::nginx::branch::CLASH;
use crate::nginx::condition::When;
use crate::nginx::flow::Flow;
use crate::nginx::location::{Kind, Route, program};
use crate::nginx::pattern;
use crate::nginx::site::Site;
use crate::nginx::variables::Use;
use crate::toml::{self, Keys};

/// Variables of nginx that only signed texts have in brisk.
const OWN: [(&str, &str); 3] =
    [("secure_link_expires", "{expires}"), ("uri", "{decoded_path}"), ("document_uri", "{decoded_path}")];

/// Forms of `if` that are true for wrong links, and for expired ones.
const FORMS: [(&str, &str); 4] = [
    ("($secure_link=)", "403"),
    ("($secure_link=0)", "410"),
    ("($secure_link!=1)", "403"),
    ("(!$secure_link)", "403"),
];

impl<'a> Site<'_, 'a> {
    /// Handles an `if` that refuses requests by their links; none if the step is another one. Whether it has added the routes of the
    /// rest too.
    pub(crate) fn linked(
        &self,
        flow: &mut Flow<'_, 'a>,
        step: &'a Directive,
        rest: &[&'a Directive],
        routes: &mut Vec<Route>,
    ) -> Option<bool> {
        let text = step.args.concat().replace(' ', "");
        if step.name != "if" || !text.contains("$secure_link") {
            return None;
        }
        let reason = match self.links(flow, step, &text) {
            Ok((links, None)) => {
                flow.links = Some(links);
                return Some(false);
            }
            Ok((links, Some(expression))) => {
                if let Some(mut signed) = flow.with(&When::plain("path_regex", toml::raw(&expression))) {
                    signed.values = signed.values.with_groups(&expression);
                    signed.links = Some(links);
                    self.run(signed, rest, routes);
                    // Paths without a signature and a link get the response of the `if`.
                    self.run(flow.inside(step), &program(step.inner()), routes);
                    return Some(true);
                }
                CLASH.to_owned()
            }
            Err(reason) => reason,
        };
        self.context.missing(step, reason, "write signed_links; until then the route refuses requests");
        // Links that are not checked would open the files, so the route is closed.
        routes.push(Self::refusal(flow.location, flow.at, flow.when.clone()));
        Some(true)
    }

    /// `signed_links`, and the expression of the paths that have a link, if these are a part of the path.
    fn links(
        &self,
        flow: &Flow<'_, 'a>,
        step: &'a Directive,
        text: &str,
    ) -> Result<(String, Option<String>), String> {
        let form = FORMS
            .iter()
            .find(|(form, _)| *form == text)
            .ok_or("the condition is not one about wrong links")?;
        let [refusal] = step.inner() else {
            return Err("wrong links get another response than a status".to_owned());
        };
        if refusal.name != "return" || refusal.args.len() != 1 || !refusal.arg(0).starts_with('4') {
            return Err("wrong links get another response than a status".to_owned());
        }
        if let Some(secret) = flow.scope.one("secure_link_secret").filter(|_| text == FORMS[0].0) {
            let (links, expression) = self.links_in_path(flow, secret)?;
            self.context.carried_whole(step);
            return Ok((links, Some(expression)));
        }
        let (Some(link), Some(md5)) = (flow.scope.one("secure_link"), flow.scope.one("secure_link_md5"))
        else {
            return Err("there is no secure_link with secure_link_md5, and no secure_link_secret".to_owned());
        };
        let mut values = flow.values.clone();
        // Groups belong to the expression of the route. Without a condition for the path, brisk has none.
        values.groups &= flow.when.has_path();
        let mut signed = values.clone();
        signed.set.extend(OWN.map(|(name, own)| (name.to_owned(), own.to_owned())));
        let (signature, expires) =
            link.arg(0).split_once(',').map_or((link.arg(0), None), |(sign, time)| (sign, Some(time)));
        let mut keys = Keys::of("md5", "true");
        keys.set("text", toml::text(&self.context.template(md5.arg(0), &signed, Use::Body)?));
        keys.set("signature", toml::text(&self.context.template(signature, &values, Use::Body)?));
        let expires = expires.map(|time| self.context.template(time, &values, Use::Body)).transpose()?;
        keys.set("expires", toml::text(expires.as_deref().unwrap_or("none")));
        for directive in [link, md5] {
            self.context.carried(directive);
        }
        self.context.carried_whole(step);
        if !self.refuses_all(flow, expires.is_some()) {
            self.context.different(step, "brisk refuses wrong links and expired ones");
        }
        if refusal.arg(0) != form.1 {
            self.context
                .different(refusal, "brisk responds with 403 to wrong links and with 410 to expired ones");
        }
        Ok((keys.inline(), None))
    }

    /// `signed_links` for paths with a signature as their second segment, and the expression of these paths.
    fn links_in_path(&self, flow: &Flow<'_, 'a>, secret: &Directive) -> Result<(String, String), String> {
        let Kind::Prefix { path, .. } = &flow.location.kind else {
            return Err("the location is no prefix".to_owned());
        };
        if path.len() < 3 || !path.ends_with('/') || path.matches('/').count() != 2 {
            return Err(
                "the signature is not behind the prefix: nginx expects it as the second segment".to_owned()
            );
        }
        let start = pattern::escaped(path);
        let expression = format!("^{start}(?P<secure_hash>[0-9A-Fa-f]{{32}})/(?P<secure_link>.+)$");
        let text = format!("{{secure_link}}{}", secret.arg(0).replace('{', "{{"));
        let mut keys = Keys::of("md5", "true");
        keys.set("text", toml::text(&text));
        keys.set("signature", toml::text("{secure_hash}"));
        keys.set("expires", toml::text("none"));
        let detail =
            "the decoded link without a query is signed, in nginx the link as sent; wrong signatures get 403";
        self.context.different(secret, detail);
        Ok((keys.inline(), expression))
    }

    /// Whether conditions refuse links that are wrong, and those that have expired if links expire.
    fn refuses_all(&self, flow: &Flow<'_, 'a>, expires: bool) -> bool {
        let steps = self.program.iter().copied().chain(program(flow.location.scope.own()));
        let conditions =
            steps.filter(|step| step.name == "if").map(|step| step.args.concat().replace(' ', ""));
        let conditions: Vec<_> = conditions.collect();
        let has = |form: &str| conditions.iter().any(|own| own == form);
        // nginx has two results, wrong and expired. An `if` for one of both leaves the other to the
        // application.
        has("($secure_link!=1)") || (has("($secure_link=)") && (!expires || has("($secure_link=0)")))
    }
}
