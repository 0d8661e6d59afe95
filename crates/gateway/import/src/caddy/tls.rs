//! Certificates of hosts: the directive `tls`.

use std::net::IpAddr;

use crate::caddy::address::Site;
use crate::caddy::context::Context;
use crate::caddy::environment::{self, resolve};
use crate::caddy::options::{Options, dns};
use crate::directive::Directive;
use crate::report::Class;
use crate::toml::{self, Keys};

/// Settings of TLS that a file has once, in `[tls]` and `[acme]`.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) min_version: Option<String>,
    pub(crate) email: Option<String>,
    pub(crate) directory: Option<(String, Option<String>)>,
    pub(crate) has_acme: bool,
    pub(crate) has_wildcard: bool,
}

/// Names for which no public authority issues certificates, such as `a.local` and `10.0.0.1`.
pub(crate) fn is_private(name: &str) -> bool {
    let ends = [".localhost", ".local", ".internal", ".home.arpa", ".lan", ".test"];
    !name.contains('.') || name.parse::<IpAddr>().is_ok() || ends.iter().any(|end| name.ends_with(end))
}

/// Names with a certificate of brisk's development authority.
pub(crate) fn is_development(name: &str) -> bool {
    matches!(name, "localhost" | "127.0.0.1" | "::1")
}

/// The keys for the certificates of a host: `certificates`, `acme` or `on_demand`; none for `localhost` without files.
pub(crate) fn certificates(
    context: &Context<'_>,
    site: &Site<'_>,
    names: &[String],
    options: &Options<'_>,
    shared: &mut Shared,
    keys: &mut Keys,
) {
    let lines: Vec<_> = site.directive.inner().iter().filter(|line| line.name == "tls").collect();
    let (mut is_internal, mut on_demand, mut pairs) = (options.local_certs, false, Vec::new());
    for line in &lines {
        context.carried(line);
        match line.args.as_slice() {
            [] => {}
            [word] if resolve(word) == "internal" => is_internal = true,
            [email] if email.contains('@') || environment::has_variable(email) => {
                shared.email = Some(email.clone());
            }
            [chain, key, ..] => {
                pairs.push(format!("{{ chain = {}, key = {} }}", context.file(chain), context.file(key)));
            }
            [other] if other == "force_automate" => {}
            [_] => context.missing(line, "the certificate has no key", "write certificates in the host"),
        }
        for own in line.inner() {
            on_demand |= own.name == "on_demand";
            is_internal |= matches!(&*own.name, "issuer") && own.arg(0) == "internal";
            setting(context, own, shared, keys);
        }
    }
    let plain: Vec<_> = names.iter().map(|name| resolve(name)).collect();
    if !pairs.is_empty() {
        keys.set("certificates", format!("[{}]", pairs.join(", ")));
    } else if on_demand {
        demand(context, site, names, options, keys);
    } else if is_internal || options.has_no_certificates() || plain.iter().any(|name| is_private(name)) {
        if plain.iter().all(|name| is_development(name)) {
            for line in &lines {
                context.different(line, "the certificate is one of brisk's development authority");
            }
            return;
        }
        let name = toml::name(plain.first().map_or("site", String::as_str));
        let file = |end: &str| environment::text(&context.secret(&format!("{name}.{end}")));
        let (chain, key) = (file("pem"), file("key"));
        keys.set("certificates", format!("[{{ chain = {chain}, key = {key} }}]"));
        let source = lines.first().copied().unwrap_or(site.directive);
        let action = format!(
            "store a certificate as .brisk/{name}.pem and .brisk/{name}.key in the folder of the Caddyfile, for example of step-ca or mkcert"
        );
        context.missing(
            source,
            "brisk has no authority of its own: Caddy signs the certificate itself",
            &action,
        );
    } else {
        if keys.get("acme").is_none() {
            keys.set("acme", "true");
        }
        shared.has_acme = true;
        shared.has_wildcard |= plain.iter().any(|name| name.starts_with('*'));
        if plain.iter().any(|name| name.starts_with('*')) && lines.is_empty() && options.acme_dns.is_none() {
            context.different(
                site.directive,
                "a wildcard needs a record of dns-persist-01, or [acme.dns] (docs/certificates.md)",
            );
        }
    }
}

/// `on_demand`: the table `on_demand` with `ask` and `names`.
fn demand(context: &Context<'_>, site: &Site<'_>, names: &[String], options: &Options<'_>, keys: &mut Keys) {
    let Some(ask) = &options.ask else {
        return context.missing(
            site.directive,
            "certificates on demand need a server that approves names",
            "write ask in on_demand of the host",
        );
    };
    let is_all = names.iter().all(|name| name == "localhost");
    let mut table = Keys::of("ask", environment::text(ask));
    table.set("names", if is_all { "[\"*\"]".to_owned() } else { environment::list(names) });
    keys.set("on_demand", table.inline());
}

