//! Summary of HTTP/3 for `brisk check`: `HTTPS` records with which clients find it, and listeners that cannot serve it to
//! all.

use std::net::IpAddr;

use brisk_answer::settings::{AltSvc, Announcement};
use brisk_gateway::settings::{GatewaySettings, ProxyProtocol};
use brisk_wire::HttpVersion;

/// Port of `https` without another in the URL, for which the record has the name of the host itself.
const HTTPS: u16 = 443;

/// Lines about HTTP/3; none if `server.http3` is off.
pub(crate) fn summary(settings: &GatewaySettings) -> Vec<String> {
    if !settings.http3 {
        return Vec::new();
    }
    let mut lines = unserved(settings);
    for host in &settings.service.hosts {
        let Some(AltSvc::Announce(announcement)) = host.alt_svc else { continue };
        let Some(ports) = Ports::of(settings, announcement) else { continue };
        let protocols = &settings.tls.protocols;
        lines.extend(host.tls.names.iter().flat_map(|name| records(name, ports, protocols)));
    }
    lines
}

/// The listeners of which some peers cannot use HTTP/3.
fn unserved(settings: &GatewaySettings) -> Vec<String> {
    let ProxyProtocol::Trusted(networks) = &settings.proxy_protocol else { return Vec::new() };
    let networks: Vec<_> = networks.iter().map(ToString::to_string).collect();
    let networks = networks.join(", ");
    let line = |address| {
        format!(
            "https {address}: no HTTP/3 for clients behind {networks}: datagrams have no PROXY header, so their responses \
             have no Alt-Svc"
        )
    };
    settings.https.iter().map(|listener| line(listener.address)).collect()
}

/// The ports that clients use.
#[derive(Clone, Copy, Debug)]
struct Ports {
    tcp: u16,
    udp: u16,
}

impl Ports {
    /// `None` if the system chooses them.
    fn of(settings: &GatewaySettings, announcement: Announcement) -> Option<Self> {
        let listener = settings.https.first()?.address.port();
        let udp = announcement.port.unwrap_or(listener);
        // A gateway behind a port mapping has one for TCP too.
        let tcp = if udp == HTTPS { HTTPS } else { listener };
        (tcp != 0 && udp != 0).then_some(Self { tcp, udp })
    }
}

/// The `HTTPS` records of `name` (RFC 9460 section 9), in the form of zone files. None for addresses and `localhost`.
fn records(name: &str, Ports { tcp, udp }: Ports, protocols: &[HttpVersion]) -> Vec<String> {
    let is_local = name == "localhost" || name.ends_with(".localhost") || name.parse::<IpAddr>().is_ok();
    // With another port than 443 the name has two labels in front, where a wildcard is not possible.
    if is_local || (tcp != HTTPS && name.starts_with("*.")) {
        return Vec::new();
    }
    let (owner, target) = match tcp {
        HTTPS => (format!("{name}."), ".".to_owned()),
        port => (format!("_{port}._https.{name}."), format!("{name}.")),
    };
    let record = |priority: u8, parameters: &str| {
        format!("DNS: {owner} 3600 IN HTTPS {priority} {target} {parameters}")
    };
    let has_h2 = protocols.contains(&HttpVersion::Http2);
    // RFC 9460 section 7.1: the default protocol of the scheme is HTTP/1.1.
    let strict = if protocols.contains(&HttpVersion::Http11) { "" } else { " no-default-alpn" };
    if udp == tcp {
        let alpn = if has_h2 { "h3,h2" } else { "h3" };
        return vec![record(1, &format!("alpn=\"{alpn}\"{strict}"))];
    }
    let tcp = if has_h2 { format!("alpn=\"h2\"{strict}") } else { "alpn=\"http/1.1\"".to_owned() };
    // RFC 9460 section 7.2: `port` applies to all protocols of a record, so that each
    // port has one of its own.
    vec![record(1, &format!("alpn=\"h3\" no-default-alpn port={udp}")), record(2, &tcp)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, tcp: u16, udp: u16, protocols: &[HttpVersion]) -> String {
        records(name, Ports { tcp, udp }, protocols).join("\n")
    }

    #[test]
    fn a_host_has_one_record_unless_its_ports_differ() {
        let all = &HttpVersion::OVER_TCP;
        assert_eq!(of("a.test", 443, 443, all), "DNS: a.test. 3600 IN HTTPS 1 . alpn=\"h3,h2\"");
        assert_eq!(of("*.a.test", 443, 443, all), "DNS: *.a.test. 3600 IN HTTPS 1 . alpn=\"h3,h2\"");
        assert_eq!(
            of("a.test", 8443, 8443, all),
            "DNS: _8443._https.a.test. 3600 IN HTTPS 1 a.test. alpn=\"h3,h2\""
        );
        assert_eq!(
            of("a.test", 443, 8443, all),
            "DNS: a.test. 3600 IN HTTPS 1 . alpn=\"h3\" no-default-alpn port=8443\n\
             DNS: a.test. 3600 IN HTTPS 2 . alpn=\"h2\""
        );
    }

    #[test]
    fn the_protocols_are_those_of_the_configuration() {
        let without = |protocol: &str, expected: &str| {
            let rest: Vec<_> =
                HttpVersion::OVER_TCP.into_iter().filter(|own| own.alpn() != protocol).collect();
            assert_eq!(of("a.test", 443, 443, &rest), format!("DNS: a.test. 3600 IN HTTPS 1 . {expected}"));
        };
        without("h2", "alpn=\"h3\"");
        without("http/1.1", "alpn=\"h3,h2\" no-default-alpn");
    }

    #[test]
    fn names_that_dns_does_not_have_get_no_record() {
        for name in ["localhost", "a.localhost", "192.0.2.1", "2001:db8::1"] {
            assert_eq!(of(name, 443, 443, &HttpVersion::OVER_TCP), "");
        }
        assert_eq!(of("*.a.test", 8443, 8443, &HttpVersion::OVER_TCP), "", "a wildcard is the first label");
    }
}
