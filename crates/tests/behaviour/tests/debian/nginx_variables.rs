//! Headers with variables that an upstream and a client receive through brisk and through nginx.

use std::fmt::Write as _;
use std::net::TcpStream;

use brisk_behaviour::site::{NAME, Site};
use brisk_testkit::http1::Message;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::origin::Origin;

/// Variables of brisk and of nginx with the same meaning.
const VARIABLES: [(&str, &str); 9] = [
    ("{client.address}", "$remote_addr"),
    ("{request.method}", "$request_method"),
    ("{request.host}", "$host"),
    ("{request.query}", "$args"),
    ("{request.target}", "$request_uri"),
    ("{request.version}", "$server_protocol"),
    ("{request.header.user-agent}", "$http_user_agent"),
    ("{request.cookie.session}", "$cookie_session"),
    ("{request.query.id}", "$arg_id"),
];

const REQUESTS: [&str; 3] = [
    "GET /a%20b?id=7&x=%0d%0a HTTP/1.1\r\nUser-Agent: browser/1 (x; \"y\")\r\nCookie: a=1; session=s%3d2; session=3",
    "POST /?id=1&id=2 HTTP/1.1\r\nUser-Agent: \r\nContent-Length: 0",
    "GET / HTTP/1.1\r\nCookie: sessions=1",
];

fn exchange(mut stream: impl std::io::Read + std::io::Write, request: &str) -> Message {
    write!(stream, "{request}\r\nHost: {NAME}\r\nConnection: close\r\n\r\n").expect("a server");
    Message::read_response(&mut stream).expect("a response")
}

#[test]
fn upstreams_and_clients_receive_the_headers_that_nginx_sends() {
    let origin = Origin::fixed("reached");
    let (mut set, mut answered, mut nginx) = (String::new(), String::new(), String::new());
    for (number, (ours, theirs)) in VARIABLES.iter().enumerate() {
        writeln!(set, "X-V{number} = \"{ours}\"").expect("memory");
        writeln!(answered, "X-R{number} = \"v={ours}\"").expect("memory");
        writeln!(nginx, "proxy_set_header X-V{number} \"{theirs}\"; add_header X-R{number} \"v={theirs}\";")
            .expect("memory");
    }
    let url = origin.url();
    let tables = format!(
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n[host.route.request_headers.set]\n{set}\
         [host.route.response_headers.set]\n{answered}X-Server = \"{{upstream.address}}\"\n[upstream.app]\nservers = [\"{url}\"]\n"
    );
    let site = Site::with(&tables);
    let other = Nginx::http_with(&format!(
        "location ~ ^/ {{ {nginx} add_header X-Server $upstream_addr; proxy_set_header Host $host; proxy_pass {url}; }}"
    ));
    for request in REQUESTS {
        let theirs = exchange(TcpStream::connect(other.address()).expect("nginx"), request);
        let sent_by_nginx = origin.last_request().head;
        let ours = exchange(site.connect(), request);
        let sent = origin.last_request().head;
        for (number, (name, _)) in VARIABLES.iter().enumerate() {
            let (to_upstream, to_client) = (format!("x-v{number}"), format!("x-r{number}"));
            assert_eq!(sent.header(&to_upstream), sent_by_nginx.header(&to_upstream), "{name} for {request}");
            assert_eq!(ours.header(&to_client), theirs.header(&to_client), "{name} for {request}");
        }
        assert_eq!(ours.header("x-server"), theirs.header("x-server"));
    }
}
