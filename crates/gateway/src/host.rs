//! From the settings of a gateway to what the proxy layer serves.

use brisk_proxy::settings::{Action, HostSettings, Page, RoutePath, RouteSettings, ServiceSettings};

use crate::page;
use crate::settings::{self, GatewaySettings};

/// What the service of each worker is made from.
pub(crate) fn service_settings(settings: &GatewaySettings) -> ServiceSettings {
    ServiceSettings {
        hosts: settings.hosts.iter().map(host_settings).collect(),
        default_host: settings.hosts.iter().position(|host| host.tls.default).unwrap_or(0),
        unknown_host: settings.tls.unknown_host,
        trusted_proxies: settings.trusted_proxies.clone(),
    }
}

/// Whether some host shows the built-in page.
pub(crate) fn has_page(settings: &GatewaySettings) -> bool {
    settings.hosts.iter().any(|host| host.routes.is_empty())
}

fn host_settings(host: &settings::HostSettings) -> HostSettings {
    let routes = if host.routes.is_empty() { vec![page_route()] } else { host.routes.clone() };
    HostSettings {
        names: host.tls.names.clone(),
        certificate_names: host.tls.certificates.iter().flat_map(|c| c.names.clone()).collect(),
        client_certificates: host.tls.client_certificates.as_ref().map(|clients| format!("{clients:?}")),
        hsts: host.hsts.clone(),
        routes,
    }
}

fn page_route() -> RouteSettings {
    RouteSettings::new(RoutePath::Prefix("/".to_owned()), Action::Page(Page::new(page::answer)))
}
