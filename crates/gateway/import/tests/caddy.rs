//! Caddyfiles as they are used with well-known applications, and rules of the translation.

use std::fs;
use std::path::{Path, PathBuf};

use brisk_import::{Class, ImportError, Imported, caddy};

fn inputs() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/caddy");
    let mut paths: Vec<_> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path()).collect();
    paths.retain(|path| path.is_file());
    paths.sort();
    paths
}

fn read(text: &str) -> Result<Imported, ImportError> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("Caddyfile");
    fs::write(&path, text).expect("a file");
    caddy(&path)
}

fn import(text: &str) -> Imported {
    read(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn toml(text: &str) -> String {
    import(text).files.join("\n# ---\n")
}

fn class_of(imported: &Imported, start: &str) -> Class {
    let mut entries = imported.report.entries();
    entries.find(|entry| entry.text.starts_with(start)).unwrap_or_else(|| panic!("no {start}")).class
}

/// The route with this line, up to the next table.
fn route(result: &str, line: &str) -> String {
    let own = result.split("[[host.route]]\n").find(|route| route.lines().any(|own| own == line));
    let own = own.unwrap_or_else(|| panic!("no {line} in {result}"));
    own.split("\n\n").next().unwrap_or_default().to_owned()
}

/// Requires that the result refuses requests with the words of the documentation, and does not have `part`.
fn refuses(text: &str, part: &str) {
    let result = toml(text);
    assert!(
        result.contains("NOT CARRIED") && result.contains("respond = { status = 501 }"),
        "{text}\n{result}"
    );
    assert!(!result.contains(part), "{text}\n{result}");
}

#[test]
fn each_directive_of_each_input_has_a_class_and_none_is_unknown() {
    let inputs = inputs();
    assert!(inputs.len() >= 17);
    for path in inputs {
        let report = caddy(&path).unwrap_or_else(|error| panic!("{error}")).report;
        for entry in report.entries() {
            let is_unknown =
                matches!(&entry.class, Class::NotCarried { reason, .. } if reason.contains("does not know"));
            assert!(!is_unknown, "{}: {}", entry.place, entry.text);
            assert!(!entry.place.is_empty(), "{}", entry.text);
        }
        assert!(report.open().is_empty(), "{}: {:?}", path.display(), report.open());
    }
}

#[test]
fn defaults_of_caddy_are_written() {
    let result = toml("a.example\nreverse_proxy localhost:1");
    for line in [
        "https = [\"0.0.0.0:443\", \"[::]:443\"]",
        "http = [\"0.0.0.0:80\", \"[::]:80\"]",
        "http3 = true",
        "acme = true",
        "unknown_host = \"refuse\"",
        "format = \"off\"",
        "servers = [\"http://localhost:1\"]",
    ] {
        assert!(result.lines().any(|own| own == line), "{line}: {result}");
    }
    let plain = toml(":8080 {\n respond ok\n}");
    assert!(plain.contains("http = [\"0.0.0.0:8080\"") && plain.contains("plain = \"serve\""), "{plain}");
    assert!(!plain.contains("acme") && !plain.contains("http3"), "{plain}");
}

#[test]
fn directives_have_the_order_of_caddy() {
    // `respond` precedes `reverse_proxy`, and the longer path precedes the shorter one.
    let result = toml("http://a.example {\n reverse_proxy localhost:1\n respond ok\n}");
    assert!(!result.contains("upstream"), "{result}");
    let result = toml("http://a.example {\n route {\n reverse_proxy localhost:1\n respond ok\n }\n}");
    assert!(result.contains("upstream") && !result.contains("ok\""), "{result}");
    let handles = "http://a.example {\n handle /a/* {\n respond one\n }\n handle /a/b/* {\n respond two\n }\n handle {\n respond three\n }\n}";
    let result = toml(handles);
    assert!(route(&result, "path = \"/a/b/\"").contains("two"), "{result}");
    let ordered = "{\n order respond last\n}\nhttp://a.example {\n respond ok\n file_server\n}";
    assert!(toml(ordered).contains("static = "), "{}", toml(ordered));
}

#[test]
fn paths_in_another_case_do_not_avoid_a_restriction() {
    let result = toml("http://a.example {\n respond /admin/* 403\n reverse_proxy localhost:1\n}");
    assert!(route(&result, "path = \"/admin/\"").contains("403"), "{result}");
    assert!(route(&result, "when = { path_regex = \"(?i)^/admin/\" }").contains("403"), "{result}");
    let result = toml("http://a.example {\n respond /admin* 403\n reverse_proxy localhost:1\n}");
    assert!(result.contains("(?i)^/admin\""), "/administrator is refused too: {result}");
}

#[test]
fn conditions_without_a_counterpart_close_the_route() {
    for matcher in [
        "@m `{http.request.uri} == \"/\"`",
        "@m expression {http.request.uri} == \"/\"",
        "@m vars x 1",
        "@m tls",
        "@m header Host x",
        "@m path /{x}/*",
        "@m path_regexp (?<!a)b",
        "@m remote_ip forwarded 10.0.0.0/8",
        "@m {\n path *.a\n path_regexp x(a|b)\n }",
    ] {
        let text =
            format!("http://a.example {{\n {matcher}\n respond @m 403\n reverse_proxy localhost:1\n}}");
        if matcher.contains('\n') {
            refuses(&text, "status = 403");
        } else {
            refuses(&text, "upstream = ");
        }
    }
    refuses("http://a.example {\n abort @undefined\n reverse_proxy localhost:1\n}", "upstream = ");
}

#[test]
fn restrictions_without_a_counterpart_close_the_route() {
    for restriction in [
        "authorize with policy",
        "rate_limit {\n zone x {\n events 5\n }\n }",
        "basic_auth {\n a plain\n }",
        "forward_auth x:1 {\n uri /v\n copy_headers A>B\n }",
        "forward_auth x:1 {\n uri /v?u={uri}\n }",
        "forward_auth x:1 {\n uri /v\n header_up X-App internal\n }",
        "method GET",
        "templates",
    ] {
        refuses(
            &format!("http://a.example {{\n {restriction}\n reverse_proxy localhost:1\n}}"),
            "upstream = ",
        );
    }
    for proxied in [
        "reverse_proxy {upstream}",
        "reverse_proxy localhost:1 {\n handle_response {\n respond x\n }\n }",
        "reverse_proxy localhost:1 {\n header_up X-Secret {file./etc/secret}\n }",
        "reverse_proxy localhost:1 {\n transport http {\n network_proxy url http://x\n }\n }",
        "reverse_proxy https://a {\n transport http {\n tls_trust_pool file /a.pem /b.pem\n }\n }",
        "reverse_proxy https://a {\n transport http {\n tls_trust_pool inline {\n trust_der x\n }\n }\n }",
        "reverse_proxy https://a {\n transport http {\n tls_trust_pool pki_root x\n }\n }",
        "reverse_proxy https://a {\n transport http {\n tls_trusted_ca_certs /a.pem /b.pem\n }\n }",
    ] {
        refuses(&format!("http://a.example {{\n {proxied}\n}}"), "upstream = ");
    }
    refuses("http://a.example {\n root * /srv\n file_server {\n hide secret.txt\n }\n}", "static = ");
}

#[test]
fn negated_conditions_are_routes_before_the_others() {
    let text = "http://a.example {\n @out not client_ip private_ranges\n respond @out 403\n reverse_proxy localhost:1\n}";
    let result = toml(text);
    let networks = result.find("when = { networks = ").expect("a condition");
    assert!(networks < result.find("status = 403").expect("a refusal"), "{result}");
    let behind = "{\n servers {\n trusted_proxies static 10.0.0.0/8\n }\n}\nhttp://a.example {\n @out not remote_ip 10.0.0.0/8\n respond @out 403\n reverse_proxy localhost:1\n}";
    refuses(behind, "upstream = ");
}

#[test]
fn passwords_are_required_before_the_server_starts() {
    let hash = "$2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG";
    let text =
        format!("http://a.example {{\n basic_auth /x/* {{\n bob {hash}\n }}\n reverse_proxy localhost:1\n}}");
    let imported = import(&text);
    let result = &imported.files[0];
    assert!(route(result, "path = \"/x/\"").contains("/.brisk/users-1\", forward = true }"), "{result}");
    assert!(result.contains(&format!("# bob:{hash}")), "{result}");
    assert!(matches!(class_of(&imported, "basic_auth"), Class::Difference(_)));
}

#[test]
fn sites_of_other_addresses_are_not_merged() {
    let text = ":8080 {\n respond public\n}\n:9000 {\n bind 127.0.0.1\n respond admin\n}\n";
    let files = import(text).files;
    assert_eq!(files.len(), 2, "{files:?}");
    assert!(!files[0].contains("admin") && files[1].contains("http = [\"127.0.0.1:9000\"]"), "{files:?}");
    let shared = "a.example, a.example:8443 {\n respond a\n}\nb.example:8443 {\n respond b\n}\n";
    let imported = import(shared);
    assert!(imported.files[0].starts_with("# WARNING: Caddy refuses requests"), "{:?}", imported.files);
    let socket = read("http://a.example {\n bind unix//run/x\n respond a\n}\n");
    assert!(matches!(socket, Err(ImportError::NoSite { .. })), "{socket:?}");
}

#[test]
fn hosts_of_a_wildcard_are_hosts_of_their_own() {
    let text =
        "http://*.a.example {\n @x host x.a.example\n handle @x {\n respond x\n }\n respond rest 404\n}";
    let result = toml(text);
    assert_eq!(result.matches("[[host]]").count(), 2, "{result}");
    assert!(
        result.contains("names = [\"x.a.example\"]") && result.contains("names = [\"*.a.example\"]"),
        "{result}"
    );
    assert!(!result.contains("when"), "{result}");
}

#[test]
fn paths_for_servers_are_changed() {
    let result = toml("http://a.example {\n handle_path /api/* {\n reverse_proxy localhost:1\n }\n}");
    assert!(route(&result, "path = \"/api/\"").contains("strip_prefix = true"), "{result}");
    let result = toml("http://a.example {\n rewrite /v1/* /two{uri}\n reverse_proxy localhost:1\n}");
    assert!(route(&result, "path = \"/v1/\"").contains("to = \"/two{1}\""), "{result}");
    let php =
        "http://a.example {\n root * /srv\n rewrite /secret.php /index.php\n php_fastcgi localhost:9000\n}";
    let result = toml(php);
    assert!(
        route(&result, "path = \"/secret.php\"").contains("to = \"/index.php\""),
        "not the script itself: {result}"
    );
}

#[test]
fn files_come_before_applications() {
    let spa = toml("http://a.example {\n root * /srv\n try_files {path} /index.html\n file_server\n}");
    assert!(spa.contains("static = \"/srv\"\nfallback = \"/index.html\""), "{spa}");
    let app = toml(
        "http://a.example {\n root * /srv\n @file file\n handle @file {\n file_server\n }\n reverse_proxy localhost:1\n}",
    );
    assert!(app.contains("fallback = { upstream = \"localhost-1\" }"), "{app}");
    let php = toml("http://a.example {\n root * /srv\n php_fastcgi unix//run/php.sock\n file_server\n}");
    assert!(
        php.contains("fallback = { upstream = \"php\" }") && php.contains("fastcgi+unix:/run/php.sock"),
        "{php}"
    );
    refuses(
        "http://a.example {\n root * /srv\n basic_auth {\n a $2a$14$x\n }\n @file file\n handle @file {\n file_server\n }\n handle {\n forward_auth x:1 {\n uri /v\n }\n reverse_proxy localhost:1\n }\n}",
        "fallback = ",
    );
}

#[test]
fn the_configuration_in_the_folder_of_files_is_hidden() {
    for (text, path) in [
        (":8080 {\n root * .\n file_server\n}\n", "/Caddyfile"),
        (":8080 {\n root * ./x/..\n file_server\n}\n", "/Caddyfile"),
        (":8080 {\n file_server\n}\n", "/brisk.toml"),
        (":8080 {\n handle_path /files/* {\n root .\n file_server\n }\n}\n", "/files/Caddyfile"),
        (":8080 {\n file_server\n}\na.example {\n tls own.pem keys/own.key\n}\n", "/keys/own.key"),
    ] {
        let result = toml(text);
        assert!(route(&result, &format!("path = \"{path}\"")).contains("status = 404"), "{text}: {result}");
    }
    let fixed = toml(":8080 {\n rewrite * /Caddyfile\n file_server\n}\n");
    assert!(!fixed.contains("static = "), "{fixed}");
}

#[test]
fn secrets_are_in_a_folder_that_brisk_does_not_serve() {
    let text = "localhost {\n basic_auth /private* {\n bob $2a$14$x\n }\n file_server browse\n}\napp.lan {\n file_server\n}\n";
    let result = toml(text);
    for name in ["users-1", "app-lan.pem", "app-lan.key"] {
        assert!(result.contains(&format!("/.brisk/{name}\"")), "{name}: {result}");
    }
}

#[test]
fn conditions_on_changed_parts_of_requests_close_the_route() {
    for rules in [
        "request_header -X-Admin\n respond @no 403",
        "request_header X-Admin 1\n respond @no 403",
        "request_header +x-admin 1\n respond @expression 403",
        "handle @no {\n header X-B 1\n }\n request_header -X-Admin\n respond @no 403",
        "forward_auth x:1 {\n uri /v\n copy_headers X-Admin\n }\n respond @no 403",
        "request_header Host b.example\n respond @host 403",
        "rewrite * /x?admin=1\n respond @query 403",
        "uri query -admin\n respond @query 403",
        "request_header X-A 1\n forward_auth x:1 {\n uri /v\n }",
        "request_header -X-User\n reverse_proxy localhost:1 {\n header_up X-Copy {header.X-User}\n }",
        "request_header -Cookie\n reverse_proxy localhost:1 {\n header_up X-Copy {cookie.a}\n }",
    ] {
        let matchers = "@no not header X-Admin 1\n @expression not header_regexp X-Admin 1\n @host host a.example\n @query not query admin=1";
        let text = format!(
            "http://a.example {{\n {matchers}\n route {{\n {rules}\n reverse_proxy localhost:1\n }}\n}}"
        );
        refuses(&text, "upstream = ");
    }
    let text = "http://a.example {\n @no {\n path /admin*\n not header X-Admin 1\n }\n route {\n request_header -X-Admin\n respond @no 403\n reverse_proxy localhost:1\n }\n}";
    let result = toml(text);
    assert!(route(&result, "path = \"/admin\"").contains("status = 501"), "{result}");
    assert!(result.contains("upstream = ") && !result.contains("X-Admin = "), "{result}");
    let other = "http://a.example {\n @no not header X-Admin 1\n request_header -X-Other\n respond @no 403\n reverse_proxy localhost:1\n}";
    assert!(!toml(other).contains("501"), "{}", toml(other));
}

#[test]
fn names_with_variables_are_compared_by_their_values() {
    for (site, matcher, name) in [
        ("*.{$BRISK_NONE:a.example}", "x.{$BRISK_NONE:a.example}", "x.${BRISK_NONE:-a.example}"),
        ("{$BRISK_NONE:x.A.example}", "x.a.example", "${BRISK_NONE:-x.A.example}"),
        ("x.a.example", "{$BRISK_NONE:x.a.example}", "x.a.example"),
        ("x.a.example, http://y.a.example", "{$BRISK_NONE:x.a.example}", "x.a.example"),
        ("", "x.{$BRISK_NONE:a.example}", "x.${BRISK_NONE:-a.example}"),
    ] {
        let text =
            format!("http://{site} {{\n @x host {matcher}\n respond @x 403\n reverse_proxy localhost:1\n}}");
        let result = toml(&text);
        let own = result.split("[[host]]\n").find(|own| own.contains(&format!("names = [\"{name}\"]")));
        assert!(own.is_some_and(|own| own.contains("403") && !own.contains("upstream")), "{text}\n{result}");
    }
    for (site, matcher) in [
        ("*.a.example", "{$BRISK_NONE}.a.example"),
        ("{$BRISK_NONE}", "x.a.example"),
        ("{$BRISK_NONE}, http://{$BRISK_NONE_TWO}", "x.a.example"),
    ] {
        let text =
            format!("http://{site} {{\n @x host {matcher}\n respond @x 403\n reverse_proxy localhost:1\n}}");
        refuses(&text, "upstream = ");
    }
}

#[test]
fn get_does_not_find_head() {
    let text = "http://a.example {\n @get method GET\n header @get X-A 1\n @head method HEAD\n respond @head 403\n reverse_proxy localhost:1\n}";
    let result = toml(text);
    let head = route(&result, "when = { methods = [\"HEAD\"] }");
    assert!(head.contains("403") && !head.contains("X-A"), "{result}");
    assert!(route(&result, "when = { methods = [\"GET\"] }").contains("X-A"), "{result}");
    assert!(result.find("HEAD") < result.find("\"GET\""), "{result}");
    refuses(
        "http://a.example {\n @m not method get\n respond @m 403\n reverse_proxy localhost:1\n}",
        "upstream = ",
    );
}

#[test]
fn policies_of_the_proxy_protocol_are_open() {
    for (lines, has_key) in
        [("deny 192.0.2.0/24", false), ("fallback_policy reject", false), ("allow 10.0.0.0/8", true)]
    {
        let text = format!(
            "{{\n servers {{\n listener_wrappers {{\n proxy_protocol {{\n {lines}\n }}\n tls\n }}\n }}\n}}\na.example {{\n respond ok\n}}"
        );
        let imported = import(&text);
        assert_eq!(imported.files[0].contains("proxy_protocol = "), has_key, "{text}: {:?}", imported.files);
        assert_eq!(imported.report.open().is_empty(), has_key, "{text}: {}", imported.report);
    }
}

#[test]
fn many_negations_and_endless_files_have_a_bound() {
    for (count, negated) in [(20_000, false), (20_001, true)] {
        let words = "not ".repeat(count);
        let text = format!(
            "http://a.example {{\n @a {words}method POST\n respond @a 403\n reverse_proxy localhost:1\n}}"
        );
        let own = route(&toml(&text), "when = { methods = [\"POST\"] }");
        assert_eq!(own.contains("403"), !negated, "{count}: {own}");
    }
    let imported = import("http://a.example {\n import /dev/zero\n respond ok\n}");
    assert!(matches!(class_of(&imported, "import"), Class::NotCarried { .. }), "{}", imported.report);
}

#[test]
fn variables_of_the_environment_stay_variables() {
    let result = toml(
        "{$BRISK_TEST_NONE:a.example} {\n reverse_proxy {$BRISK_TEST_NONE_HOST:app}:{$BRISK_TEST_NONE_PORT:80}\n}",
    );
    assert!(result.contains("names = [\"${BRISK_TEST_NONE:-a.example}\"]"), "{result}");
    assert!(result.contains("http://${BRISK_TEST_NONE_HOST:-app}:${BRISK_TEST_NONE_PORT:-80}"), "{result}");
}

#[test]
fn snippets_and_files_are_imported() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
    write("a.site", "a.example {\n import text A\n}\n");
    write("b.site", "b.example {\n import text B\n}\n");
    write(
        "Caddyfile",
        "(text) {\n respond \"I am {args[0]}\"\n}\n(unused) {\n tls internal\n}\nimport *.site\nimport missing\n",
    );
    let imported = caddy(&folder.path().join("Caddyfile")).expect("an import");
    let result = imported.files.concat();
    assert!(result.contains("I am A") && result.contains("I am B"), "{result}");
    assert!(matches!(class_of(&imported, "(unused)"), Class::NotNeeded(_)));
    assert!(matches!(class_of(&imported, "import missing"), Class::NotCarried { .. }));
}

#[test]
fn mistakes_are_named_with_their_line() {
    for (text, line) in
        [("a.example {\n respond x\n", 1), ("a.example {\n}\n}\n", 3), ("a.example {\n respond \"x\n}\n", 2)]
    {
        let error = read(text).expect_err(text).to_string();
        assert!(error.contains(&format!("Caddyfile:{line}: ")), "{text}: {error}");
    }
    assert!(matches!(read("(s) {\n respond x\n}\n"), Err(ImportError::NoSite { .. })));
    let endless = "(s) {\n import s\n import s\n}\na.example {\n import s\n}\n";
    assert!(matches!(read(endless), Err(ImportError::TooLarge { .. })));
}

#[test]
fn many_conditions_end_in_a_refusal() {
    let headers = (0..60)
        .map(|index| format!("@m{index} header X{index} 1\nheader @m{index} Y{index} 2\n"))
        .collect::<Vec<_>>()
        .concat();
    let result = toml(&format!(":80 {{\n{headers}respond ok\n}}\n"));
    assert!(result.contains("status = 501") && result.len() < (4 << 20), "{} bytes", result.len());
}

#[test]
fn a_server_without_verification_is_named() {
    let text = "http://a.example {\n reverse_proxy https://10.0.0.1 {\n transport http {\n tls_trusted_ca_certs /ca.pem\n tls_insecure_skip_verify\n }\n }\n}";
    let imported = import(text);
    assert!(matches!(class_of(&imported, "tls_insecure_skip_verify"), Class::Difference(_)));
    assert!(
        imported.files[0].contains("tls = { verify = false }") && !imported.files[0].contains("/ca.pem"),
        "{:?}",
        imported.files
    );
}
