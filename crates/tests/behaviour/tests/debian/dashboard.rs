//! Listener of the dashboard: its contents, and its access control.

use std::fs;
use std::io::Write;
use std::net::TcpStream;

use brisk_behaviour::dashboard::{ON, TOKEN, WITH_TOKEN, only_its_owners, with_token};
use brisk_behaviour::site::{LIMIT, NAME, Site, facts, proxy_to};
use brisk_testkit::brisk::Brisk;
use brisk_testkit::http1::{Head, Message};
use brisk_testkit::process::{TIMEOUT, command, free_port, run, wait_until};
use brisk_testkit::uninterrupted::Uninterrupted;
use serde_json::Value;

/// A request with these lines after its first one.
fn send(brisk: &Brisk, first: &str, lines: &[&str], body: &str) -> Message {
    let mut stream = TcpStream::connect(brisk.dashboard()).expect("a dashboard");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let lines: String = lines.iter().flat_map(|line| [line, "\r\n"]).collect();
    let length = body.len();
    let request =
        format!("{first} HTTP/1.1\r\n{lines}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).expect("a listener that reads");
    Message::read_response(&mut stream).expect("a response")
}

fn ask(brisk: &Brisk, path: &str, lines: &[&str]) -> Message {
    send(brisk, &format!("GET {path}"), &[&["Host: localhost"], lines].concat(), "")
}

fn json(brisk: &Brisk, path: &str) -> Value {
    let answer = ask(brisk, path, &[]);
    assert_eq!((answer.status(), answer.header("content-type")), (200, Some("application/json")), "{path}");
    facts(&answer.text())
}

#[test]
fn a_connection_just_made_is_shown_with_its_steps() {
    let site = Site::custom(ON, "", |setup| setup);
    assert_eq!(site.get("/").status(), 200);
    for order in ["latest", "slowest"] {
        let found = wait_until("the connection", || {
            let all = json(&site.brisk, &format!("/api/connections?order={order}"));
            let all = all["connections"].as_array().expect("a list").clone();
            all.into_iter().find(|one| one["name"] == NAME)
        });
        assert_eq!((&found["version"], &found["kind"]), (&"TLS 1.3".into(), &"full".into()), "{found}");
        let steps = found["steps"].as_array().expect("steps");
        let names: Vec<_> = steps.iter().map(|step| step[0].as_str().expect("a name")).collect();
        assert_eq!(
            names,
            ["hello", "certificate", "key exchange", "signature", "finished", "first byte"],
            "{found}"
        );
        let sum: u64 = steps.iter().filter_map(|step| step[1].as_u64()).sum();
        // Each step is rounded down.
        assert!(found["waited"].as_u64().expect("a time").abs_diff(sum) <= 6, "{found}");
    }
    let certificates = json(&site.brisk, "/api/certificates?q=SITE.test");
    assert_eq!((&certificates["found"], &certificates["rows"][0]["names"][0]), (&1.into(), &NAME.into()));
    assert_eq!(json(&site.brisk, "/api/certificates?q=nobody")["found"], 0);
}

#[test]
fn events_come_each_second_with_what_was_counted() {
    let site = Site::custom(ON, "", |setup| setup);
    let mut stream = TcpStream::connect(site.brisk.dashboard()).expect("a dashboard");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    stream.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("a listener that reads");
    let head = Head::read(&mut stream).expect("a head").expect("a response");
    assert_eq!(head.header("content-type"), Some("text/event-stream"), "{head:?}");
    site.get("/");
    let mut text = String::new();
    let mut stream = Uninterrupted(stream);
    wait_until("an event with the handshake", || {
        let mut piece = [0; 4096];
        let length = std::io::Read::read(&mut stream, &mut piece).expect("events");
        text += &String::from_utf8_lossy(&piece[..length]);
        text.contains("[\"TLS 1.3\",\"X25519MLKEM768\",\"full\",1]").then_some(())
    });
    assert!(text.contains("data: {"), "{text}");
}

#[test]
fn what_goes_wrong_is_shown_by_its_cause() {
    // Nothing listens there: the port is bound and not listened on.
    let site = Site::custom(ON, &proxy_to(&["http://127.0.0.1:1"]), |setup| setup);
    assert_eq!(site.get("/page").status(), 502);
    let found = wait_until("the problem", || {
        let all = json(&site.brisk, "/api/problems");
        let all = all["problems"].as_array().expect("a list").clone();
        all.into_iter().find(|one| one["source"] == "upstream")
    });
    let example = found["example"].as_str().expect("an example");
    assert!(example.contains("/page") && example.contains("127.0.0.1:1"), "{found}");
    assert_eq!(json(&site.brisk, "/api/upstreams")["rows"][0]["group"], "app");
}

#[test]
fn without_its_token_nothing_is_shown() {
    let site = Site::custom(WITH_TOKEN, "", with_token);
    let brisk = &site.brisk;
    for path in ["/", "/events", "/api/history", "/api/connections", "/api/problems", "/nothing"] {
        for lines in [&[][..], &["Authorization: Bearer wrong"], &["Cookie: brisk-dashboard=1-2"]] {
            assert_eq!(ask(brisk, path, lines).status(), 401, "{path} {lines:?}");
        }
        assert_eq!(
            ask(brisk, &format!("{path}?token={TOKEN}"), &[]).status(),
            401,
            "it has no place in a URL"
        );
    }
    assert!(ask(brisk, "/", &[]).text().contains("type=\"password\""));
    let log_in = |body: &str, lines: &[&str]| {
        send(brisk, "POST /login", &[&["Host: localhost"], lines].concat(), body)
    };
    assert_eq!(log_in("token=wrong", &[]).status(), 403);
    assert_eq!(log_in("", &[]).status(), 403);
    assert_eq!(log_in(&format!("token={TOKEN}"), &["Origin: http://evil.test"]).status(), 403);
    assert_eq!(log_in(&"x".repeat(20_000), &[]).status(), 413);
    let welcome = log_in(&format!("token={TOKEN}"), &["Origin: http://localhost"]);
    assert_eq!((welcome.status(), welcome.header("location")), (303, Some("/")));
    let cookie = welcome.header("set-cookie").expect("a cookie");
    for attribute in ["; HttpOnly", "; SameSite=Strict", "; Path=/", "; Max-Age=43200"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    let cookie = format!("Cookie: {}", cookie.split(';').next().expect("a value"));
    assert_eq!(ask(brisk, "/api/history", &[&cookie]).status(), 200);
    assert_eq!(ask(brisk, "/api/history", &[&format!("Authorization: Bearer {TOKEN}")]).status(), 200);
    // With another token neither the old one nor its cookie opens.
    brisk.write("token", "another-token-of-32-characters-!");
    only_its_owners(&brisk.folder().join("token"));
    assert!(brisk.reload().contains("reloaded: "));
    for line in [cookie, format!("Authorization: Bearer {TOKEN}")] {
        assert_eq!(ask(brisk, "/api/history", &[&line]).status(), 401, "{line}");
    }
}

#[test]
fn a_form_that_does_not_come_holds_no_place() {
    let site = Site::custom(WITH_TOKEN, "", with_token);
    let mut stream = TcpStream::connect(site.brisk.dashboard()).expect("a dashboard");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    stream
        .write_all(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nt")
        .expect("a listener that reads");
    // To its end: the connection is closed.
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer).expect("an answer and the end");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[test]
fn for_a_strangers_name_or_page_nothing_is_shown() {
    let site = Site::custom(ON, "", |setup| setup);
    for host in ["evil.test", "localhost.evil.test", "192.0.2.1"] {
        let answer = send(&site.brisk, "GET /", &[&format!("Host: {host}")], "");
        assert_eq!(answer.status(), 421, "{host}");
    }
    assert_eq!(send(&site.brisk, "GET /", &[], "").status(), 421, "no host");
    let cross = ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: empty"];
    for path in ["/", "/events", "/api/history"] {
        assert_eq!(ask(&site.brisk, path, &cross).status(), 403, "{path}");
    }
    let page = ask(&site.brisk, "/", &[]);
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
}

#[test]
fn with_an_authority_of_clients_a_browser_has_to_show_a_certificate() {
    let ca = brisk_testkit::ca::TestCa::new();
    let (own, client) = (ca.server(&["localhost", "127.0.0.1"]).issue(), ca.client("operator").issue());
    let keys = format!(
        "{ON}dashboard.certificate = {{ chain = {:?}, key = {:?} }}\ndashboard.client_ca = {:?}\n",
        own.chain.display().to_string(),
        own.key.display().to_string(),
        ca.root_file().display().to_string()
    );
    let site = Site::custom(&keys, "", |setup| setup);
    let url = format!("https://{}/api/history", site.brisk.dashboard());
    let mut curl = command("curl");
    curl.args(["--silent", "--show-error", "--cacert"]).arg(ca.root_file()).arg(&url);
    assert!(!run(&mut curl, b"", LIMIT).status.success());
    let with_certificate = curl.arg("--cert").arg(&client.chain).arg("--key").arg(&client.key);
    assert!(run(with_certificate, b"", LIMIT).success().contains("\"rows\""));
}

#[test]
fn a_reload_moves_it_and_ends_it() {
    let site = Site::custom(ON, "", |setup| setup);
    let file = site.brisk.folder().join("brisk.toml");
    let text = fs::read_to_string(&file).expect("the configuration");
    let other = std::net::SocketAddr::from(([127, 0, 0, 1], free_port()));
    let old = site.brisk.dashboard();
    site.brisk.write("brisk.toml", text.replace(ON, &format!("dashboard.listen = \"{other}\"\n")));
    assert!(site.brisk.reload().contains("reloaded: "));
    TcpStream::connect(other).expect("it has moved");
    wait_until("the end of the old one", || TcpStream::connect(old).is_err().then_some(()));
    site.brisk.write("brisk.toml", text.replace(ON, ""));
    assert!(site.brisk.reload().contains("reloaded: "));
    wait_until("its end", || TcpStream::connect(other).is_err().then_some(()));
}

#[test]
fn a_reload_moves_it_to_all_addresses_with_the_same_port() {
    let site = Site::custom(WITH_TOKEN, "", with_token);
    let file = site.brisk.folder().join("brisk.toml");
    let text = fs::read_to_string(&file).expect("the configuration");
    let port = site.brisk.dashboard().port();
    for address in ["127.0.0.1", "0.0.0.0", "127.0.0.1"] {
        let listen = format!("dashboard.listen = \"{address}:{port}\"\n");
        site.brisk.write("brisk.toml", text.replace(ON, &listen));
        assert!(text.contains(ON) && site.brisk.reload().contains("reloaded: "), "{address}");
        // The old one may still take a connection while it ends.
        wait_until("an answer", || {
            let mut stream = TcpStream::connect(site.brisk.dashboard()).ok()?;
            stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
            let request = b"GET /api/history HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            stream.write_all(request).ok()?;
            Message::read_response(&mut stream).ok().filter(|answer| answer.status() == 401)
        });
    }
}

#[test]
fn a_gateway_starts_beside_the_one_that_has_its_address_and_takes_it_over() {
    let held = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = held.local_addr().expect("an address");
    let site = Site::custom(&format!("dashboard.listen = \"{address}\"\n"), "", |setup| setup);
    assert_eq!(site.get("/").status(), 200);
    assert!(site.brisk.log_with("the dashboard cannot listen").contains(&address.to_string()));
    drop(held);
    site.brisk.log_with("the dashboard listens now");
    let mut stream = TcpStream::connect(address).expect("a dashboard");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    stream
        .write_all(b"GET /api/history HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .expect("a listener that reads");
    assert_eq!(Message::read_response(&mut stream).expect("a response").status(), 200);
}

#[test]
fn a_reload_that_changes_nothing_of_it_ends_no_connection() {
    let site = Site::custom(ON, "", |setup| setup);
    let mut stream = TcpStream::connect(site.brisk.dashboard()).expect("a dashboard");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let mut again = || {
        let request = b"GET /api/history HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(request).expect("a listener that reads");
        Message::read_response(&mut stream).expect("a response").status()
    };
    assert_eq!(again(), 200);
    assert!(site.brisk.reload().contains("reloaded: "));
    assert_eq!(again(), 200);
}