fn setting(context: &Context<'_>, line: &Directive, shared: &mut Shared, keys: &mut Keys) {
    match line.name.as_str() {
        "protocols" => {
            if line.arg(0) == "tls1.3" {
                shared.min_version = Some("1.3".to_owned());
                context.different(line, "for all hosts");
            } else {
                context.carried(line);
            }
        }
        "dns" => context.note_whole(line, &dns()),
        "resolvers"
        | "propagation_delay"
        | "propagation_timeout"
        | "dns_ttl"
        | "dns_challenge_override_domain" => {
            context.unneeded(line, "the settings are those of [acme.dns]");
        }
        "ca" => {
            shared.directory = Some((line.arg(0).to_owned(), None));
            context.different(line, "for all hosts");
        }
        "ca_root" => {
            if let Some((_, root)) = &mut shared.directory {
                *root = Some(line.arg(0).to_owned());
            }
            context.different(line, "for all hosts");
        }
        "issuer" if line.arg(0) == "internal" => context.note_whole(
            line,
            &missing("brisk has no authority of its own", "write certificates in the host"),
        ),
        "issuer" => context.note_whole(
            line,
            &missing(
                "authorities are written in [acme]",
                "write directory there, and [[acme.fallback]] for further ones",
            ),
        ),
        "client_auth" => client(context, line, keys),
        "on_demand" => context.carried(line),
        name => other(context, line, name, keys),
    }
}

fn missing(reason: &str, action: &str) -> Class {
    Class::NotCarried { reason: reason.to_owned(), action: action.to_owned() }
}

/// Settings of `tls` that are about files and keys: `load`, `key_type` and others.
fn other(context: &Context<'_>, line: &Directive, name: &str, keys: &mut Keys) {
    match name {
        "load" => {
            if let [folder] = line.args.as_slice() {
                keys.set("certificate_folder", context.file(folder));
                context.different(line, "files have the names of their hosts: docs/certificates.md");
            } else {
                context.missing(line, "a host has one folder of certificates", "write certificate_folder");
            }
        }
        "ciphers" | "curves" | "alpn" => {
            context.different(line, "brisk has fixed suites and groups, and ALPN in [tls]");
        }
        "key_type" => {
            let kind = if resolve(line.arg(0)).starts_with("rsa") { "rsa" } else { "ecdsa" };
            keys.set("acme", format!("{{ keys = [\"{kind}\"] }}"));
            context.carried(line);
        }
        "eab" => context.note_whole(
            line,
            &missing("the key of the account is in a file in brisk", "write external_account in [acme]"),
        ),
        "get_certificate" => context.note_whole(
            line,
            &missing("brisk gets certificates by ACME or from files", "write certificates in the host"),
        ),
        "reuse_private_keys" | "insecure_secrets_log" | "renewal_window_ratio" => {
            context.unneeded(line, "brisk has no such setting");
        }
        _ => {}
    }
}

/// `client_auth`: the table `client_certificates`, whose `mode` is `optional` for `request` and `verify_if_given`.
fn client(context: &Context<'_>, block: &Directive, keys: &mut Keys) {
    let (mut mode, mut ca, mut leaf) = (String::new(), None, false);
    context.carried(block);
    for line in block.inner() {
        context.carried(line);
        match line.name.as_str() {
            "mode" => mode = resolve(line.arg(0)),
            "trusted_ca_cert_file" if ca.is_some() => {
                context.missing(line, "authorities of clients are one file", "join the files in ca");
            }
            "trusted_ca_cert_file" => ca = Some(line.arg(0).to_owned()),
            "trust_pool" if line.arg(0) == "file" => {
                let inner = line.inner().iter().find_map(|own| own.args.first());
                ca = line.args.get(1).or(inner).cloned();
                context.carried_whole(line);
            }
            "trusted_leaf_cert" | "trusted_leaf_cert_file" | "verifier" => {
                leaf = true;
                context.missing(
                    line,
                    "certificates of clients are restricted by routes",
                    "write client_certificate in the routes; until then the authorities alone decide",
                );
            }
            _ => context.missing(
                line,
                "authorities of brisk are in files",
                "write them to a file and its path to ca",
            ),
        }
    }
    let is_optional = matches!(mode.as_str(), "request" | "verify_if_given");
    let file = ca.unwrap_or_else(|| ".brisk/client-authorities.pem".to_owned());
    let mut table = Keys::of("mode", if is_optional { "\"optional\"" } else { "\"required\"" });
    table.set("ca", context.file(&file));
    // Certificates that the authorities issue are accepted now, which Caddy would refuse.
    if leaf {
        context.report.borrow_mut().note_open(block.id);
    }
    if matches!(mode.as_str(), "request" | "require") {
        context.different(block, "brisk verifies each certificate of a client");
    }
    keys.set("client_certificates", table.inline());
}
