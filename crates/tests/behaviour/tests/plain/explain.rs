//! `brisk check --explain`: the decision about a request, which the running gateway makes too.

use std::io::Write as _;

use brisk_behaviour::site::{NAME, Site, setup};
use brisk_testkit::brisk::{base, host};
use brisk_testkit::ca::TestCa;
use brisk_testkit::http1::Message;

const ROUTES: &str = "
[[host.route]]
path = \"/\"
respond = { status = 404, body = \"0\" }

[[host.route]]
path = \"/api\"
respond = { status = 201, body = \"1\" }

[[host.route]]
path = \"/api\"
when = { headers = { X-Version = \"2\" } }
respond = { status = 202, body = \"2\" }

[[host.route]]
path = \"/api/x\"
when = { networks = [\"192.0.2.0/24\"] }
respond = { status = 203, body = \"3\" }
";

fn explain(words: &[&str]) -> brisk_testkit::process::Finished {
    let ca = TestCa::new();
    let setup = setup().config(&(base("") + &host(&[NAME], &[&ca.server(&[NAME]).issue()]) + ROUTES));
    setup.run("check", &[&["brisk.toml", "--explain"], words].concat())
}

#[test]
fn the_route_is_that_of_the_gateway_and_the_others_have_reasons() {
    let site = Site::with(ROUTES);
    for (path, header, route, passed) in [
        ("/", "", 0, vec![]),
        ("/api/y", "", 1, vec!["route[2]"]),
        ("/api/x", "", 1, vec!["route[3]", "route[2]"]),
        ("/api/x", "X-Version: 2", 2, vec!["route[3]"]),
        ("/a/../api", "X-Version: 2", 2, vec![]),
    ] {
        let request = format!("GET https://{NAME}{path}");
        let mut words = vec![request.as_str()];
        if !header.is_empty() {
            words.extend(["--header", header]);
        }
        let said = explain(&words).success();
        let chosen = said.lines().find(|line| line.starts_with("route: ")).unwrap_or_default();
        assert!(
            chosen.contains(&format!("host[0].route[{route}], path ")) && chosen.contains(", line "),
            "{said}"
        );
        let reasons: Vec<_> = said.lines().filter(|line| line.starts_with("passed over: ")).collect();
        assert_eq!(reasons.len(), passed.len(), "{said}");
        assert!(reasons.iter().zip(passed).all(|(line, route)| line.contains(route)), "{said}");
        let mut connection = site.connect();
        let header = if header.is_empty() { String::new() } else { format!("{header}\r\n") };
        write!(connection, "GET {path} HTTP/1.1\r\nHost: {NAME}\r\n{header}\r\n").expect("a server");
        let response = Message::read_response(&mut connection).expect("a response");
        assert_eq!(response.text(), route.to_string(), "{path}");
    }
}

#[test]
fn an_explanation_names_line_condition_stages_and_action() {
    let said = explain(&[&format!("POST https://{NAME}/api/x"), "--client", "192.0.2.7"]).success();
    assert!(
        said.contains(&format!("request: POST https://{NAME}/api/x from 192.0.2.7\nhost: host[0], {NAME}\n")),
        "{said}"
    );
    assert!(said.contains("stages: ") && said.contains("HeadMethod"), "{said}");
    assert!(said.ends_with("action: respond: 203 Non Authoritative Information\n"), "{said}");
    let config = base("") + &host(&[NAME], &[&TestCa::new().server(&[NAME]).issue()]) + ROUTES;
    let before = config.split("path = \"/api/x\"").next().unwrap_or_default().lines().count();
    let said = explain(&[&format!("https://{NAME}/api/x")]).success();
    let reason = format!(
        "passed over: host[0].route[3], path \"/api/x\", line {before}: the client is not in 192.0.2.0/24\n"
    );
    assert!(said.contains(&reason), "{reason}{said}");
    let other = explain(&["https://other.example/"]).success();
    assert!(other.contains("host: host[0]"), "the default host: {other}");
}

#[test]
fn wrong_requests_are_refused() {
    for words in [vec!["GET /path"], vec!["http://site.test/"], vec!["https://site.test/", "--header", "X"]] {
        let finished = explain(&words);
        assert_eq!(finished.status.code(), Some(2), "{}", finished.text());
        assert!(finished.stderr.contains("write "), "{}", finished.stderr);
    }
}
