//! Compression, header rules, keep-alive, `Server-Timing`, visits: what is said of them.

use brisk_answer::settings::{BreachGuard, Plain, RouteSettings};
use brisk_coding::Coding;

use super::*;

fn route(lines: &str) -> String {
    format!("{LISTENER}{HOST}[[host.route]]\npath = \"/\"\nrespond = {{ body = \"x\" }}\n{lines}\n")
}

fn resolved(text: &str) -> RouteSettings {
    accepted(text).settings.service.hosts[0].routes[0].clone()
}

#[test]
fn compression_that_is_off_is_not_the_same_as_none_that_is_written() {
    assert!(
        !resolved(&route("")).compression.is_off
            && !resolved(&route("compression = true")).compression.is_off
    );
    assert!(resolved(&route("compression = false")).compression.is_off);
    let of_host = |value: &str, lines: &str| {
        resolved(&route(lines).replacen(
            "[[host.route]]",
            &format!("compression = {value}\n[[host.route]]"),
            1,
        ))
    };
    assert!(of_host("false", "").compression.is_off && !of_host("true", "").compression.is_off);
    assert!(!of_host("false", "compression = true").compression.is_off);
}

#[test]
fn compression_has_codings_levels_and_types() {
    for (lines, message) in [
        (
            "compression = \"on\"",
            "8:15: host[0].route[0].compression: expected `true`, `false` or a table as { least = \"1KiB\" }, found the \
             text \"on\"",
        ),
        (
            "compression = { codings = [] }",
            "8:27: host[0].route[0].compression.codings: no coding: write some of \"zstd\", \"br\" and \"gzip\", or \
             compression = false",
        ),
        (
            "compression = { codings = [\"br\", \"br\"] }",
            "8:34: host[0].route[0].compression.codings[1]: is in the list already",
        ),
        (
            "compression = { br_quality = 11 }",
            "8:30: host[0].route[0].compression.br_quality: 11 is out of range: write 0 to 7",
        ),
        (
            "compression = { codings = [\"br\"], zstd_level = 3 }",
            "8:48: host[0].route[0].compression.zstd_level: has no effect: `codings` has no \"zstd\"",
        ),
        (
            "compression = { arrivals = 1000 }",
            "8:28: host[0].route[0].compression.arrivals: 1000 is out of range: write 0 to 128",
        ),
        (
            "compression = { arrivals = 8, codings = [\"br\"] }",
            "8:28: host[0].route[0].compression.arrivals: has no effect: `codings` has no \"gzip\"",
        ),
        (
            "compression = { breach_guard = \"off\", arrivals = 8 }",
            "8:50: host[0].route[0].compression.arrivals: has no effect with `breach_guard = \"off\"`: all pages are \
             compressed without padding",
        ),
        (
            "compression = { types = [\"text\"] }",
            "8:26: host[0].route[0].compression.types[0]: \"text\" is not a media type: write a media type as \
             \"text/html\", or all of a kind as \"text/*\" or \"*+json\"",
        ),
        ("precompressed = true", "8:17: host[0].route[0].precompressed: has no effect without `static`"),
    ] {
        refused(&route(lines), &format!("brisk.toml:{message}"));
    }
    let written = resolved(&route(
        "compression = { codings = [\"gzip\", \"br\"], gzip_level = 9, least = \"1KiB\", breach_guard = \"same_site\", arrivals = 3 }",
    ));
    let compression = written.compression.settings.expect("compression");
    assert_eq!(compression.codings, [Coding::Gzip, Coding::Brotli]);
    assert_eq!((compression.levels, compression.least), ([3, 4, 9], 1024));
    assert_eq!((compression.guard, compression.arrivals), (BreachGuard::SameSite, 3));
    assert!(resolved(&route("")).compression.settings.is_none(), "off unless it is asked for");
    let inherited = route("").replace("[[host.route]]", "compression = true\n[[host.route]]");
    assert!(resolved(&inherited).compression.settings.is_some());
    let off = inherited.replace("respond =", "compression = false\nrespond =");
    assert!(resolved(&off).compression.settings.is_none());
}

