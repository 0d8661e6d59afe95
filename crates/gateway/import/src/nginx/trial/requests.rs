//! Requests of a trial, from `server_name`, `listen`, `location`, `if`, `map`, `limit_except` and `valid_referers`.

use super::restated::Restated;
use super::sample;
use crate::directive::Directive;
use crate::nginx::listen;
use crate::nginx::location::{Kind, kind};

/// Requests at most.
const MOST: usize = 3000;

/// A request of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialRequest {
    /// Position of the listener in [`Trial::listeners`](super::Trial::listeners).
    pub listener: usize,
    /// Name of the host, for `Host` and the server name of TLS.
    pub host: String,
    /// Method, such as `GET`.
    pub method: String,
    /// Path and query, encoded, such as `/a%20b?c=d`.
    pub target: String,
    /// A further header, such as `Cookie`.
    pub header: Option<(String, String)>,
}

/// A property of a request by which the configuration decides.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Feature {
    Method(String),
    Header(String, String),
    Query(String),
}

/// The requests for a configuration.
pub(super) fn of(restated: &Restated) -> Vec<TrialRequest> {
    let mut features = Vec::new();
    gather(&restated.lines, &mut features);
    features.truncate(40);
    let mut all = Vec::new();
    for server in servers(&restated.lines) {
        let (hosts, numbers) = (hosts(server), listeners(server, restated));
        let mut paths = vec!["/".to_owned()];
        locations(server.inner(), &mut paths);
        paths.retain(|path| path.starts_with('/'));
        for host in &hosts {
            for listener in &numbers {
                let request = |method: &str, target: String, header| TrialRequest {
                    listener: *listener,
                    host: host.clone(),
                    method: method.to_owned(),
                    target,
                    header,
                };
                all.extend(paths.iter().map(|path| request("GET", encoded(path), None)));
                all.push(request("GET", "/?a=b&c=%20".to_owned(), None));
                all.push(request("HEAD", "/".to_owned(), None));
                for (path, feature) in
                    paths.iter().take(10).flat_map(|path| features.iter().map(move |own| (path, own)))
                {
                    all.push(match feature {
                        Feature::Method(method) => request(method, encoded(path), None),
                        Feature::Query(query) => request("GET", format!("{}?{query}", encoded(path)), None),
                        Feature::Header(name, value) => {
                            request("GET", encoded(path), Some((name.clone(), value.clone())))
                        }
                    });
                }
            }
        }
    }
    let mut unique: Vec<TrialRequest> = Vec::new();
    let mut known = std::collections::BTreeSet::new();
    for request in all {
        if known.insert(format!("{request:?}")) && unique.len() < MOST {
            unique.push(request);
        }
    }
    unique
}

/// The blocks `server`, also those of a file without a block `http`.
fn servers(lines: &[Directive]) -> Vec<&Directive> {
    let inner = lines.iter().filter(|line| line.name == "http").flat_map(Directive::inner);
    lines.iter().chain(inner).filter(|line| line.name == "server").collect()
}

/// Names from `server_name`, or `localhost` without one that a client can send.
fn hosts(server: &Directive) -> Vec<String> {
    let lines = server.inner().iter().filter(|line| line.name == "server_name");
    let mut hosts: Vec<_> = lines
        .flat_map(|line| &line.args)
        .filter(|name| !name.starts_with(['~', '_', '$']) && !name.is_empty() && !name.ends_with(".*"))
        .map(|name| name.strip_prefix('.').unwrap_or(name).replace("*.", "trial."))
        .collect();
    hosts.truncate(3);
    if hosts.is_empty() {
        hosts.push("localhost".to_owned());
    }
    hosts
}

/// Positions of the addresses in `listen`, one with TLS and one without.
fn listeners(server: &Directive, restated: &Restated) -> Vec<usize> {
    let lines = server.inner().iter().filter(|line| line.name == "listen");
    let addresses: Vec<_> = lines.filter_map(|line| listen::address(line.arg(0))).collect();
    let mut numbers = Vec::new();
    // One address with TLS and one without show both.
    for has_tls in [true, false] {
        let is_one = |listener: &super::TrialListener| {
            listener.has_tls == has_tls && addresses.contains(&listener.address)
        };
        numbers.extend(restated.listeners.iter().position(is_one));
    }
    numbers
}

/// Paths of `location`, and paths beside them: for `/api/`, also `/api`, `/apix` and `/api/x`.
fn locations(lines: &[Directive], paths: &mut Vec<String>) {
    for line in lines.iter().filter(|line| line.name == "location") {
        match kind(line) {
            Ok(Kind::Exact(path)) => paths.extend([format!("{path}x"), path]),
            Ok(Kind::Prefix { path, .. }) => {
                let bare = path.trim_end_matches('/');
                paths.extend([path.clone(), format!("{bare}/x"), format!("{bare}/a%20b.html")]);
                if !bare.is_empty() {
                    paths.extend([bare.to_owned(), format!("{bare}x")]);
                }
            }
            Ok(Kind::Expression { pattern, ignore_case }) => {
                paths.extend(sample::paths(&pattern, ignore_case));
            }
            Ok(Kind::Named(_)) | Err(_) => {}
        }
        locations(line.inner(), paths);
    }
}

