//! Trace context for upstreams and the access log.

use brisk_behaviour::h2;
use brisk_behaviour::h2_client::Client;
use brisk_behaviour::site::{NAME, Site, upstream};
use brisk_testkit::http1::Message;
use brisk_testkit::origin::Origin;
use serde_json::Value;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

fn site(origin: &Origin) -> Site {
    let route =
        |path: &str, key: &str| format!("\n[[host.route]]\npath = \"{path}\"\nupstream = \"app\"\n{key}\n");
    let routes = [route("/on", "trace = true"), route("/new", "trace = \"new\""), route("/off", "")];
    let closed = "\n[[host.route]]\npath = \"/closed\"\nrespond = {}\ntrace = true\ndeny = [\"0.0.0.0/0\"]\n";
    Site::with(&format!("{}{closed}{}", routes.concat(), upstream(&[&origin.url()])))
}

fn get(site: &Site, path: &str, headers: &str) -> Message {
    site.connect().request(&format!("GET {path} HTTP/1.1\r\nHost: {NAME}\r\n{headers}\r\n"))
}

/// The IDs of trace and operation, and the flags, that the origin received last.
fn sent(origin: &Origin) -> Vec<String> {
    let head = origin.last_request().head;
    let parent = head.header("traceparent").expect("a trace").to_owned();
    assert_eq!(parent.len(), PARENT.len(), "{parent}");
    parent.split('-').skip(1).map(str::to_owned).collect()
}

fn logged(site: &Site, path: &str) -> Value {
    serde_json::from_str(&site.brisk.logged(&format!("\"{path}\""))).expect("a line of JSON")
}

#[test]
fn a_trace_of_a_client_is_continued_and_another_one_begins() {
    let origin = Origin::fixed("reached");
    let site = site(&origin);
    let state = "tracestate: a=b,c=d\r\n";
    get(&site, "/on/1", &format!("traceparent: {PARENT}\r\n{state}"));
    let first = sent(&origin);
    assert_eq!((first[0].as_str(), first[2].as_str()), (TRACE, "00"));
    assert_ne!(first[1], "b7ad6b7169203331");
    assert_eq!(origin.last_request().head.header("tracestate"), Some("a=b,c=d"));
    assert_eq!(logged(&site, "/on/1")["trace"], TRACE);
    get(&site, "/on/2", &format!("traceparent: {PARENT}\r\ntracestate: a=b,a=c\r\n"));
    let second = sent(&origin);
    assert_eq!(second[0], TRACE);
    assert_ne!(first[1], second[1], "each request is an operation");
    assert_eq!(origin.last_request().head.header("tracestate"), None);
    for (path, headers) in [
        ("/on/3", String::new()),
        ("/on/4", format!("traceparent: 00-{TRACE}-0000000000000000-01\r\n{state}")),
        ("/on/5", format!("traceparent: {PARENT}\r\ntraceparent: {PARENT}\r\n{state}")),
        ("/new", format!("traceparent: {PARENT}\r\n{state}")),
    ] {
        get(&site, path, &headers);
        let begun = sent(&origin);
        assert!(begun[0] != TRACE && begun[2] == "03", "{path}: {begun:?}");
        assert_eq!(origin.last_request().head.header("tracestate"), None, "{path}");
        assert_eq!(logged(&site, path)["trace"], begun[0].as_str(), "{path}");
    }
}

#[test]
fn a_refused_request_has_a_trace_in_the_log_over_http2() {
    let origin = Origin::fixed("reached");
    let site = site(&origin);
    let mut client = Client::connect(&site);
    client.send(&h2::get_with(1, "/closed", &[("traceparent", PARENT)]));
    assert_eq!(client.status(1), 403);
    assert_eq!(logged(&site, "/closed")["trace"], TRACE);
}

#[test]
fn without_the_setting_the_headers_pass_unchanged() {
    let origin = Origin::fixed("reached");
    let site = site(&origin);
    get(&site, "/off", "traceparent: any\r\ntracestate: A\r\n");
    let head = origin.last_request().head;
    assert_eq!((head.header("traceparent"), head.header("tracestate")), (Some("any"), Some("A")));
    assert_eq!(logged(&site, "/off").get("trace"), None);
}
