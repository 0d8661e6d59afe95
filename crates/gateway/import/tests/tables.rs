//! `map` and `geo` of nginx as tables of brisk.

use std::fs;

use brisk_import::{Imported, nginx};

fn import_text(text: &str) -> Imported {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("nginx.conf");
    fs::write(&path, text).expect("a file");
    nginx(&path).expect("an import")
}

#[test]
fn results_of_maps_have_variables() {
    let text = "map $args $y { default bar; same baz; } map $args $x { var foo:$y; ~^a $host; default $scheme; } \
                map $http_x_forwarded_proto $client { default $scheme; https https; } \
                server { location / { add_header X-Foo $x; return 204; } location /m { return 301 $client://$http_host/x; } \
                location /n { return 301 /$x; } }";
    let result = import_text(text).files.concat();
    for expected in [
        "{ regex = \"(?i)^var$\", value = \"foo:{map.y}\" }, { regex = \"^a\", value = \"{request.host}\" }",
        "default = \"{request.scheme}\"",
        "redirect = { to = \"{request.scheme}://{host}/x\", status = 301 }",
        // A client could choose where the redirect leads.
        "path = \"/n\"\nrespond = { status = 501 }",
    ] {
        assert!(result.contains(expected), "{expected} is missing in {result}");
    }
    assert!(result.find("[map.y]") < result.find("[map.x]"), "{result}");
}

#[test]
fn a_map_of_the_request_has_no_result_of_the_response() {
    let text = "map $upstream_status $b { 200 x; } map $host $a { h $b; default z; } map $upstream_addr $c { ~^a $b; } \
                server { location / { add_header X-A $a; add_header X-C $c; proxy_pass http://127.0.0.1:1; } }";
    let imported = import_text(text);
    let (result, report) = (imported.files.concat(), imported.report.to_string());
    assert!(report.contains("the map has values of the request and of the response"), "{report}");
    assert!(result.contains("default = \"z\"") && !result.contains("h$"), "{result}");
    // A table of the response may have another one as its result.
    assert!(result.contains("{ regex = \"^a\", value = \"{map.b}\" }"), "{result}");
}

#[test]
fn a_header_with_a_user_that_nothing_verifies_is_a_difference() {
    let text = |lines: &str| {
        import_text(&format!(
            "server {{ location / {{ {lines} proxy_set_header X-User $remote_user; proxy_pass http://127.0.0.1:1; }} }}"
        ))
    };
    for (lines, is_different) in
        [("", true), ("auth_basic off;", true), ("auth_basic x; auth_basic_user_file u;", false)]
    {
        let imported = text(lines);
        assert!(imported.files.concat().contains("X-User = \"{user}\""), "{lines}");
        let report = imported.report.to_string();
        assert_eq!(report.contains("brisk has no user without auth_basic"), is_different, "{report}");
    }
}

#[test]
fn a_limit_by_user_is_not_carried() {
    let server = "server { location / { limit_req zone=z; auth_basic x; auth_basic_user_file u; \
                  proxy_pass http://127.0.0.1:1; } }";
    for (key, map) in [
        ("$remote_user", ""),
        ("$x", "map $remote_user $x { a b; }"),
        ("$x", "map $host $y { a $remote_user; } map $host $x { default $y; }"),
        ("$x", "geo $g { default 1; 10.0.0.0/8 0; } map $g $x { 0 \"\"; 1 $remote_user; }"),
    ] {
        let imported = import_text(&format!("{map} limit_req_zone {key} zone=z:1m rate=1r/s; {server}"));
        let (result, report) = (imported.files.concat(), imported.report.to_string());
        assert!(!result.contains("[limit."), "{result}");
        assert!(report.contains("brisk counts requests before it verifies the user"), "{report}");
    }
}

#[test]
fn networks_of_geo_are_a_table() {
    let server = "server { location / { add_header X-A $country; add_header X-B $other; return 204; } }";
    let imported = import_text(&format!(
        "geo $country {{ default none; 10.0.0.0/8 a; 10.1.0.0/16 b; 10.2.0.0/16 c; delete 10.2.0.0/16; ::1 d; }} \
         geo $arg_ip $other {{ 192.0.2.1 x; }} {server}"
    ));
    let result = imported.files.concat();
    for expected in [
        "from = \"{client.address}\"\ndefault = \"none\"\nnetworks = { \"10.0.0.0/8\" = \"a\", \"10.1.0.0/16\" = \"b\", \"::1\" = \"d\" }",
        "from = \"{request.query.ip}\"\nnetworks = { \"192.0.2.1\" = \"x\" }",
        "X-A = \"{map.country}\", X-B = \"{map.other}\"",
    ] {
        assert!(result.contains(expected), "{expected} is missing in {result}");
    }
    assert_eq!(imported.report.counts()[3], 0, "{}", imported.report);
    let ranges = import_text(&format!("geo $country {{ ranges; 10.0.0.0-10.0.0.9 a; }} {server}"));
    assert!(!ranges.files.concat().contains("[map.") && ranges.report.counts()[3] > 0, "{}", ranges.report);
}
