//! Comparison of brisk with nginx, HAProxy and Envoy: 2,000 requests over HTTP/1.1 and HTTP/2, with the same upstream or
//! the same files, and of brisk over HTTP/3 with itself over HTTP/2. Each difference has an explanation in a list.
//!
//! Without Envoy, which is not available on all machines, the comparison has nginx and HAProxy only.

mod clients;
mod explained;
mod files;
mod forwarded;
mod generator;
mod http1;
mod http2;
mod http3;
mod outcome;
mod request;
mod servers;
mod shapes;
mod upstream;

use std::net::SocketAddr;
use std::thread;

use brisk_behaviour::site;
use brisk_testkit::nginx::Nginx;
use tempfile::TempDir;

use clients::{Clients, Outcomes, Subject};
use explained::{Explanation, assert_explained, framing, headers, refusals, requests, responses};
use files::Files;
use outcome::{Difference, differences};
use request::Request;
use servers::{Protocol, Server, Servers};
use upstream::Upstream;

/// Numbers of requests, 2,000 in sum.
const FORWARDED: usize = 1200;
const FILES: usize = 800;

const FORWARDED_LISTS: &[&[Explanation]] = &[
    refusals::REFUSALS,
    requests::LINES,
    requests::ABSOLUTE,
    framing::FRAMES,
    headers::CONNECTIONS,
    headers::HEADERS,
    responses::FRAMES,
    responses::HEADERS,
];

#[test]
fn forwarded_requests_differ_from_those_of_other_servers_only_as_explained() {
    let upstream = Upstream::start();
    let address = upstream.origin.address();
    let tables = format!(
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\nearly_hints = {{ learn = false }}\n{}\
         timeouts = {{ connect = \"60s\" }}\n",
        site::upstream(&[&upstream.origin.url()])
    );
    let http = format!("upstream behind {{ server {address}; keepalive 16; }}");
    let server = "location / { proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Host $http_host; \
                  proxy_set_header Connection \"\"; }";
    let servers = Servers::start(&tables, (&http, server), address);
    let requests = generator::requests("/a", &forwarded::features(), forwarded::PAIRS, FORWARDED);
    compare(&servers, &requests, &upstream, FORWARDED_LISTS);
    assert_eq!(upstream.left(), [""; 0], "requests at the upstream that no client sent");
}

#[test]
fn responses_with_files_differ_from_those_of_other_servers_only_as_explained() {
    let folder = TempDir::with_prefix("brisk-test-differential-").expect("a temporary folder");
    files::create(folder.path());
    let path = folder.path().display();
    let tables = format!("\n[[host.route]]\npath = \"/\"\nstatic = \"{path}\"\nprecompressed = true\n");
    let http = format!("root {path};\ngzip_static on;\ngzip_vary on;\nif_modified_since before;");
    let behind = Nginx::bare_http(&http, "");
    let servers = Servers::start(&tables, (&http, ""), behind.address());
    let requests = generator::requests(files::TARGET, &files::features(), files::PAIRS, FILES);
    compare(&servers, &requests, &Files, &[explained::files::FILES]);
}

/// Sends all requests to all servers at the same time, and compares the outcomes with those of brisk.
fn compare(servers: &Servers, requests: &[Request], subject: &dyn Subject, lists: &[&'static [Explanation]]) {
    let addresses = servers.addresses();
    let outcomes: Vec<(Server, Outcomes)> = thread::scope(|scope| {
        let run = |&(server, address): &(Server, SocketAddr)| {
            let mut clients = Clients::new(servers, (server, address), subject);
            (server, scope.spawn(move || clients.exchange_all(requests)))
        };
        let running: Vec<_> = addresses.iter().map(run).collect();
        running.into_iter().map(|(server, all)| (server, all.join().expect("no panic"))).collect()
    });
    let wrong: Vec<_> = requests.iter().flat_map(|request| wrong_codes(request, &outcomes[0].1)).collect();
    assert!(wrong.is_empty(), "brisk resets streams of malformed requests with other codes: {wrong:#?}");
    let (mut found, mut comparisons) = (Vec::new(), 0);
    for (server, theirs) in &outcomes {
        for request in requests {
            comparisons += compared(request, *server, (&outcomes[0].1, theirs), &mut found);
        }
    }
    println!("{} requests, {comparisons} comparisons, {} differences", requests.len(), found.len());
    assert_explained(&found, lists, addresses.len() == 4);
}

/// Protocols over which brisk refuses the request with another error code than that of malformed messages, with this code.
fn wrong_codes<'a>(
    request: &'a Request,
    outcomes: &'a Outcomes,
) -> impl Iterator<Item = (Protocol, u64, &'a Request)> {
    Server::Brisk.protocols().iter().filter_map(move |protocol| {
        let code = outcomes.get(&(request.number, *protocol))?.wrong_code(*protocol)?;
        Some((*protocol, code, request))
    })
}

/// Adds the differences of a request over all protocols, and returns their number. brisk is compared with itself over HTTP/3.
fn compared<'a>(
    request: &'a Request,
    server: Server,
    (brisk, theirs): (&'a Outcomes, &'a Outcomes),
    found: &mut Vec<Difference<'a>>,
) -> usize {
    let mut comparisons = 0;
    for protocol in server.protocols() {
        let other = match (server, protocol) {
            (Server::Brisk, Protocol::Http3) => Protocol::Http2,
            (Server::Brisk, _) => continue,
            _ => *protocol,
        };
        let outcomes = (brisk.get(&(request.number, *protocol)), theirs.get(&(request.number, other)));
        let (Some(one), Some(other)) = outcomes else { continue };
        comparisons += 1;
        found.extend(differences(request, (*protocol, server), [one, other]));
    }
    comparisons
}
