//! Configurations of HAProxy as they are used with well-known applications: nothing is dropped, and no restriction becomes an open route.

use std::fs;
use std::path::{Path, PathBuf};

use brisk_import::{Class, ImportError, Imported, haproxy};

fn inputs() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/haproxy");
    let mut paths: Vec<_> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "cfg"));
    paths.sort();
    paths
}

fn imported(name: &str) -> Imported {
    haproxy(&Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/haproxy/{name}.cfg"))).expect(name)
}

/// The import of some lines of a frontend at port 80, with the backends `app` and `other`.
fn import_lines(lines: &str) -> Imported {
    import_text(&format!(
        "defaults\n mode http\nfrontend f\n bind :80\n{lines}\n default_backend app\n\
         backend app\n server a 10.0.0.1:80\nbackend other\n server a 10.0.0.2:80\n"
    ))
}

fn import_text(text: &str) -> Imported {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("haproxy.cfg");
    fs::write(&path, text).expect("a file");
    haproxy(&path).expect("an import")
}

/// The routes of the first host: each its lines without the comment.
fn routes(imported: &Imported) -> Vec<String> {
    let text = imported.files.first().expect("a file");
    let host = text.split("[[host]]\n").nth(1).expect("a host");
    let host = host.split("\n[upstream.").next().expect("a part");
    host.split("[[host.route]]\npath = \"/\"\n")
        .skip(1)
        .map(|route| {
            let lines = route
                .lines()
                .filter(|line| !line.starts_with('#') && !line.is_empty() && !line.starts_with('['));
            lines.collect::<Vec<_>>().join("; ")
        })
        .collect()
}

#[test]
fn each_line_of_each_input_has_a_class_and_none_is_unknown() {
    let inputs = inputs();
    assert!(inputs.len() >= 13);
    for path in inputs {
        let report = haproxy(&path).expect("an import").report;
        for entry in report.entries() {
            let is_unknown = matches!(&entry.class, Class::NotCarried { reason, .. } if reason.contains("does not know the directive"));
            assert!(!is_unknown, "{}: {}", entry.place, entry.text);
            assert!(entry.place.contains(".cfg:"), "{}", entry.text);
        }
        assert_eq!(report.counts().iter().sum::<usize>(), report.entries().count());
    }
}

#[test]
fn most_lines_of_the_inputs_are_carried() {
    for path in inputs() {
        let [unneeded, carried, different, missing] = haproxy(&path).expect("an import").report.counts();
        let is_old =
            path.ends_with("old.cfg") || path.ends_with("external.cfg") || path.ends_with("grafana.cfg");
        assert!(is_old || missing * 10 <= unneeded + carried + different, "{}: {missing}", path.display());
    }
}

#[test]
fn rules_become_routes_in_their_order() {
    for (lines, expected) in [
        (
            " use_backend other if { path_beg /api/ }",
            vec!["when = { path_regex = \"^/api/\" }; upstream = \"other\"", "upstream = \"app\""],
        ),
        (
            " http-request deny if { path_beg /admin } !{ src 10.0.0.0/8 }",
            vec![
                "when = { networks = [\"10.0.0.0/8\"], path_regex = \"^/admin\" }; upstream = \"app\"",
                "when = { path_regex = \"^/admin\" }; respond = { status = 403 }",
                "upstream = \"app\"",
            ],
        ),
        (
            " acl a path /x\n acl a path_end .png\n acl b hdr(X-V) -m found\n use_backend other if a b",
            vec![
                "when = { path_regex = '^/x$|\\.png$', headers = { x-v = true } }; upstream = \"other\"",
                "upstream = \"app\"",
            ],
        ),
        (
            " http-request allow if { path /open }\n http-request deny deny_status 404 unless { path_beg /open /public }",
            vec![
                "when = { path_regex = \"^/open$\" }; upstream = \"app\"",
                "when = { path_regex = \"^/open|^/public\" }; upstream = \"app\"",
                "respond = { status = 404 }",
            ],
        ),
        (
            " http-request deny if { method GET } { path /x }",
            vec![
                "when = { methods = [\"HEAD\"], path_regex = \"^/x$\" }; upstream = \"app\"",
                "when = { methods = [\"GET\"], path_regex = \"^/x$\" }; respond = { status = 403 }",
                "upstream = \"app\"",
            ],
        ),
        (
            " redirect prefix https://www.example.com code 301 if { path / }",
            vec![
                "when = { path_regex = \"^/$\" }; redirect = { to = \"https://www.example.com{request.target}\", status = 301 }",
                "upstream = \"app\"",
            ],
        ),
    ] {
        let imported = import_lines(lines);
        assert_eq!(routes(&imported), expected, "{lines}\n{}", imported.files.concat());
        assert!(imported.report.open().is_empty());
    }
}

#[test]
fn a_condition_without_a_counterpart_refuses_requests() {
    for lines in [
        " http-request deny if { lua.blocked -m bool }",
        " http-request deny unless { var(txn.allowed) -m bool }",
        " http-request deny if { src -f missing.lst }",
        " http-request deny if !missing_acl",
        " http-request deny if { hdr(X-A) -m reg ^(?!a)b }",
        " http-request deny unless",
        " use_backend other if { lua.admin -m bool }",
        " use_backend %[lua.backend]",
        " http-request lua.check",
        " http-request auth unless { http_auth(a) } or { http_auth(b) }",
        " http-request set-path %[lua.path]",
        " filter spoe engine e\n http-request deny if { var(txn.e.code) -m int gt 0 }",
        " http-request redirect location /login if !{ lua.session -m bool }",
        " use_backend missing",
    ] {
        let imported = import_lines(lines);
        let routes = routes(&imported);
        assert_eq!(routes, ["respond = { status = 501 }"], "{lines}\n{}", imported.files.concat());
        assert!(imported.report.counts()[3] > 0 && imported.report.open().is_empty());
    }
}

#[test]
fn a_refusal_in_part_refuses_the_known_part() {
    let imported = import_lines(" http-request deny if { path_beg /private } { lua.blocked -m bool }");
    let expected =
        ["when = { path_regex = \"^/private\" }; respond = { status = 501 }", "upstream = \"app\""];
    assert_eq!(routes(&imported), expected);
    // The host of the client is not decided for names that the configuration does not list.
    let imported = import_lines(" http-request deny if { hdr_beg(host) admin. } { path_beg /x }");
    assert_eq!(routes(&imported)[0], "when = { path_regex = \"^/x\" }; respond = { status = 501 }");
}

#[test]
fn counters_of_abuse_without_a_counterpart_are_a_warning() {
    let imported = import_lines(" http-request deny if { sc_gpc0_rate(0) gt 5 }");
    assert_eq!(imported.report.open().len(), 1);
    assert!(
        imported.files[0].starts_with("# WARNING: HAProxy refuses requests that this configuration serves")
    );
    assert!(imported.report.open()[0].ends_with("haproxy.cfg:5"));
}

#[test]
fn headers_whose_condition_has_no_counterpart_are_removed() {
    let imported = import_lines(" http-request set-header X-User admin if { lua.is_admin -m bool }");
    assert_eq!(routes(&imported), ["upstream = \"app\"; request_headers = { remove = [\"X-User\"] }"]);
}

#[test]
fn users_certificates_rates_and_sizes_become_restrictions() {
    for (lines, part) in [
        (
            " http-request auth realm Inner unless { http_auth(staff) }",
            "staff.users\", realm = \"Inner\", forward = true }",
        ),
        (
            " http-request deny unless { http_auth_group(staff) admins }",
            "staff-admins.users\", forward = true }",
        ),
        (" http-request deny unless { ssl_c_used }", "client_certificate = {}"),
        (
            " stick-table type ip size 1m expire 10s store http_req_rate(10s)\n http-request track-sc0 src\n http-request deny deny_status 429 if { sc_http_req_rate(0) gt 100 }",
            "limits = [\"f\"]",
        ),
        (" http-request deny if { req.body_size gt 1048576 }", "body_size = \"1MiB\""),
    ] {
        let imported = import_lines(lines);
        let routes = routes(&imported);
        assert_eq!(routes.len(), 1, "{routes:?}");
        assert!(routes[0].starts_with("upstream = \"app\"") && routes[0].contains(part), "{routes:?}");
    }
}

#[test]
fn the_certificate_of_a_server_decides_about_its_group() {
    let text = |options: &str| {
        let text = format!(
            "listen l\n mode http\n bind :80\n server a 10.0.0.1:443 ssl {options}\n server b 10.0.0.2:443 ssl verify required ca-file /ca.pem\n"
        );
        import_text(&text).files.concat()
    };
    assert!(text("verify required ca-file /ca.pem").contains("tls = { ca = \"/ca.pem\" }"));
    for options in ["verify required ca-file /other.pem", "verify required ca-file /ca.pem crl-file /crl.pem"]
    {
        assert!(text(options).contains("respond = { status = 501 }"), "{options}");
    }
    let report = import_text("listen l\n mode http\n bind :80\n server a 10.0.0.1:443 ssl verify none\n")
        .report
        .to_string();
    assert!(report.contains("brisk always verifies servers"), "{report}");
}

#[test]
fn tcp_with_a_restriction_does_not_listen() {
    let text = |rule: &str| {
        format!(
            "defaults\n mode tcp\nfrontend f\n bind :443\n{rule}\n default_backend b\nlisten other\n bind :22\n server a 10.0.0.1:22\nbackend b\n server a 10.0.0.1:443\n"
        )
    };
    for rule in [
        " tcp-request connection reject if !{ src 10.0.0.0/8 }",
        " tcp-request content reject if { req.ssl_sni -i a.example }",
        " use_backend b if { src 10.0.0.0/8 }",
        " tcp-request content lua.check",
    ] {
        let files = import_text(&text(rule)).files.concat();
        assert!(files.contains(":22\"]") && !files.contains(":443\"]"), "{rule}\n{files}");
    }
    let files = import_text(&text(" use_backend b if { req.ssl_sni -i a.example }")).files.concat();
    assert!(files.contains("names = [\"a.example\", \"*\"]"), "{files}");
}

#[test]
fn plain_http_is_one_file_with_https_only_if_brisk_serves_both_alike() {
    let text = |lines: &str| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("haproxy.cfg");
        let text = format!(
            "defaults\n mode http\nfrontend f\n bind :80\n bind :443 ssl crt a.pem\n{lines}\n default_backend b\nbackend b\n server a 10.0.0.1:80\nbackend c\n server a 10.0.0.2:80\n"
        );
        fs::write(&path, text).expect("a file");
        haproxy(&path).expect("an import").files
    };
    let redirected = text(" redirect scheme https if !{ ssl_fc }");
    assert!(redirected.len() == 1 && !redirected[0].contains("plain ="), "{redirected:?}");
    let same = text(" http-request set-header X-Forwarded-Proto https if { ssl_fc }");
    assert!(same.len() == 1 && same[0].contains("plain = \"serve\""), "{same:?}");
    let other = text(" use_backend c if !{ ssl_fc }");
    assert_eq!(other.len(), 2, "{other:?}");
    assert!(!other[0].contains("http = [") && other[1].contains("http = ["));
}