#[test]
fn header_rules_name_headers_that_may_be_changed() {
    for (lines, message) in [
        (
            "response_headers = { set = { \"X Y\" = \"1\" } }",
            "8:38: host[0].route[0].response_headers.set.\"X Y\": \"X Y\" is not the name of a header: write one as \
             \"Cache-Control\"",
        ),
        (
            "response_headers = { remove = [\"Content-Length\"] }",
            "8:32: host[0].route[0].response_headers.remove[0]: Content-Length says how a message is sent, which is \
             brisk's own matter",
        ),
        (
            "response_headers = { set = { X-A = \"1\\n\" } }",
            "8:36: host[0].route[0].response_headers.set.X-A: \"1\\n\" is not the value of a header: write ASCII without \
             line breaks, and no spaces around it",
        ),
        (
            "response_headers = { set = { X-A = \"1\" }, add = { x-a = \"2\" } }",
            "8:57: host[0].route[0].response_headers.add.x-a: x-a is in `set` too, which leaves it one value: keep one of \
             the two",
        ),
        (
            "request_headers = { remove = [\"X-Debug\"] }",
            "8:19: host[0].route[0].request_headers: has no effect without `upstream`",
        ),
    ] {
        refused(&route(lines), &format!("brisk.toml:{message}"));
    }
    let rules = resolved(&route("response_headers = { set = { X-A = \"1\" }, remove = [\"Server\"] }"));
    let rules = rules.headers.responses.expect("rules");
    assert_eq!((rules.set[0].name.as_str(), rules.remove[0].as_str()), ("x-a", "server"));
}

#[test]
fn header_rules_of_server_and_host_apply_to_routes_that_do_not_replace_them() {
    let rules = |own: &str| {
        let server = "response_headers = { set = { X-A = \"server\", X-B = \"server\", X-C = \"server\" }, always = true }\n";
        let host = "response_headers = { set = { X-B = \"host\" }, remove = [\"X-C\"] }\n";
        let text = route(own).replace(HOST, &format!("{server}{HOST}{host}"));
        let rules = resolved(&text).headers.responses;
        rules.map_or_else(String::new, |rules| {
            let set =
                rules.set.iter().map(|rule| format!("{}={:?} {:?}", rule.name, rule.value, rule.statuses));
            set.chain(rules.remove.iter().map(|name| format!("-{name}"))).collect::<Vec<_>>().join("; ")
        })
    };
    assert_eq!(rules(""), "x-b=Fixed(\"host\") Successful; x-a=Fixed(\"server\") All; -x-c");
    assert_eq!(
        rules("response_headers = { set = { X-A = \"route\" }, always = true }"),
        "x-a=Fixed(\"route\") All; x-b=Fixed(\"host\") Successful; -x-c"
    );
    assert_eq!(rules("response_headers = { inherit = false }"), "");
    for (text, message) in [
        (
            format!("{LISTENER}request_headers = {{ inherit = false }}\n{HOST}"),
            "3:31: server.request_headers.inherit: has no effect: there are no more general rules",
        ),
        (
            format!("{LISTENER}{HOST}request_headers = {{ set = {{ X-A = \"1\" }}, always = true }}\n"),
            "5:51: host[0].request_headers.always: has no effect on requests: remove it",
        ),
    ] {
        refused(&text, &format!("brisk.toml:{message}"));
    }
}

