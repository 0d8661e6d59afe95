//! Headers by which a client claims an identity: no spelling reaches an upstream as the word of a proxy.

use std::io::Write;

use brisk_behaviour::site::{NAME, Site, proxy_to};
use brisk_testkit::http1::Message;
use brisk_testkit::origin::Origin;

/// As clients spell what they may not say; the value of each is `forged`.
const FORGED: &[&str] = &[
    "X-Forwarded-For",
    "X_Forwarded_For",
    "X-Forwarded_Proto",
    "X.Forwarded.Host",
    "X-Forwarded",
    "X_Real_IP",
    "True-Client-IP",
    "X-Client-IP",
    "CF-Connecting-IP",
    "Proxy",
    "X-Original-URL",
    "X-Rewrite-URL",
    "Client-Cert",
    "Client-Cert-Chain",
    "Client_Cert",
    "X-SSL-Client-Verify",
    "Remote-User",
];

fn lines(names: &[&str]) -> String {
    names.iter().flat_map(|name| [name, ": forged\r\n"]).collect()
}

/// The names of headers that still say what the client made up.
fn believed(headers: &[(String, String)]) -> Vec<&str> {
    let forged = headers.iter().filter(|(_, value)| value.contains("forged"));
    forged.map(|(name, _)| name.as_str()).collect()
}

fn head_seen(site: &Site, origin: &Origin, names: &[&str]) -> Message {
    let answer = site.connect().request(&format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n{}\r\n", lines(names)));
    assert_eq!(answer.status(), 200);
    origin.last_request()
}

#[test]
fn a_stranger_is_nobody_else_in_any_spelling() {
    let origin = Origin::fixed("seen");
    let site = Site::proxying(&[&origin.url()]);
    let request = head_seen(&site, &origin, FORGED);
    assert_eq!(believed(&request.head.headers), Vec::<&str>::new());
    assert_eq!(request.header("x-forwarded-for"), Some("127.0.0.1"));
    let mut curl: Vec<_> =
        FORGED.iter().flat_map(|name| ["--header".to_owned(), format!("{name}: forged")]).collect();
    curl.push("--http2".to_owned());
    site.curl(&curl.iter().map(String::as_str).collect::<Vec<_>>(), "/").success();
    assert_eq!(believed(&origin.last_request().head.headers), Vec::<&str>::new());
}

#[test]
fn a_trailer_claims_nothing_and_changes_nothing_of_the_head() {
    let origin = Origin::fixed("seen");
    let site = Site::proxying(&[&origin.url()]);
    let forbidden = ["X-Forwarded-For", "X_Forwarded_For", "X-Real-IP", "Cookie", "Early-Data", "Proxy"];
    let announced = forbidden.join(", ");
    let mut connection = site.connect();
    write!(
        connection,
        "POST / HTTP/1.1\r\nHost: {NAME}\r\nTransfer-Encoding: chunked\r\nTrailer: {announced}, X-Sum\r\n\r\n\
         3\r\nabc\r\n0\r\n{}X-Sum: 5\r\n\r\n",
        lines(&forbidden)
    )
    .expect("a server that reads");
    assert_eq!(Message::read_response(&mut connection).expect("an answer").status(), 200);
    let request = origin.last_request();
    assert_eq!(request.text(), "abc");
    assert_eq!(request.trailers, [("x-sum".to_owned(), "5".to_owned())]);
}

#[test]
fn a_trusted_proxy_is_believed_but_not_what_it_passed_on_unread() {
    let origin = Origin::fixed("seen");
    let keys = "server.trusted_proxies = [\"127.0.0.0/8\"]\n";
    let site = Site::custom(keys, &proxy_to(&[&origin.url()]), |setup| setup);
    let names = ["X-Real-IP", "Client-Cert", "X_Forwarded_For", "X.Real.IP", "Proxy"];
    assert_eq!(believed(&head_seen(&site, &origin, &names).head.headers), ["x-real-ip", "client-cert"]);
}

#[test]
fn names_with_underscores_pass_where_the_operator_says_so() {
    let origin = Origin::fixed("seen");
    let names = ["X_Own", "X_Forwarded_For"];
    for (keys, passed) in [("", &[][..]), ("server.underscores_in_headers = \"pass\"\n", &["x_own"][..])] {
        let site = Site::custom(keys, &proxy_to(&[&origin.url()]), |setup| setup);
        assert_eq!(believed(&head_seen(&site, &origin, &names).head.headers), passed, "{keys:?}");
    }
}
