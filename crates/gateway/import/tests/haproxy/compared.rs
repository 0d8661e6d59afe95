//! Conditions that brisk would compare in another way, and lines whose effect depends on others.

use super::*;

#[test]
fn a_changed_part_of_the_request_is_not_tested_as_the_client_sent_it() {
    for (lines, refused) in [
        (
            " http-request del-header X-Admin\n http-request set-header X-Admin 1 if { src 10.0.0.0/8 }\n http-request deny if { path_beg /admin } !{ hdr(X-Admin) 1 }",
            "path_regex = \"^/admin\" }; respond = { status = 501 }",
        ),
        (
            " http-request del-header Cookie\n http-request deny unless { req.cook(s) 1 }",
            "respond = { status = 501 }",
        ),
        (
            " http-request set-header Host a.example\n http-request deny unless { hdr(host) a.example }",
            "respond = { status = 501 }",
        ),
        (
            " http-request deny if { path_beg /admin }\n http-request replace-path /api(/.*)? \\1 if { path_beg /api }\n http-request deny if { path_beg /admin }",
            "path_regex = \"^/api\" }; respond = { status = 501 }",
        ),
    ] {
        let routes = routes(&import_lines(lines));
        assert!(routes.iter().any(|route| route.ends_with(refused)), "{lines}\n{routes:?}");
        assert!(!routes.iter().any(|route| route.contains("x-admin")), "{routes:?}");
    }
    let lines = " http-request del-header X-A\n http-request set-header X-B %[req.hdr(X-A)]";
    let expected = ["upstream = \"app\"; request_headers = { remove = [\"X-A\", \"X-B\"] }"];
    assert_eq!(routes(&import_lines(lines)), expected);
}