#[test]
fn plain_http_is_redirected_or_served() {
    let http = "[server]\nhttp = [\"127.0.0.1:80\"]\n";
    let resolved = accepted(&format!("{http}{HOST}plain = \"serve\"\nupstream = \"http://127.0.0.1:1\"\n"));
    let host = &resolved.settings.service.hosts[0];
    assert!(host.plain == Plain::Serve && host.tls.certificates.is_empty() && host.tls.without_tls);
    let warnings = |text: &str| accepted(text).warnings.join("\n");
    let to_nowhere =
        "server.http: requests for \"localhost\" are redirected to HTTPS, and no address is in `https`";
    assert!(warnings(&format!("{http}{HOST}")).contains(to_nowhere));
    assert!(!warnings(&format!("{http}https = [\"127.0.0.1:443\"]\n{HOST}")).contains(to_nowhere));
    refused(
        &format!("{LISTENER}{HOST}plain = \"serve\"\n"),
        "brisk.toml:5:9: host[0].plain: has no effect without `http` in [server]",
    );
}

#[test]
fn mistakes_of_fallbacks_and_groups_are_named() {
    for (lines, message) in [
        (
            "respond = { body = \"x\" }\nfallback = { upstream = \"app\" }",
            "8:12: host[0].route[0].fallback: has no effect without `static`",
        ),
        (
            "static = \".\"\nfallback = { upstream = \"app\" }",
            "8:12: host[0].route[0].fallback: there is no upstream: write [upstream.app] with its `servers`",
        ),
        (
            "static = \".\"\nfallback = 1",
            "8:12: host[0].route[0].fallback: expected the path of a file in quotes, or { upstream = NAME }, found the number 1",
        ),
        (
            "redirect = \"/{1}\"",
            "7:12: host[0].route[0].redirect: \"/{1}\" is no place to redirect to: {1} is the text of a group: write one into \
             `when.path_regex`, as \"^/old/(.*)$\"",
        ),
    ] {
        let text = format!("{LISTENER}{HOST}[[host.route]]\npath = \"/\"\n{lines}\n");
        refused(&text, &format!("brisk.toml:{message}"));
    }
}

#[test]
fn modern_security_headers_have_exceptions() {
    let host = |lines: &str| format!("{LISTENER}{HOST}{lines}\n");
    refused(
        &host("security_headers = \"strict\""),
        "brisk.toml:5:20: host[0].security_headers: \"strict\" is not known here; known here: `modern`",
    );
    let names = |lines: &str| {
        let settings = accepted(&host(lines)).settings.service.hosts[0].clone();
        let names: Vec<_> =
            settings.headers.others.0.iter().map(|(name, _)| name.as_str().to_owned()).collect();
        (names.join(" "), settings.headers.hsts.is_some())
    };
    let all = "x-content-type-options referrer-policy x-frame-options cross-origin-opener-policy";
    assert_eq!(names(""), (String::new(), false));
    assert_eq!(names("security_headers = \"modern\""), (all.to_owned(), true));
    let (some, hsts) = names(
        "security_headers = { hsts = false, frame_options = false, opener_policy = false, permissions_policy = \"camera=()\" }",
    );
    assert_eq!((some.as_str(), hsts), ("x-content-type-options referrer-policy permissions-policy", false));
}

#[test]
fn keep_alive_is_a_profile_or_a_table() {
    let host = |lines: &str| format!("{LISTENER}{HOST}{lines}\n");
    for (lines, message) in [
        (
            "keep_alive = { close = true, idle = \"5s\" }",
            "5:37: host[0].keep_alive.idle: has no effect with close = true: the connection ends with the answer",
        ),
        (
            "keep_alive = { idle = \"10ms\" }",
            "5:23: host[0].keep_alive.idle: 10ms is out of range: write 1s to 1d",
        ),
        (
            "preconnect = \"/p?x\"",
            "5:14: host[0].preconnect: \"/p?x\" is not a path for it: write one as \"/_preconnect\"",
        ),
    ] {
        refused(&host(lines), &format!("brisk.toml:{message}"));
    }
    let text =
        route("").replace("[[host.route]]", "keep_alive = \"api\"\npreconnect = \"/_p\"\n[[host.route]]");
    let settings = accepted(&text).settings.service.hosts[0].clone();
    let minutes = |minutes| Some(Duration::from_mins(minutes));
    assert_eq!(settings.routes[0].keep_alive.and_then(|kept| kept.idle), minutes(5));
    assert_eq!(settings.preconnect.expect("an endpoint").keep_alive.idle, minutes(5));
    let own = text.replace("respond =", "keep_alive = { profile = \"video\", requests = 9 }\nrespond =");
    let kept = accepted(&own).settings.service.hosts[0].routes[0].keep_alive.expect("a table");
    assert_eq!((kept.idle, kept.requests, kept.closes), (Some(Duration::from_secs(30)), Some(9), false));
}

