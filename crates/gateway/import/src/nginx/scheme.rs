//! Conditions about the scheme of a request: redirects of plain HTTP to HTTPS, which brisk sends by itself.

use crate::directive::Directive;
use crate::nginx::listen::Server;

/// Conditions that hold for plain HTTP, without their spaces and quotes.
const SCHEMES: [&str; 4] = ["($scheme=http)", "($scheme!=https)", "($https=)", "($https!=on)"];

/// Conditions that hold for plain HTTP if the listeners have the usual ports.
const PORTS: [&str; 2] = ["($server_port=80)", "($server_port!=443)"];

/// Whether the directive is an `if` of a server with TLS that redirects plain HTTP to HTTPS, and has no other effect.
pub(crate) fn is_scheme_condition(server: &Server<'_>, directive: &Directive) -> bool {
    let text = directive.args.concat().replace([' ', '"'], "");
    let has_usual_ports = || {
        server.listens.iter().all(|listen| listen.address.ends_with(if listen.tls { ":443" } else { ":80" }))
    };
    let is_scheme = SCHEMES.contains(&text.as_str()) || PORTS.contains(&text.as_str()) && has_usual_ports();
    let mut steps = directive.inner().iter().filter(|line| is_step(&line.name)).peekable();
    directive.name == "if"
        && is_scheme
        && server.has_tls()
        && steps.peek().is_some()
        && steps.all(redirects_to_https)
}

/// Whether a directive with the name has an effect on requests in an `if`.
fn is_step(name: &str) -> bool {
    !matches!(name, "set" | "break" | "access_log" | "expires" | "add_header")
}

fn redirects_to_https(step: &Directive) -> bool {
    let target = match step.name.as_str() {
        "return" => step.args.last().map_or("", String::as_str),
        "rewrite" => step.arg(1),
        _ => "",
    };
    target.starts_with("https://")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nginx::include::Files;

    #[test]
    fn conditions_about_the_scheme_only_redirect() {
        let usual = "listen 80; listen 443 ssl;";
        let redirect = "return 301 https://$host$request_uri;";
        for (listens, condition, block, expected) in [
            (usual, "$scheme = http", redirect, true),
            (usual, "$scheme = http", "rewrite ^ https://$host$request_uri? permanent;", true),
            (usual, "$server_port != 443", redirect, true),
            (usual, "$https = \"\"", redirect, true),
            (usual, "$scheme = http", "return 403;", false),
            (usual, "$scheme = http", "rewrite ^/a https://$host/a permanent; return 403;", false),
            (usual, "$scheme = http", "set $a 1;", false),
            (usual, "$scheme = https", redirect, false),
            ("listen 443 ssl; listen 8443 ssl;", "$server_port != 443", redirect, false),
            ("listen 80; listen 8080; listen 443 ssl;", "$server_port = 80", redirect, false),
            ("listen 80;", "$scheme = http", redirect, false),
        ] {
            let text = format!("server {{ {listens} if ({condition}) {{ {block} }} }}");
            let (all, _) = Files::of_text(&text).expect("a configuration");
            let server = Server::new(&all[0]);
            let found = all[0].inner().iter().any(|line| is_scheme_condition(&server, line));
            assert_eq!(found, expected, "{text}");
        }
    }
}
