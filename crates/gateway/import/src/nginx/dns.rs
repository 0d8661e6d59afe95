//! `resolver`, for servers whose addresses come from DNS.

use std::net::IpAddr;

use crate::directive::Directive;
use crate::nginx::context::Context;
use crate::toml::{self, Keys};

/// Name of the service in SRV records for a `service=` of nginx.
pub(crate) fn service(name: &str) -> String {
    if name.starts_with('_') { name.to_owned() } else { format!("_{name}._tcp") }
}

impl Context<'_> {
    /// `dns` of a group with names that are resolved while the gateway runs.
    pub(crate) fn resolver(&self, group: &Directive, keys: &mut Keys) {
        let own = group.inner().iter().find(|line| line.name == "resolver");
        let Some(resolver) = own.or_else(|| self.http.one("resolver")) else { return };
        let addresses: Vec<_> = resolver.args.iter().filter(|arg| !arg.contains('=')).collect();
        let servers: Option<Vec<_>> = addresses.iter().map(|address| with_port(address)).collect();
        let Some(servers) = servers.filter(|servers| !servers.is_empty()) else {
            let action = "write dns = { servers = [\"ADDRESS:53\"] } in the upstream";
            return self.missing(resolver, "DNS servers of brisk are IP addresses", action);
        };
        let mut table = Keys::of("servers", toml::list(servers));
        if let Some(valid) = resolver.parameter("valid").and_then(toml::milliseconds) {
            // `brisk check` accepts 24 hours at most, nginx takes any time.
            let time = toml::duration(valid.clamp(1000, 86_400_000));
            table.set("min_ttl", &*time);
            table.set("max_ttl", time);
        }
        if resolver.parameter("ipv6") == Some("off") {
            table.set("ipv6", "false");
        }
        self.carried(resolver);
        keys.set("dns", table.inline());
    }
}

/// An IP address with its port.
fn with_port(address: &str) -> Option<String> {
    let bare = address.trim_start_matches('[').trim_end_matches(']');
    match (bare.parse::<IpAddr>(), address.parse::<std::net::SocketAddr>()) {
        (Ok(IpAddr::V4(ip)), _) => Some(format!("{ip}:53")),
        (Ok(IpAddr::V6(ip)), _) => Some(format!("[{ip}]:53")),
        (_, Ok(address)) => Some(address.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_servers_and_services_have_the_names_of_brisk() {
        for (address, expected) in [
            ("10.0.0.53", Some("10.0.0.53:53")),
            ("10.0.0.53:5353", Some("10.0.0.53:5353")),
            ("[::1]", Some("[::1]:53")),
            ("[::1]:5353", Some("[::1]:5353")),
            ("dns.example.com", None),
        ] {
            assert_eq!(with_port(address).as_deref(), expected, "{address}");
        }
        assert_eq!(service("http"), "_http._tcp");
        assert_eq!(service("_x._udp"), "_x._udp");
    }
}