#[test]
fn tests_that_brisk_would_compare_in_another_way_refuse() {
    for test in [
        "req.hdr(X-Forwarded-For) -m ip 192.0.2.0/24",
        "req.hdr(X-Level) -m int 3",
        "method -m beg PO",
        "src -m beg 10.0.0.1",
        "path_reg -i %2f",
        "path_sub %2f",
        "hdr_reg(host) :8080$",
        "hdr_end(host) :8080",
        "hdr(host) [2001:db8::1]",
        "hdr_reg(x-a) a.+b",
        "hdr_reg(x-a) [^a]b",
        "hdr_sub(x-a) a,b",
        "path_beg -M -f missing.map",
    ] {
        let imported = import_lines(&format!(" http-request deny unless {{ {test} }}"));
        assert_eq!(routes(&imported), ["respond = { status = 501 }"], "{test}");
    }
    for (test, condition) in [
        (r"hdr_reg(x-a) ^192\.0\.2\.", r"headers = { x-a = { regex = '(?:^|,)\s*192\.0\.2\.' } }"),
        ("hdr_reg(x-a) -i bot|crawler", r#"headers = { x-a = { regex = "(?i)bot|crawler" } }"#),
        ("path_dom admin", "path_regex = \"(?:^|[/?.:])admin(?:[/?.:]|$)\""),
        ("path_dir /a/", "path_regex = \"(?:^|/)a(?:/|$)\""),
    ] {
        let imported = import_lines(&format!(" http-request deny if {{ {test} }}"));
        assert_eq!(routes(&imported)[0], format!("when = {{ {condition} }}; respond = {{ status = 403 }}"));
    }
    // A listed host has a name, and no port.
    let imported = import_lines(
        " use_backend other if { hdr(host) a.example [::1] } or { hdr_reg(host) ^b\\.example(:[0-9]+)?$ }",
    );
    let text = imported.files.concat();
    assert!(text.contains("names = [\"a.example\", \"b.example\"]"), "{text}");
    let routes = routes(&import_lines(" http-request deny if { path_beg -i /xab } { path_sub A }"));
    assert_eq!(routes[0], "when = { path_regex = \"(?i)^/xab\" }; respond = { status = 501 }");
}

/// The import of some lines of a frontend beside a map `m.map`.
fn import_with_map(lines: &str, map: &str) -> Imported {
    let folder = tempfile::tempdir().expect("a folder");
    let text = format!(
        "defaults\n mode http\nfrontend f\n bind :80\n{lines}\n default_backend app\nbackend app\n server a 10.0.0.1:80\n"
    );
    fs::write(folder.path().join("m.map"), map).expect("a file");
    fs::write(folder.path().join("haproxy.cfg"), text).expect("a file");
    haproxy(&folder.path().join("haproxy.cfg")).expect("an import")
}

#[test]
fn the_line_of_a_map_that_decides_in_haproxy_decides() {
    let allow = |call: &str| format!(" http-request deny unless {{ {call} -m str allow }}");
    let (open, closed) = ("upstream = \"app\"", "respond = { status = 403 }");
    for (lines, map, expected) in [
        (
            allow("path,map_beg(m.map,deny)"),
            "/api allow\n/api/admin deny\n",
            vec![("^/api/admin", closed), ("^/api", open), ("", closed)],
        ),
        (
            allow("path,map_beg(m.map)"),
            "/api allow\n/api/admin allow\n/x deny\n",
            vec![("^/api/admin|^/api", open), ("", closed)],
        ),
        (
            allow("path,map_end(m.map)"),
            ".php deny\np allow\n",
            vec![(r"\.php$", closed), ("p$", open), ("", closed)],
        ),
        (allow("path,map(m.map)"), "/a allow\n/a deny\n/b deny\n", vec![("^/a$", open), ("", closed)]),
        (allow("path,map(m.map)"), "/a deny\n/a allow\n", vec![("", closed)]),
        (allow("path,map(m.map) -i"), "/a ALLOW\n", vec![("\"^/a$", open), ("", closed)]),
        (
            " http-request deny if { path_beg -M -f m.map }".to_owned(),
            "/api allow\n",
            vec![("^/api", closed), ("", open)],
        ),
    ] {
        let imported = import_with_map(&lines, map);
        let routes = routes(&imported);
        assert_eq!(routes.len(), expected.len(), "{lines}\n{routes:?}");
        for (route, (path, end)) in routes.iter().zip(expected) {
            let is_path = path.is_empty() != route.contains("path_regex");
            assert!(route.contains(path) && is_path && route.ends_with(end), "{lines}\n{routes:?}");
        }
    }
    // Without the header, HAProxy has no value of the map.
    for call in ["hdr(x),map(m.map,allow)", "path,map_int(m.map)"] {
        assert_eq!(routes(&import_with_map(&allow(call), "a 1\n")), ["respond = { status = 501 }"], "{call}");
    }
    assert_eq!(
        routes(&import_with_map(" http-request deny if { path,map(m.map) -m int gt 4 }", "/a 5\n")),
        ["respond = { status = 501 }"]
    );
}

#[test]
fn rules_for_connections_and_sessions_accept_separately() {
    let lines = " tcp-request connection accept if { src 10.0.0.0/8 }\n tcp-request session reject if { src 10.6.6.6 }";
    let routes = routes(&import_lines(lines));
    assert_eq!(routes[0], "when = { networks = [\"10.6.6.6\"] }; respond = { status = 403 }");
}

#[test]
fn headers_that_settings_add_are_never_those_of_clients() {
    for (line, expected) in [
        ("option forwardfor except 10.0.0.0/8", "upstream = \"app\""),
        (
            "option forwardfor header X-Client-IP",
            "upstream = \"app\"; request_headers = { set = { X-Client-IP = \"{client.address}\" } }",
        ),
        ("option originalto", "upstream = \"app\"; request_headers = { remove = [\"X-Original-To\"] }"),
        (
            "http-send-name-header X-Server",
            "upstream = \"app\"; request_headers = { remove = [\"X-Server\"] }",
        ),
        (
            "http-request set-header X-A 1\n unique-id-header X-Unique",
            "upstream = \"app\"; request_headers = { set = { X-A = \"1\", X-Unique = \"{request.id}\" } }",
        ),
    ] {
        let imported = import_lines(&format!(" {line}"));
        assert_eq!(routes(&imported), [expected], "{line}");
        assert!(!imported.files.concat().contains("trusted_proxies"));
    }
}

#[test]
fn a_refused_name_below_an_accepted_one_closes_the_listener() {
    let text = |lines: &str, backend: &str| {
        format!(
            "defaults\n mode tcp\nfrontend f\n bind :443\n{lines}\nlisten other\n bind :22\n server a 10.0.0.1:22\nbackend b\n{backend} server a 10.0.0.1:443\n"
        )
    };
    let wild = " tcp-request content reject if { req.ssl_sni secret.example.com }\n use_backend b if { req.ssl_sni -m end .example.com }";
    let several = " tcp-request content reject if { req.ssl_sni a.example.com z.example.org }\n use_backend b if { req.ssl_sni -m end .example.com }";
    for (lines, backend) in [(wild, ""), (several, ""), (" default_backend b", " disabled\n")] {
        let files = import_text(&text(lines, backend)).files.concat();
        assert!(files.contains(":22\"]") && !files.contains(":443\"]"), "{lines}\n{files}");
    }
    let files =
        import_text(&text(" use_backend b if { req.ssl_sni -m end .example.com }", "")).files.concat();
    assert!(files.contains("names = [\"*.example.com\"]"), "{files}");
}

#[test]
fn listeners_with_restrictions_of_names_or_namespaces_are_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("haproxy.cfg");
    let files = |bind: &str, list: &str| {
        let text = format!("listen l\n mode http\n bind :80\n bind :443 {bind}\n server a 10.0.0.1:80\n");
        fs::write(&path, text).expect("a file");
        fs::write(folder.path().join("list.txt"), list).expect("a file");
        let imported = haproxy(&path).expect("an import");
        (imported.files.concat().contains(":443\""), imported.report.counts()[3])
    };
    let bind = "ssl crt /etc/main.pem crt-list list.txt";
    for (bind, list, expected) in [
        (bind, "/c.pem [verify required ca-file /ca.pem] admin.example.com\n", (false, 1)),
        (bind, "/c.pem [alpn h2] a.example.com\n", (true, 1)),
        (bind, "/c.pem a.example.com\n", (true, 0)),
        ("namespace internal", "", (false, 1)),
    ] {
        assert_eq!(files(bind, list), expected, "{bind} {list}");
    }
}

