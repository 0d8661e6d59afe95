//! Addresses by which nginx refuses requests: listeners, and proxies that name the client.

use super::*;

const PASS: &str = "location / { proxy_pass http://127.0.0.1:1; }";

/// Number of the directives whose refusals are missing.
fn open(text: &str) -> usize {
    import(text).report.open().len()
}

#[test]
fn peers_of_the_proxy_protocol_name_no_address_in_silence() {
    let server = |lines: &str| format!("server {{ listen 80 proxy_protocol; {lines} {PASS} }}");
    let rules = "allow 10.1.0.0/16; deny all;";
    let other = server(&format!("set_real_ip_from 10.0.0.0/8; real_ip_header X-Real-IP; {rules}"));
    assert_eq!(open(&other), 3, "{other}");
    is_missing(&other, "real_ip_header");
    is_missing(&other, "set_real_ip_from");
    assert_eq!(open(&server(rules)), 1);
    let listed = server(&format!("set_real_ip_from 10.0.0.0/8; real_ip_header proxy_protocol; {rules}"));
    assert_eq!(open(&listed), 0, "{listed}");
    assert!(toml(&listed).contains("proxy_protocol = [\"10.0.0.0/8\"]"), "{}", toml(&listed));
    // Without rules about addresses, no request is served that nginx refuses.
    assert_eq!(open(&server("set_real_ip_from 10.0.0.0/8; real_ip_header X-Real-IP;")), 0);
}

#[test]
fn proxies_without_a_network_are_no_proxies() {
    let lines = "set_real_ip_from lb.internal; real_ip_header X-Forwarded-For;";
    assert_eq!(open(&format!("server {{ {lines} deny 203.0.113.0/24; {PASS} }}")), 1);
    assert_eq!(open(&format!("server {{ {lines} {PASS} }}")), 0);
    let map = format!("map $remote_addr $bad {{ 203.0.113.1 1; }} server {{ {lines} {PASS} }}");
    assert_eq!(open(&map), 1);
}

#[test]
fn proxies_of_one_server_are_not_those_of_the_next() {
    let servers = |second: &str| {
        format!(
            "server {{ listen 80; server_name a.example; set_real_ip_from 10.0.0.1; real_ip_header X-Forwarded-For; {PASS} }} \
             server {{ listen 80; server_name b.example; {second} deny 10.2.0.1; {PASS} }}"
        )
    };
    for (second, count) in [
        ("set_real_ip_from 10.0.0.1; real_ip_header X-Forwarded-For;", 0),
        ("set_real_ip_from 10.0.0.2; real_ip_header X-Forwarded-For;", 1),
        ("set_real_ip_from 10.0.0.1; real_ip_header X-Real-IP;", 1),
    ] {
        assert_eq!(open(&servers(second)), count, "{second}");
    }
    is_missing(&servers("set_real_ip_from 10.0.0.2;"), "set_real_ip_from 10.0.0.2");
}

#[test]
fn conditions_about_the_scheme_refuse_or_redirect() {
    let server = |lines: &str| format!("server {{ server_name a.example; {lines} {PASS} }}");
    let files = "ssl_certificate c; ssl_certificate_key k;";
    for lines in [
        format!("listen 443 ssl; listen 8443 ssl; {files} if ($server_port != 443) {{ return 403; }}"),
        format!("listen 80; listen 443 ssl; {files} if ($scheme = http) {{ return 403; }}"),
        "listen 80; if ($scheme = http) { return 403; }".to_owned(),
    ] {
        assert_eq!(open(&server(&lines)), 1, "{lines}");
    }
    let redirect = "if ($scheme = http) { return 301 https://$host$request_uri; }";
    let both = server(&format!("listen 80; listen 443 ssl; {files} {redirect}"));
    assert!(!toml(&both).contains("plain = "), "{}", toml(&both));
    assert_eq!(open(&both), 0);
}
