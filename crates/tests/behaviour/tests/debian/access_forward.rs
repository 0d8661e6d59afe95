//! Forward authentication, with the same decisions as nginx.

use std::io::Write as _;

use brisk_behaviour::h2;
use brisk_behaviour::h2_client::Client;
use brisk_behaviour::site::{NAME, Site, upstream};
use brisk_behaviour::websocket::echo;
use brisk_testkit::http1::Message;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::origin::Origin;
use tungstenite::client::IntoClientRequest as _;
use tungstenite::{Error, HandshakeError};

/// A server that decides by the header `X-Ask`: its value is the status.
fn decider() -> Origin {
    Origin::answering(|request, stream| {
        let status = request.header("x-ask").unwrap_or("401").to_owned();
        let more = match &*status {
            "200" => "Remote-User: alice\r\nRemote-Groups: a\r\nRemote-Groups: b\r\nX-Other: 1\r\n",
            "302" => "Location: https://login.test/\r\nSet-Cookie: a=b\r\n",
            "401" => "WWW-Authenticate: Bearer\r\n",
            "silent" => return Err(std::io::ErrorKind::ConnectionAborted.into()),
            _ => "",
        };
        let body =
            if matches!(&*status, "204" | "304") { String::new() } else { format!("decision {status}") };
        write!(stream, "HTTP/1.1 {status} Decided\r\n{more}Content-Length: {}\r\n\r\n{body}", body.len())
    })
}