#[test]
fn passwords_are_not_in_the_report() {
    let text = "userlist u\n user a password $6$hash\n user b insecure-password plain\nlisten l\n mode http\n bind :80\n stats auth a:secret\n http-request auth unless { http_auth(u) }\n server a 10.0.0.1:80\n";
    let imported = import_text(text);
    let all = format!("{}{}", imported.report, imported.files.concat());
    assert!(
        !all.contains("hash\n")
            && !all.contains("$6$")
            && !all.contains("plain\n")
            && !all.contains("secret"),
        "{all}"
    );
}

#[test]
fn maps_and_lists_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
    write("hosts.map", "a.example app\n# comment\nb.example   other\n");
    write("office.lst", "10.0.0.0/8\n\n192.168.1.1\n");
    write(
        "haproxy.cfg",
        "frontend f\n mode http\n bind :80\n http-request deny unless { src -f office.lst }\n use_backend %[hdr(host),lower,map(hosts.map)] if { hdr(host),lower,map(hosts.map) -m found }\nbackend app\n mode http\n server a 10.0.0.1:80\nbackend other\n mode http\n server a 10.0.0.2:80\n",
    );
    let text = haproxy(&folder.path().join("haproxy.cfg")).expect("an import").files.concat();
    assert!(text.contains("networks = [\"10.0.0.0/8\", \"192.168.1.1\"]"), "{text}");
    for (name, upstream) in [("a.example", "app"), ("b.example", "other")] {
        let host = text.split(&format!("names = [\"{name}\"]")).nth(1).expect(name);
        assert!(
            host.split("[[host]]").next().expect("a host").contains(&format!("upstream = \"{upstream}\"")),
            "{text}"
        );
    }
}