/// Methods, headers, cookies and parameters in `if`, `map`, `limit_except` and `valid_referers`.
fn gather(lines: &[Directive], features: &mut Vec<Feature>) {
    let add = |feature: Option<Feature>, features: &mut Vec<Feature>| {
        features.extend(feature.filter(|feature| !features.contains(feature)));
    };
    for line in lines {
        match line.name.as_str() {
            "map" => {
                for key in line
                    .inner()
                    .iter()
                    .filter(|key| !matches!(&*key.name, "default" | "hostnames" | "volatile"))
                {
                    add(feature(line.arg(0), &key.name), features);
                }
            }
            "if" => {
                let subject = line.arg(0).trim_start_matches('(');
                let (operator, value) = (line.arg(1), line.args.get(2..).unwrap_or_default().join(" "));
                let value = value.trim_end_matches(')').trim();
                let is_expression = operator.trim_start_matches('!').starts_with('~');
                let value = if is_expression { format!("~{value}") } else { value.to_owned() };
                add(feature(subject.trim_end_matches(')'), &value), features);
            }
            "limit_except" => {
                for method in ["POST", "DELETE"] {
                    add(Some(Feature::Method(method.to_owned())), features);
                }
            }
            "valid_referers" => {
                for referer in ["https://other.invalid/", "https://example.com/"] {
                    add(Some(Feature::Header("Referer".to_owned(), referer.to_owned())), features);
                }
            }
            _ => {}
        }
        gather(line.inner(), features);
    }
}

/// The property of requests for which `$request_method`, `$http_NAME`, `$cookie_NAME` or `$arg_NAME` has a value.
fn feature(variable: &str, key: &str) -> Option<Feature> {
    let name = variable.strip_prefix('$')?;
    let value = match key.strip_prefix("~*").or_else(|| key.strip_prefix('~')) {
        Some(expression) => sample::texts(expression, true).into_iter().next()?,
        None if key.is_empty() => "1".to_owned(),
        None => key.trim_start_matches('\\').to_owned(),
    };
    let is_token =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    if !is_token(&value) {
        return None;
    }
    if name == "request_method" {
        return value.bytes().all(|byte| byte.is_ascii_uppercase()).then_some(Feature::Method(value));
    }
    let header = |name: &str| Some(Feature::Header(name.replace('_', "-"), value.clone()));
    match name.split_once('_') {
        Some(("http", "host")) => None,
        Some(("http", own)) => header(own),
        Some(("cookie", own)) => Some(Feature::Header("Cookie".to_owned(), format!("{own}={value}"))),
        Some(("arg", own)) => Some(Feature::Query(format!("{own}={}", encoded(&value)))),
        _ => None,
    }
}

/// A path with its other bytes encoded. Encodings that it has stay.
fn encoded(path: &str) -> String {
    let mut text = String::new();
    for byte in path.bytes() {
        match byte {
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | b'#' | b'?' | b'&' => {
                percent(byte, &mut text);
            }
            byte if byte.is_ascii_graphic() => text.push(byte.into()),
            byte => percent(byte, &mut text),
        }
    }
    text
}

fn percent(byte: u8, text: &mut String) {
    text.extend(['%', digit(byte >> 4), digit(byte & 15)]);
}

fn digit(value: u8) -> char {
    char::from_digit(value.into(), 16).map_or('0', |digit| digit.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::nginx::include::Files;
    use crate::nginx::trial::Stand;

    #[test]
    fn requests_come_from_locations_conditions_and_maps() {
        let text = "map $http_x_kind $kind { default a; beta b; ~^ga c; } server { listen 80; server_name a.example *.b.example; \
                    location /api/ { if ($request_method = PATCH) { return 405; } return 200; } \
                    location = /one { return 200; } location ~ ^/u/(\\d+)$ { return 200; } }";
        let (all, _) = Files::of_text(text).expect("a configuration");
        let [folder, chain, key] = ["/t", "/t/chain", "/t/key"].map(PathBuf::from);
        let restated =
            Restated::of(&all, &Stand { folder, chain, key, source: PathBuf::new() }, &mut || Ok(1))
                .expect("ports");
        let requests = of(&restated);
        let has = |host: &str, method: &str, target: &str, header: Option<(&str, &str)>| {
            requests.iter().any(|request| {
                let own = request.header.as_ref().map(|(name, value)| (name.as_str(), value.as_str()));
                (&*request.host, &*request.method, &*request.target, own) == (host, method, target, header)
            })
        };
        for target in ["/", "/api/x", "/apix", "/api", "/one", "/onex", "/u/0", "/api/a%20b.html"] {
            assert!(has("a.example", "GET", target, None), "{target}");
        }
        assert!(has("trial.b.example", "GET", "/api/", None));
        assert!(has("a.example", "PATCH", "/api/", None));
        assert!(has("a.example", "GET", "/", Some(("x-kind", "beta"))));
        assert!(has("a.example", "GET", "/", Some(("x-kind", "ga"))));
    }
}
