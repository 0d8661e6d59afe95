//! URLs and cookies of upstreams in `Location`, `Refresh` and `Set-Cookie`, as clients need them.

mod keys;
mod rule;

use std::sync::Arc;

use brisk_config_file::KeyPath;
use brisk_rules::{CookieRules, SameSite, UrlPrefixes};

use super::{Context, RouteFeature, RouteScope};
pub use keys::ResponseUrlsKeys;
use keys::{Cookies, RewriteLocation};
pub(crate) use rule::ResponseUrls;

/// Changes of the responses of an upstream.
#[derive(Clone, Debug, Default)]
pub struct ResponseUrlsSettings {
    /// The beginnings of URLs that are replaced.
    pub locations: Locations,
    /// Changes of cookies. Default: none.
    pub cookies: Option<Arc<CookieRules>>,
}

/// The beginnings of URLs that are replaced.
#[derive(Clone, Debug, Default)]
pub enum Locations {
    /// The URLs of the servers of the upstream, by paths of the route.
    #[default]
    OfServers,
    /// None.
    Unchanged,
    /// These.
    Prefixes(Arc<UrlPrefixes>),
}

/// `rewrite_location` and `cookies` of routes.
#[derive(Debug)]
pub struct ResponseUrlsFeature;

impl RouteFeature for ResponseUrlsFeature {
    type Keys = ResponseUrlsKeys;
    type Settings = ResponseUrlsSettings;

    fn resolve(
        keys: &ResponseUrlsKeys,
        route: &RouteScope<'_>,
        context: &mut Context<'_>,
    ) -> ResponseUrlsSettings {
        let is_written =
            [("rewrite_location", keys.rewrite_location.is_some()), ("cookies", keys.cookies.is_some())];
        for (key, _) in is_written.into_iter().filter(|(_, is_written)| *is_written && !route.has_upstream())
        {
            context.findings.wrong(&route.key(key), "has no effect without `upstream`");
        }
        let locations = match &keys.rewrite_location {
            None | Some(RewriteLocation::Own(true)) => Locations::OfServers,
            Some(RewriteLocation::Own(false)) => Locations::Unchanged,
            Some(RewriteLocation::Table(table)) => {
                for (from, to) in table {
                    let path = route.key("rewrite_location").key(from);
                    location(from, to, &path, context);
                }
                Locations::Prefixes(Arc::new(UrlPrefixes::new(table.clone())))
            }
        };
        let cookies = keys
            .cookies
            .as_ref()
            .map(|cookies| Arc::new(self::cookies(cookies, &route.key("cookies"), context)));
        ResponseUrlsSettings { locations, cookies }
    }
}

fn location(from: &str, to: &str, path: &KeyPath, context: &mut Context<'_>) {
    let is_url = |text: &str| {
        (text.starts_with('/') || text.contains("://")) && text.bytes().all(|byte| byte.is_ascii_graphic())
    };
    if let Some(text) = [from, to].into_iter().find(|text| !is_url(text)) {
        let message = format!(
            "{text:?} is not the beginning of a URL: write one as \"http://app:8080/\", or as \"/path/\" for the host itself"
        );
        context.findings.wrong(path, message);
    }
    if from.ends_with('/') && !to.ends_with('/') {
        let message = format!(
            "{from:?} ends with a slash and {to:?} does not: write it at both ends, or the rest of a path joins the last word"
        );
        context.findings.wrong(path, message);
    }
    if to.starts_with("//") {
        context.findings.wrong(path, format!("{to:?} begins with a host: write its scheme too"));
    }
}

fn cookies(written: &Cookies, path: &KeyPath, context: &mut Context<'_>) -> CookieRules {
    let mut pairs = |key: &str, written: &std::collections::BTreeMap<String, String>| {
        let is_value = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';');
        for (from, to) in written {
            let path = path.key(key).key(from);
            if let Some(text) = [from, to].into_iter().find(|text| !is_value(text)) {
                context
                    .findings
                    .wrong(&path, format!("{text:?} cannot stand in a cookie: it has spaces or \";\""));
            }
            if key == "path" && ![from, to].into_iter().all(|path| path.starts_with('/')) {
                let message = "paths of cookies begin with a slash, as { \"/old/\" = \"/new/\" }";
                context.findings.wrong(&path, message);
            }
        }
        // RFC 6265 section 5.2.3: a leading dot of a domain is ignored.
        written.iter().map(|(from, to)| (from.trim_start_matches('.').to_owned(), to.clone())).collect()
    };
    let (paths, domains) = (pairs("path", &written.path), pairs("domain", &written.domain));
    if written.same_site == Some(keys::SameSite::None) && written.secure == Some(false) {
        let message = "browsers refuse cookies with SameSite=None and without Secure: write secure = true";
        context.findings.wrong(&path.key("same_site"), message);
    }
    let same_site = written.same_site.map(|same_site| match same_site {
        keys::SameSite::Strict => SameSite::Strict,
        keys::SameSite::Lax => SameSite::Lax,
        keys::SameSite::None => SameSite::None,
        keys::SameSite::Remove => SameSite::Absent,
    });
    CookieRules { paths, domains, secure: written.secure, http_only: written.http_only, same_site }
}