#[test]
fn a_frontend_that_redirects_never_serves_plain_http() {
    let text = "defaults\n mode http\nfrontend a\n bind :443 ssl crt a.pem\n bind :80\n default_backend app\nfrontend b\n bind :8080\n redirect scheme https\nbackend app\n server s 10.0.0.9:80\n";
    for swapped in [false, true] {
        let mut text = text.to_owned();
        if swapped {
            let at = text.find("frontend a").expect("a part");
            let (other, backend) = (
                text.find("frontend b").expect("a part"),
                text.find("backend app\n server").expect("a part"),
            );
            text = [&text[..at], &text[other..backend], &text[at..other], &text[backend..]].concat();
        }
        let files = import_text(&text).files;
        let file = files.iter().find(|file| file.contains("0.0.0.0:8080")).expect("a file");
        let serves = file.contains("plain = \"serve\"") && file.contains("upstream = ");
        assert!(!serves, "{file}");
    }
}

#[test]
fn limits_of_clients_belong_to_their_frontend_and_the_smaller_one_holds() {
    let text = "defaults\n mode http\nfrontend a\n bind :80\n tcp-request connection reject if { src_conn_cur gt 50 }\n tcp-request connection reject if { src_conn_cur gt 20 }\n tcp-request connection reject if { src_conn_cur gt 30 }\n default_backend app\nfrontend b\n bind :81\n tcp-request connection reject if { src_conn_cur gt 90 }\n default_backend app\nbackend app\n server s 10.0.0.9:80\n";
    let files = import_text(text).files;
    for (file, limit) in files.iter().zip([20, 90]) {
        assert!(file.contains(&format!("max_connections_per_client = {limit}\n")), "{file}");
    }
    let lines = " stick-table type ip size 1m expire 10s store http_req_rate(10s)\n http-request track-sc0 src if { path /a }\n http-request track-sc0 src if { path /b }\n http-request deny deny_status 429 if { sc_http_req_rate(0) gt 100 }";
    let routes = routes(&import_lines(lines));
    for path in ["^/a$", "^/b$"] {
        let own = routes.iter().find(|route| route.contains(path)).expect(path);
        assert!(own.contains("limits = [\"f\"]"), "{routes:?}");
    }
    let lines = " stick-table type ip size 1m expire 10s store http_req_rate(10s)\n acl a sc_http_req_rate(0) gt 9\n http-request track-sc0 src if a\n http-request deny if a";
    assert_eq!(import_lines(lines).report.open().len(), 1);
}

