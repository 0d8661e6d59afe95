//! Addresses of sites, such as `https://a.example:8443`, and the processes of brisk that serve them: [`divide`] forms the groups.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::caddy::environment::{has_variable, is_simple, resolve};
use crate::caddy::options::Options;
use crate::directive::Directive;

/// An address of a site: `http://a.example` has the `host` `a.example`, the `port` 80 and no TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// Name, wildcard such as `*.a.example`, or IP address in lower case; empty for all names, as in `:8080`.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) has_tls: bool,
}

/// A site, which is the block of a [`Directive`], with its addresses.
#[derive(Clone, Debug)]
pub(crate) struct Site<'a> {
    pub(crate) directive: &'a Directive,
    pub(crate) addresses: Vec<Address>,
    /// Local addresses of `bind`, or of `default_bind` without one; empty for all.
    pub(crate) bind: Vec<String>,
    /// Addresses without a counterpart, such as `a.example/x` or `ftp://x`.
    pub(crate) unread: Vec<String>,
}

impl<'a> Site<'a> {
    /// The site of a block. A `bind` such as `unix//run/a` makes the whole site `unread`.
    pub(crate) fn new(directive: &'a Directive, options: &Options<'a>) -> Self {
        let inner = directive.inner();
        let bind = inner.iter().find(|line| line.name == "bind");
        let bind = bind
            .map_or_else(|| options.bind.clone(), |line| line.args.iter().map(|arg| resolve(arg)).collect());
        let has_certificates =
            inner.iter().any(|line| line.name == "tls" && (!line.args.is_empty() || line.block.is_some()));
        let words = [&directive.name].into_iter().chain(&directive.args);
        let (mut addresses, mut unread) = (Vec::new(), Vec::new());
        let is_ip = |address: &String| {
            !address
                .trim_start_matches("tcp")
                .trim_start_matches(['4', '6'])
                .trim_start_matches('/')
                .contains('/')
        };
        if !bind.iter().all(is_ip) {
            let unread = vec![format!("bind {}", bind.join(" "))];
            return Self { directive, addresses, bind, unread };
        }
        for word in words.flat_map(|word| word.split(',')).filter(|word| !word.is_empty()) {
            match address(word, options, has_certificates) {
                Some(address) if addresses.contains(&address) => {}
                Some(address) => addresses.push(address),
                None => unread.push(word.to_owned()),
            }
        }
        Self { directive, addresses, bind, unread }
    }
}

/// One [`Address`]; `None` if brisk has no counterpart.
fn address(word: &str, options: &Options<'_>, has_certificates: bool) -> Option<Address> {
    let resolved = resolve(word);
    // A name of a variable stays in the result, unless the variable has a scheme or a port too.
    let text = if has_variable(word) && is_simple(word) { word } else { resolved.as_str() };
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    // `a.example/*` has all paths, as `a.example` has.
    let is_whole = matches!(path, "" | "*");
    let (host, port) = divided(authority);
    let port = match port.map(|port| resolve(port).parse::<u16>()) {
        Some(Ok(port)) => Some(port),
        Some(Err(_)) => return None,
        None => None,
    };
    let host = host.to_ascii_lowercase_unless_variable();
    let name = resolve(&host);
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._*".contains(&byte))
        || name.parse::<IpAddr>().is_ok();
    let wildcard = name.strip_prefix("*.").unwrap_or(&name);
    let is_right = is_whole && is_name && !wildcard.contains('*') && matches!(scheme, "" | "http" | "https");
    let usual = if scheme == "http" { options.http_port } else { options.https_port };
    let port = port.unwrap_or(usual);
    // `auto_https off` has no effect on addresses with a name: they have TLS then too.
    let by_default = !name.is_empty() || (port == options.https_port && !options.is_off());
    let has_tls = match scheme {
        "http" => false,
        "https" => true,
        _ => port != options.http_port && (by_default || has_certificates),
    };
    is_right.then_some(Address { host, port, has_tls })
}