#[test]
fn early_hints_are_links_that_are_of_use_before_the_page() {
    refused(
        &route("early_hints = true"),
        "brisk.toml:8:15: host[0].route[0].early_hints: has no effect without `upstream`: other answers come at once",
    );
    let proxied = |hints: &str| {
        format!(
            "{LISTENER}unknown_host = \"refuse\"\n{HOST}[[host.route]]\npath = \"/\"\nupstream = \"app\"\nearly_hints = \
             {hints}\n[upstream.app]\nservers = [\"http://127.0.0.1:1\"]\n"
        )
    };
    refused(
        &proxied("[\"</a.css>; rel=preload\"]"),
        "brisk.toml:9:16: host[0].route[0].early_hints[0]: \"</a.css>; rel=preload\" is no hint: write a link as \
         \"</app.css>; rel=preload; as=style\", with the relation preload, modulepreload or preconnect; preload needs `as`",
    );
    let hints = |text: &str| {
        let hints = resolved(&proxied(text)).early_hints.settings;
        hints.map(|hints| (hints.links.len(), hints.upstream, hints.learn))
    };
    assert_eq!(hints("false"), None);
    assert_eq!(hints("true"), Some((0, true, true)));
    assert_eq!(hints("[\"</a.css>; rel=preload; as=style\"]"), Some((1, false, false)));
    assert_eq!(hints("{ links = [\"</a.js>; rel=modulepreload\"], learn = false }"), Some((1, true, false)));
}

#[test]
fn consolidated_origins_are_origins_below_paths() {
    let host = |lines: &str| {
        let own = "[[host.route]]\npath = \"/\"\nrespond = { body = \"x\" }\n";
        format!("{LISTENER}{HOST}{lines}\n{own}")
    };
    for (lines, message) in [
        (
            "consolidate = { \"static.example\" = \"/_s\" }",
            "5:36: host[0].consolidate.\"static.example\": \"static.example\" is not an origin: it begins with https:// or \
             http://, as \"https://static.example\"",
        ),
        (
            "consolidate = { \"https://static.example/a\" = \"/_s\" }",
            "5:46: host[0].consolidate.\"https://static.example/a\": \"https://static.example/a\" is not an origin: it ends \
             after host and port, without a path",
        ),
        (
            "consolidate = { \"/_s\" = \"https://static.example\" }",
            "5:25: host[0].consolidate.\"/_s\": the origin comes first: write consolidate = { \"https://static.example\" = \
             \"/_s\" }",
        ),
        (
            "consolidate = { \"https://static.example\" = \"_s/\" }",
            "5:44: host[0].consolidate.\"https://static.example\": \"_s/\" is not a place for an origin: it is a path as \
             \"/_s\": a slash before each name of letters, digits, \"-\", \"_\", \".\" and \"~\", and none at its end",
        ),
        (
            "consolidate = { \"https://static.example\" = { path = \"/_s\", cookie = \"own\" } }",
            "5:60: host[0].consolidate.\"https://static.example\".cookie: unknown key; did you mean `cookies`?",
        ),
        (
            "consolidate = { \"https://static.example\" = { path = \"/_s\", upstream = \"app\" } }",
            "5:71: host[0].consolidate.\"https://static.example\".upstream: there is no upstream: write [upstream.app] with \
             its `servers`",
        ),
        (
            "consolidate = { \"https://a.example\" = \"/_s\", \"https://b.example\" = \"/_s/b\" }",
            "5:68: host[0].consolidate.\"https://b.example\": \"/_s/b\" and \"/_s\" of https://a.example overlap",
        ),
        (
            "consolidate = { \"https://localhost\" = \"/_s\" }",
            "5:39: host[0].consolidate.\"https://localhost\": https://localhost is this host itself: name another origin",
        ),
    ] {
        refused(&host(lines), &format!("brisk.toml:{message}"));
    }
    let text = "consolidate = { \"https://static.example\" = \"/_s\", \"https://a.example:8443\" = { path = \"/_a\", cookies = \
                \"none\" } }";
    let resolved = accepted(&host(text)).settings;
    let found = &resolved.service.hosts[0];
    let places: Vec<_> =
        found.routes.iter().map(|route| (route.path.as_str(), route.consolidation.place)).collect();
    assert_eq!(places, [("/", None), ("/_a", Some(0)), ("/_s", Some(1))]);
    let groups: Vec<_> = resolved.upstreams.iter().map(|group| group.name.as_str()).collect();
    assert_eq!(groups, ["https://a.example:8443", "https://static.example"]);
    assert!(resolved.upstreams[1].servers[0].url.to_string() == "https://static.example");
}

