//! What port 80 does, as servers of bytes do it.

use super::*;

/// What is found of a port that answers each request with these bytes.
fn found(answer: &'static [u8]) -> PlainHttp {
    let server = Server::start(move |mut stream| {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut buffer = [0; 1024];
            let Ok(read @ 1..) = stream.read(&mut buffer) else { return };
            head.extend_from_slice(&buffer[..read]);
        }
        // A client that is gone is no failure of the test.
        let _ = stream.write_all(answer);
    });
    plain(server.address)
}

fn plain(address: SocketAddr) -> PlainHttp {
    let contact = AuditTarget::new("a.test", &[address], Limits::default());
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(http::plain(&contact, address.port())).expect("an answer")
}

#[test]
fn an_answer_is_one_whatever_the_length_of_its_body() {
    let hops = vec!["https://a.test/".to_owned()];
    for length in ["2, 2", "x", "-1"] {
        let answer =
            format!("HTTP/1.1 301 Moved\r\nLocation: https://a.test/\r\nContent-Length: {length}\r\n\r\n");
        assert_eq!(found(answer.leak().as_bytes()), PlainHttp::Redirects(hops.clone()), "{length}");
    }
    assert_eq!(found(b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nhi"), PlainHttp::Answers(200));
    assert_eq!(found(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"), PlainHttp::Answers(101));
}

#[test]
fn a_relative_redirect_leads_to_the_same_host() {
    for location in ["index.html", "?x"] {
        let answer = format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\n\r\n");
        assert_eq!(found(answer.leak().as_bytes()), PlainHttp::Answers(310), "redirects without an end");
    }
}

#[test]
fn a_port_is_closed_only_if_it_does_not_connect() {
    assert_eq!(found(b""), PlainHttp::Unjudged);
    assert_eq!(found(b"SSH-2.0-x\r\n"), PlainHttp::Unjudged);
    // The port of a client is taken, and has no listener.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let held = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let closed = held.local_addr().expect("an address");
    assert_eq!(plain(closed), PlainHttp::Closed);
    let answer = format!("HTTP/1.1 302 Found\r\nLocation: http://a.test:{}/\r\n\r\n", closed.port());
    assert_eq!(found(answer.leak().as_bytes()), PlainHttp::Unjudged, "a redirect to nowhere is not safe");
}

#[test]
fn what_was_not_judged_is_listed() {
    let mut audit = Server::with(right(), &identity(&TestCa::new())).audit();
    audit.http = Some(Http { plain: PlainHttp::Unjudged, ..Http::default() });
    assert!(not_judged(&audit).iter().any(|line| line.starts_with("port 80:")));
    for id in ["http-plain", "http-redirect-host"] {
        let kind = catalogue::ALL.iter().find(|kind| kind.id == id).expect("a kind");
        assert!(judged::not_judged(&audit, kind).is_some(), "{id}");
    }
}