#[test]
fn a_folder_is_read_in_the_order_of_its_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a file");
    write("20.cfg", "listen l\n bind :80\n server a 10.0.0.1:80\n");
    write("10.cfg", "defaults\n mode http\n");
    write("other.txt", "wrong");
    let imported = haproxy(folder.path()).expect("an import");
    assert!(imported.files.concat().contains("upstream = \"l\""));
    assert_eq!(imported.report.entries().count(), 5);
}

#[test]
fn files_without_a_frontend_and_endless_inputs_are_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("haproxy.cfg");
    fs::write(&path, "global\n daemon\n").expect("a file");
    assert!(matches!(haproxy(&path), Err(ImportError::NoFrontend { .. })));
    fs::write(&path, format!("global\n{}", " daemon\n".repeat(200_001))).expect("a file");
    assert!(matches!(haproxy(&path), Err(ImportError::TooLarge { .. })));
    assert!(matches!(haproxy(&folder.path().join("missing")), Err(ImportError::Unreadable { .. })));
}

#[test]
fn variables_of_the_environment_remain() {
    let text = "global\n setenv KNOWN 10.0.0.1\nlisten l\n mode http\n bind :80\n http-request set-header X-Zone \"$ZONE\"\n server a \"$KNOWN:80\"\n server b \"${OTHER}:81\"\n";
    let files = import_text(text).files.concat();
    assert!(files.contains("servers = [\"http://10.0.0.1:80\", \"http://${OTHER}:81\"]"), "{files}");
    assert!(files.contains("X-Zone = \"${ZONE}\""), "{files}");
}

#[test]
fn routes_of_the_limited_input_are_those_of_its_rules() {
    let text = imported("limited").files.concat();
    assert!(text.contains("[limit.web]\nrate = \"10/s burst 100\"\n"), "{text}");
    assert!(!text.contains("501"), "{text}");
}

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
    let list: String =
        (0..50_000).map(|number| format!("10.{}.{}.0/24\n", number / 250, number % 250)).collect();
    fs::write(folder.path().join("l.lst"), list).expect("a file");
    let rules: String =
        (0..100).map(|number| format!(" use_backend b{number} if {{ src -f l.lst }}\n")).collect();
    let text = format!("frontend f\n mode http\n bind :80\n{rules}");
    fs::write(folder.path().join("haproxy.cfg"), text).expect("a file");
    let report = haproxy(&folder.path().join("haproxy.cfg")).expect("an import").report.to_string();
    assert!(report.contains("the lists of all tests together are too long"));
}