fn site(decider: &Origin, origin: &Origin, keys: &str) -> Site {
    Site::with(&format!(
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n\
         forward_auth = {{ url = \"{}/verify?x=1\", copy_headers = [\"remote-user\", \"remote-groups\", \"x-auth-name\"]{keys} }}\n{}",
        decider.url(),
        upstream(&[&origin.url()])
    ))
}

fn ask(site: &Site, status: &str) -> Message {
    let request = format!(
        "POST /a/../b?c=d HTTP/1.1\r\nHost: {NAME}\r\nX-Ask: {status}\r\nRemote-User: eve\r\nX-Auth-Name: eve\r\nX.Auth.Name: eve\r\nCookie: s=1\r\n\
         If-None-Match: \"x\"\r\nX-Original-Url: https://forged/\r\nContent-Length: 4\r\n\r\nbody"
    );
    site.connect().request(&request)
}

#[test]
fn a_permission_reaches_the_upstream_with_its_headers_and_a_refusal_the_client() {
    let (decider, origin) = (decider(), Origin::fixed("reached"));
    let site = site(&decider, &origin, "");
    let response = ask(&site, "200");
    assert_eq!((response.status(), response.text()), (200, "reached".to_owned()));
    let question = decider.last_request();
    assert_eq!(question.head.line, "GET /verify?x=1 HTTP/1.1");
    let url = format!("https://{NAME}/b?c=d");
    for (name, value) in [
        ("x-forwarded-method", Some("POST")),
        ("x-forwarded-uri", Some("/b?c=d")),
        ("x-forwarded-proto", Some("https")),
        ("x-forwarded-host", Some(NAME)),
        ("x-forwarded-for", Some("127.0.0.1")),
        ("x-original-method", Some("POST")),
        ("x-original-url", Some(&*url)),
        ("cookie", Some("s=1")),
        ("if-none-match", None),
        ("content-length", None),
        ("transfer-encoding", None),
        ("remote-user", None),
    ] {
        assert_eq!(question.header(name), value, "{name}");
    }
    let forwarded = origin.last_request();
    assert_eq!(forwarded.head.all("remote-user"), ["alice"]);
    assert_eq!(forwarded.head.all("remote-groups"), ["a", "b"]);
    assert_eq!((forwarded.header("x-other"), forwarded.text()), (None, "body".to_owned()));
    for name in ["x-forwarded-uri", "x-auth-name", "x.auth.name"] {
        assert_eq!(forwarded.header(name), None, "{name}");
    }
    for (status, name, value) in [
        ("401", "www-authenticate", Some("Bearer")),
        ("302", "location", Some("https://login.test/")),
        ("302", "set-cookie", Some("a=b")),
        ("403", "remote-user", None),
    ] {
        let response = ask(&site, status);
        assert_eq!((response.status().to_string(), response.header(name)), (status.to_owned(), value));
        assert_eq!(response.text(), format!("decision {status}"));
    }
    for status in ["500", "404", "304", "silent"] {
        assert_eq!(ask(&site, status).status(), 502, "{status}");
    }
    assert_eq!(origin.requests().len(), 1);
    assert!(site.brisk.logged("\"forward-auth\"").contains("\"status\":502"));
    for (status, expected) in [("200", 200), ("401", 401)] {
        let mut http2 = Client::connect(&site);
        http2.send(&h2::get_with(1, "/", &[("x-ask", status)]));
        assert_eq!(http2.status(1), expected);
    }
}

#[test]
fn a_server_that_does_not_answer_is_a_504_and_connections_to_it_are_kept() {
    let silent = Origin::raw(|stream| {
        std::io::copy(&mut &stream, &mut std::io::sink())?;
        Ok(())
    });
    let origin = Origin::fixed("reached");
    let tables = format!(
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\nforward_auth = {{ upstream = \"auth\", path = \"/verify\" }}\n\
         {}\n[upstream.auth]\nservers = [\"{}\"]\ntimeouts.head = \"300ms\"\n",
        upstream(&[&origin.url()]),
        silent.url()
    );
    assert_eq!(ask(&Site::with(&tables), "200").status(), 504);
    assert_eq!(origin.requests().len(), 0);
    let decider = decider();
    let site = site(&decider, &origin, "");
    let mut connection = site.connect();
    for _ in 0..5 {
        let request = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\nX-Ask: 200\r\n\r\n");
        assert_eq!(connection.request(&request).status(), 200);
    }
    assert_eq!(decider.connections(), 1);
}

#[test]
fn a_permission_renews_the_session_of_the_client() {
    let decider = Origin::answering(|_, stream| {
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nSet-Cookie: session=2\r\nSet-Cookie: other=3\r\nX-User: alice\r\nContent-Length: 0\r\n\r\n"
        )
    });
    let origin = Origin::answering(|request, stream| {
        if request.head.line.contains("/broken") {
            return Err(std::io::ErrorKind::ConnectionAborted.into());
        }
        write!(stream, "HTTP/1.1 200 OK\r\nSet-Cookie: own=1\r\nContent-Length: 0\r\n\r\n")
    });
    let site = site(&decider, &origin, ", copy_to_response = [\"Set-Cookie\"]");
    let response = site.get("/");
    assert_eq!(response.head.all("set-cookie"), ["own=1", "session=2", "other=3"]);
    assert_eq!(response.header("x-user"), None);
    assert_eq!(origin.last_request().header("set-cookie"), None);
    // A refreshed session must not be lost because the upstream fails.
    let failed = site.get("/broken");
    assert_eq!((failed.status(), failed.head.all("set-cookie")), (502, vec!["session=2", "other=3"]));
    // Without the key, a permission sets no cookies.
    let usual = self::site(&decider, &origin, "");
    assert_eq!(usual.get("/").head.all("set-cookie"), ["own=1"]);
}

#[test]
fn a_permission_without_an_end_delays_no_request_for_ever() {
    let decider = Origin::answering(|request, stream| {
        let head = match request.header("x-ask") {
            Some("slow") => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            Some("endless-head") => "HTTP/1.1 200 OK\r\n",
            _ => return write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        };
        write!(stream, "{head}")?;
        let is_slow = head.contains("chunked");
        loop {
            let more =
                if is_slow { "1\r\nx\r\n".to_owned() } else { format!("X-A: {}\r\n", "a".repeat(1000)) };
            stream.write_all(more.as_bytes())?;
            if is_slow {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    });
    let origin = Origin::fixed("reached");
    let site = site(&decider, &origin, "");
    // Many at a time, and the requests of others pass meanwhile.
    let mut slow: Vec<_> = (0..20).map(|_| site.connect()).collect();
    for connection in &mut slow {
        write!(connection, "GET / HTTP/1.1\r\nHost: {NAME}\r\nX-Ask: slow\r\n\r\n").expect("a server");
    }
    assert_eq!(ask(&site, "200").text(), "reached");
    for connection in &mut slow {
        assert_eq!(connection.response().text(), "reached");
    }
    assert_eq!(ask(&site, "endless-head").status(), 502);
    assert_eq!(ask(&site, "200").text(), "reached");
}

#[test]
fn decisions_have_the_effect_that_they_have_in_nginx() {
    let (decider, origin) = (decider(), Origin::fixed("reached"));
    let site = site(&decider, &origin, "");
    let directives = format!(
        "location = /verify {{ internal; proxy_pass {}; proxy_pass_request_body off; proxy_set_header Content-Length \"\"; }}\n\
         location /x {{ auth_request /verify; proxy_pass {}; }}",
        decider.url(),
        origin.url()
    );
    let nginx = Nginx::https_with(&site.ca.server(&[NAME]).issue(), &directives);
    for status in ["200", "204", "401", "403"] {
        let header = format!("X-Ask: {status}");
        let options = ["--header", &header, "--output", "/dev/null", "--write-out", "%{http_code}"];
        let expected =
            site.curl_url(&options, &format!("https://{NAME}:{}/x", nginx.address().port())).success();
        assert_eq!(site.curl(&options, "/x").success(), expected, "{status}");
        assert_eq!(expected, if status.starts_with('2') { "200" } else { status });
    }
}

#[test]
fn a_websocket_opens_after_the_permission_that_was_asked_for_without_one() {
    let (decider, origin) = (decider(), echo());
    let site = site(&decider, &origin, "");
    let open = |status: &str| {
        let mut request = format!("wss://{NAME}/chat").into_client_request().expect("a request");
        request.headers_mut().insert("x-ask", status.parse().expect("a value"));
        tungstenite::client(request, site.connect()).map_err(Box::new)
    };
    let refusal = open("403").expect_err("a refusal");
    let HandshakeError::Failure(Error::Http(refused)) = *refusal else { panic!("{refusal}") };
    assert_eq!(refused.status(), 403);
    let (mut socket, response) = open("200").expect("an upgrade");
    assert_eq!(response.status(), 101);
    socket.send("text".into()).expect("a server that reads");
    assert_eq!(socket.read().expect("an echo"), "text".into());
    let question = decider.last_request();
    for name in ["upgrade", "connection"] {
        assert_eq!(question.header(name), None, "{name}");
    }
    assert_eq!(question.header("x-forwarded-method"), Some("GET"));
}

#[test]
fn a_credential_that_a_permission_replaces_is_part_of_the_question() {
    let decider = Origin::answering(|_, stream| {
        write!(
            stream,
            "HTTP/1.1 200 Yes\r\nAuthorization: Bearer exchanged\r\nX-User: alice\r\nContent-Length: 0\r\n\r\n"
        )
    });
    let origin = Origin::fixed("reached");
    let site = Site::with(&format!(
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\nrequest_headers = {{ set = {{ X-User = \"anonymous\", X-Role = \"none\" }} }}\n\
         forward_auth = {{ url = \"{}/verify\", copy_headers = [\"authorization\", \"x-user\", \"x-role\"] }}\n{}",
        decider.url(),
        upstream(&[&origin.url()])
    ));
    let request =
        format!("GET / HTTP/1.1\r\nHost: {NAME}\r\nAuthorization: Bearer own\r\nX-User: eve\r\n\r\n");
    assert_eq!(site.connect().request(&request).status(), 200);
    let question = decider.last_request();
    assert_eq!((question.header("authorization"), question.header("x-user")), (Some("Bearer own"), None));
    let forwarded = origin.last_request();
    assert_eq!(forwarded.head.all("authorization"), ["Bearer exchanged"]);
    // The permission decides about its names alone: no value of a rule stands beside or in place of its values.
    assert_eq!(forwarded.head.all("x-user"), ["alice"]);
    assert_eq!(forwarded.head.all("x-role"), [""; 0]);
}