trait LowerCase {
    fn to_ascii_lowercase_unless_variable(&self) -> String;
}

impl LowerCase for &str {
    fn to_ascii_lowercase_unless_variable(&self) -> String {
        if has_variable(self) { (*self).to_owned() } else { self.to_ascii_lowercase() }
    }
}

/// Host and port of an authority: `[::1]:8443` is `::1` and `8443`.
fn divided(authority: &str) -> (&str, Option<&str>) {
    if let Some((host, rest)) = authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (host, rest.strip_prefix(':'));
    }
    // A colon of a default of a variable is no separator.
    let from = authority.rfind('}').map_or(0, |end| end + 1);
    match authority[from..].rfind(':') {
        Some(at) if authority.matches(':').count() == 1 || from > 0 => {
            (&authority[..from + at], Some(&authority[from + at + 1..]))
        }
        _ => (authority, None),
    }
}

impl Site<'_> {
    /// Ports of the site; `http_port` counts as `https_port`.
    pub(crate) fn ports(&self, options: &Options<'_>) -> BTreeSet<u16> {
        let port = |address: &Address| {
            if address.port == options.http_port { options.https_port } else { address.port }
        };
        self.addresses.iter().map(port).collect()
    }
}

/// Sites that one process of brisk serves, because Caddy has them at the same addresses: those of one port, of `http_port` with
/// `https_port`, and all ports of a site. The second part are the addresses of each [`Site`] there.
pub(crate) fn divide<'s, 'a>(
    sites: &'s [Site<'a>],
    options: &Options<'_>,
) -> Vec<Vec<(&'s Site<'a>, Vec<Address>)>> {
    let key = |site: &Site<'_>, port: u16| {
        let mut bind = site.bind.clone();
        bind.sort();
        let port = if port == options.http_port { options.https_port } else { port };
        format!("{} {port}", bind.join(" "))
    };
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    let mut parents: Vec<usize> = Vec::new();
    let mut first = Vec::new();
    for site in sites {
        let mut own: Option<usize> = None;
        for address in &site.addresses {
            let next = numbers.len();
            let number = *numbers.entry(key(site, address.port)).or_insert(next);
            if number == parents.len() {
                parents.push(number);
            }
            if let Some(own) = own {
                let (one, two) = (find(&mut parents, own), find(&mut parents, number));
                parents[two.max(one)] = one.min(two);
            }
            own = Some(number);
        }
        first.push(own);
    }
    let mut groups: BTreeMap<usize, Vec<(&Site<'_>, Vec<Address>)>> = BTreeMap::new();
    for (site, own) in sites.iter().zip(first) {
        if let Some(own) = own {
            groups.entry(find(&mut parents, own)).or_default().push((site, site.addresses.clone()));
        }
    }
    groups.into_values().collect()
}

/// The group of the number `at` in `parents`, whose path to it becomes shorter.
fn find(parents: &mut [usize], mut at: usize) -> usize {
    while parents[at] != at {
        parents[at] = parents[parents[at]];
        at = parents[at];
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_a_port_and_tls() {
        let options = Options::default();
        for (text, host, port, has_tls) in [
            ("A.example", "a.example", 443, true),
            ("http://a.example", "a.example", 80, false),
            (":8080", "", 8080, false),
            ("localhost:8080", "localhost", 8080, true),
            ("https://", "", 443, true),
            (":80", "", 80, false),
            ("[::1]:8443", "::1", 8443, true),
            ("{$BRISK_NONE:a.example}:8443", "{$BRISK_NONE:a.example}", 8443, true),
            ("{$BRISK_NONE::8080}", "", 8080, false),
            ("*.a.example", "*.a.example", 443, true),
        ] {
            assert_eq!(
                address(text, &options, false),
                Some(Address { host: host.to_owned(), port, has_tls }),
                "{text}"
            );
        }
        for text in ["a.example/x", "a*.example", "ftp://x", "a:x"] {
            assert_eq!(address(text, &options, false), None, "{text}");
        }
    }
}