fn host(lines: &str) -> String {
    format!("{LISTENER}{HOST}{lines}\n")
}

#[test]
fn server_timing_is_a_switch_or_a_table_of_origins() {
    for (lines, message) in [
        (
            "server_timing = \"on\"",
            "5:17: host[0].server_timing: expected `true`, `false` or a table as { allow_origins = \
             [\"https://www.example.com\"] }, found the text \"on\"",
        ),
        (
            "server_timing = { allow_origins = [\"example.com\"] }",
            "5:36: host[0].server_timing.allow_origins[0]: \"example.com\" is no origin: it begins with https:// or \
             http://, as \"https://static.example\"; \"*\" is all of them",
        ),
        (
            "server_timing = { allow_origins = [\"*\", \"https://a.example\"] }",
            "5:35: host[0].server_timing.allow_origins: \"*\" is all of them: leave the others out",
        ),
    ] {
        refused(&host(lines), &format!("brisk.toml:{message}"));
    }
    let resolved = |lines: &str| accepted(&host(lines)).settings.service.hosts[0].server_timing.clone();
    assert!(resolved("").is_none() && resolved("server_timing = false").is_none());
    assert_eq!(resolved("server_timing = true").expect("on").allowed, None);
    let some = resolved(
        "server_timing = { allow_origins = [\"https://A.example:443\", \"http://b.example:8080\"] }",
    );
    assert_eq!(some.expect("on").allowed.expect("origins"), "https://a.example, http://b.example:8080");
}

#[test]
fn visits_of_a_host_are_a_switch_or_a_table() {
    for (lines, message) in [
        (
            "visits = 0.5",
            "5:10: host[0].visits: expected `true`, `false` or a table as { share = 0.1 }, found the number 0.5",
        ),
        ("visits = { share = 1.5 }", "5:20: host[0].visits.share: 1.5 is out of range: write 0 to 1"),
        (
            "visits = { sample = 0.5 }",
            "5:12: host[0].visits.sample: unknown key; known here: `share`, `insert`, `network_errors`",
        ),
    ] {
        refused(&host(lines), &format!("brisk.toml:{message}"));
    }
    let resolved = |lines: &str| accepted(&host(lines)).settings.service.hosts[0].visits.clone();
    assert!(resolved("").is_none() && resolved("visits = false").is_none());
    let on = resolved("visits = true").expect("on");
    assert_eq!((on.share, on.insert, on.network_errors), (None, true, false));
    let table = resolved("visits = { share = 0.25, insert = false, network_errors = true }").expect("on");
    assert_eq!((table.share, table.insert, table.network_errors), (Some(0.25), false, true));
}