#[test]
fn names_of_files_and_reasons_stay_in_their_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a\n[server]\nhttp = []\n.cfg");
    let text = "listen l\n mode http\n bind :80\n http-request deny if { sc_gpc0_rate(0) gt 5 }\n http-request deny if { src -f \"x\\n## y\" }\n server a 10.0.0.1:80\n";
    fs::write(&path, text).expect("a file");
    let imported = haproxy(&path).expect("an import");
    let files = imported.files.concat();
    assert_eq!(files.lines().filter(|line| line.starts_with("[server]")).count(), 1, "{files}");
    let report = imported.report.to_string();
    assert!(!report.contains("\n## y") && !report.contains("\n[server]"), "{report}");
}

#[test]
fn lists_and_groups_of_users_have_files_of_their_own() {
    let lines = " acl a path /a\n http-request auth if a !{ http_auth_group(staff) admin }\n http-request auth if !a !{ http_auth(staff-admin) }";
    let routes = routes(&import_lines(lines)).concat();
    assert!(routes.contains("/staff-admin.users\"") && routes.contains("/staff-admin-2.users\""), "{routes}");
}

#[test]
fn many_tests_of_one_long_list_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let lines = |count, line: fn(u32) -> String| (0..count).map(line).collect::<Vec<_>>().concat();
    let list = lines(50_000, |number| format!("10.{}.{}.0/24\n", number / 250, number % 250));
    fs::write(folder.path().join("l.lst"), list).expect("a file");
    let rules = lines(100, |number| format!(" use_backend b{number} if {{ src -f l.lst }}\n"));
    let path = folder.path().join("haproxy.cfg");
    fs::write(&path, format!("frontend f\n mode http\n bind :80\n{rules}")).expect("a file");
    let report = haproxy(&path).expect("an import").report.to_string();
    assert!(report.contains("the lists of all tests together are too long"));
}

#[test]
fn an_own_page_is_stronger_than_that_of_the_defaults() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = |name: &str| {
        let path = folder.path().join(name);
        fs::write(&path, format!("HTTP/1.0 503 x\r\n\r\n{name}\n")).expect("a file");
        path.display().to_string()
    };
    let (usual, own) = (page("usual"), page("own"));
    let result = import_text(&format!(
        "defaults\n mode http\n errorfile 503 {usual}\nfrontend f\n bind :80\n errorfile 503 {own}\n default_backend app\n\
         backend app\n server a 10.0.0.1:80\n"
    ));
    let text = result.files.concat();
    assert!(text.contains("own") && !text.contains("body = \"usual"), "{text}");
}
