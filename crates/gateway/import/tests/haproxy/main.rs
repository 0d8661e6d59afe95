//! Configurations of HAProxy as they are used with well-known applications: nothing is dropped, and no restriction becomes an open route.

mod compared;

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
        // Old rules, and a list that is on no other machine.
        let is_exempt = ["old", "external", "grafana", "wordpress"]
            .iter()
            .any(|name| path.ends_with(format!("{name}.cfg")));
        assert!(is_exempt || missing * 10 <= unneeded + carried + different, "{}: {missing}", path.display());
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
    for text in [
        "listen l\n mode http\n bind :80\n server a 10.0.0.1:443 ssl verify none ca-file /ca.pem\n",
        "global\n ssl-server-verify none\nlisten l\n mode http\n bind :80\n server a 10.0.0.1:443 ssl\n",
    ] {
        let imported = import_text(text);
        assert!(imported.files.concat().contains("tls = { verify = false }"), "{:?}", imported.files);
        assert!(imported.report.to_string().contains("any certificate of the server is accepted"), "{text}");
    }
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
