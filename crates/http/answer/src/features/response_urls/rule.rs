//! The rule of one route, applied to the responses of its upstream.

use std::sync::Arc;

use brisk_http::message::HeaderList;
use brisk_rules::{CookieRules, RoutePath, UpstreamPath, UrlPrefixes};
use brisk_upstream_group::settings::GroupSettings;
use http::{HeaderValue, header};

use super::Locations;
use crate::settings::RouteSettings;

/// Changes of the responses of an upstream.
#[derive(Debug)]
pub(crate) struct ResponseUrls {
    locations: Arc<UrlPrefixes>,
    cookies: Option<Arc<CookieRules>>,
}

impl ResponseUrls {
    /// The rule of `route` to the servers of `groups`.
    pub(crate) fn new<'g>(
        route: &RouteSettings,
        path: &UpstreamPath,
        groups: impl Iterator<Item = &'g GroupSettings>,
    ) -> Self {
        let locations = match &route.response_urls.locations {
            Locations::OfServers => {
                let urls = groups.flat_map(|group| of_servers(&route.path, path, group));
                Arc::new(UrlPrefixes::new(urls))
            }
            Locations::Unchanged => Arc::default(),
            Locations::Prefixes(prefixes) => Arc::clone(prefixes),
        };
        Self { locations, cookies: route.response_urls.cookies.clone() }
    }

    /// Changes the headers of a response.
    pub(crate) fn apply(&self, headers: &mut HeaderList) {
        if self.locations.is_empty() && self.cookies.is_none() {
            return;
        }
        for (name, value) in headers.iter_mut() {
            let replaced = match *name {
                header::LOCATION => self.locations.replaced(value.as_bytes()),
                header::REFRESH => self.locations.replaced_refresh(value.as_bytes()),
                header::SET_COOKIE => self.cookies.as_ref().map(|rules| rules.replaced(value.as_bytes())),
                _ => None,
            };
            if let Some(replaced) = replaced {
                replace(value, replaced);
            }
        }
    }
}

fn replace(value: &mut HeaderValue, by: Vec<u8>) {
    // The parts are a header value of the upstream and texts that were checked.
    if let Ok(by) = HeaderValue::from_maybe_shared(bytes::Bytes::from(by)) {
        *value = by;
    }
}

/// The URLs of the servers, as far as they lie below the path that the route has there, and the path of the route.
fn of_servers(
    route: &RoutePath,
    path: &UpstreamPath,
    group: &GroupSettings,
) -> impl Iterator<Item = (String, String)> {
    let (there, here) = match path {
        UpstreamPath::Whole => (Some(""), ""),
        UpstreamPath::Replaced { prefix, by } => (
            Some(by.as_ref().map_or("", |by| by.as_str().trim_end_matches('/'))),
            prefix.trim_end_matches('/'),
        ),
        // An expression cannot be reversed.
        UpstreamPath::Rewritten(_) => (None, route.as_str()),
    };
    let here = crate::redirect::encoded(&format!("{here}/"));
    let url = move |url: String| {
        let (scheme, rest) = url.split_once("://")?;
        // `h2c` is a scheme of the configuration; applications write `http` for such a server.
        let scheme = match scheme {
            "http" | "h2c" => "http",
            "https" => "https",
            _ => return None,
        };
        Some((format!("{scheme}://{}{}/", rest.trim_end_matches('/'), there?), here.clone()))
    };
    let urls = group.servers.iter().map(|server| server.url.to_string());
    urls.filter_map(url).collect::<Vec<_>>().into_iter()
}
