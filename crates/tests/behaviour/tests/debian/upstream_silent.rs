//! Servers that accept requests and do not respond: requests that are safe to repeat go to another server.

use std::thread;

use brisk_behaviour::site::{NAME, Site, proxy_to, upstream};
use brisk_testkit::nginx::Nginx;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::wait_until;

fn site(servers: &[&str], keys: &str) -> Site {
    Site::custom("server.workers = 1\n", &format!("{}{keys}\n", proxy_to(servers)), |setup| setup)
}

fn repeats(site: &Site, reason: &str) -> usize {
    let label = format!("reason=\"{reason}\"");
    site.brisk.metrics().sum("brisk_upstream_repeats_total", &[&label]).round() as usize
}

fn post(path: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 4\r\n\r\nbody")
}

#[test]
fn a_stopped_server_fails_no_get_and_a_post_times_out() {
    for start in [Nginx::http as fn() -> Nginx, Nginx::h2c] {
        // On a slow machine, responses of the running server may be late too: then a new site is tried.
        wait_until("requests that leave a stopped server", || {
            let (stopped, running) = (start(), start());
            let keys = "timeouts = { attempt = \"200ms\", head = \"1s\" }\nhealth = { max_failures = 4 }";
            let site = site(&[&stopped.url(), &running.url()], keys);
            let mut connection = site.connect();
            let port = |nginx: &Nginx| nginx.address().port().to_string();
            let names: Vec<_> = (0..4).map(|_| connection.get(NAME, "/name").text()).collect();
            assert!(names.contains(&port(&stopped)) && names.contains(&port(&running)), "{names:?}");
            stopped.process().pause();
            let posts = [(); 2].map(|()| connection.request(&post("/name")).status());
            assert!(posts.contains(&504), "{posts:?}");
            // The POST was the first failure: the server is excluded after three more.
            let gets: Vec<_> = (0..12).map(|_| connection.get(NAME, "/name").text()).collect();
            let is_served = gets.iter().all(|name| *name == port(&running));
            (is_served && (repeats(&site, "silent"), repeats(&site, "budget")) == (3, 0))
                .then(|| drop(site.brisk.log_with("upstream server left out after failed requests")))
        });
    }
}

#[test]
fn requests_that_wait_leave_a_server_that_checks_exclude() {
    let health = "health = { path = \"/health\", interval = \"200ms\", timeout = \"100ms\" }";
    // On a slow machine, the checks may exclude the server before it gets a request: then a new site is tried.
    wait_until("requests that leave an excluded server", || {
        let (stopped, running) = (Nginx::http(), Nginx::http());
        let site = site(&[&stopped.url(), &running.url()], health);
        let connections: Vec<_> = (0..6).map(|_| site.connect()).collect();
        stopped.process().pause();
        let waiting = connections
            .into_iter()
            .map(|mut connection| thread::spawn(move || connection.get(NAME, "/name").text()));
        for response in waiting.collect::<Vec<_>>() {
            assert_eq!(response.join().expect("a response"), running.address().port().to_string());
        }
        assert_eq!(repeats(&site, "silent"), 0);
        (repeats(&site, "excluded") > 0).then_some(())
    });
}

/// With all servers silent, requests must not double.
#[test]
fn the_share_of_repetitions_is_kept_if_all_servers_are_silent() {
    let servers = [Nginx::http(), Nginx::http()];
    let urls = servers.each_ref().map(Nginx::url);
    let keys = "timeouts = { attempt = \"100ms\", head = \"600ms\" }\nhealth = { max_failures = 0 }";
    let site = site(&urls.each_ref().map(String::as_str), keys);
    for nginx in &servers {
        nginx.process().pause();
    }
    let clients: Vec<_> = (0..10)
        .map(|_| {
            let mut connection = site.connect();
            thread::spawn(move || (0..3).map(|_| connection.get(NAME, "/name").status()).collect::<Vec<_>>())
        })
        .collect();
    for client in clients {
        assert_eq!(client.join().expect("responses"), [504; 3]);
    }
    // Ten at once, and a fifth of 30.
    let repeated = repeats(&site, "silent");
    assert!((10..=16).contains(&repeated), "{repeated}");
    assert!(repeats(&site, "budget") > 0);
    let sent = site.brisk.metrics().sum("brisk_upstream_requests_total", &[]).round() as usize;
    assert_eq!(sent, 30 + repeated);
}

#[test]
fn a_gathered_body_goes_along_and_a_streamed_one_does_not() {
    let route = |path, keys| format!("\n[[host.route]]\npath = {path:?}\nupstream = \"app\"\n{keys}\n");
    let routes = route("/", "buffer_request = true\nbody_size = \"1MiB\"") + &route("/streamed", "");
    let keys = "retry = { unsafe_methods = true }\ntimeouts = { attempt = \"200ms\", head = \"800ms\" }\n\
                health = { max_failures = 0 }\n";
    // On a slow machine, responses of the good server may be late too: then a new site is tried.
    wait_until("a body that goes along", || {
        let silent = Origin::answering(|_, _| Ok(()));
        let good = Origin::fixed("good");
        let tables = format!("{routes}{}{keys}", upstream(&[&silent.url(), &good.url()]));
        let site = Site::custom("server.workers = 1\n", &tables, |setup| setup);
        let mut connection = site.connect();
        let gathered = [(); 4].map(|()| connection.request(&post("/")).text());
        let are_repeated = gathered.iter().all(|text| text == "good")
            && (silent.requests().len(), repeats(&site, "silent")) == (2, 2);
        let last = good.last_request().text();
        let streamed = [(); 2].map(|()| connection.request(&post("/streamed")).status());
        assert!(streamed.contains(&504), "{streamed:?}");
        (are_repeated && last == "body" && streamed.contains(&200) && repeats(&site, "silent") == 2)
            .then_some(())
    });
}

/// RFC 8470 section 4: a request in early data may be a replay, so it is sent once until the client has finished.
#[test]
fn early_data_stays_until_the_handshake_is_complete() {
    let silent = Origin::answering(|request, stream| {
        let is_first = request.head.line.starts_with("GET /first ");
        if is_first { brisk_testkit::origin::write_response(stream, b"first") } else { Ok(()) }
    });
    let good = Origin::fixed("good");
    let backup = format!("{{ url = {:?}, backup = true }}", good.url());
    let route = "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\nearly_data = \"safe\"\n";
    let keys = "timeouts = { attempt = \"100ms\", head = \"60s\" }\nhealth = { max_failures = 0 }\n";
    let tables = format!("{route}[upstream.app]\nservers = [{:?}, {backup}]\n{keys}", silent.url());
    let site = Site::custom("server.workers = 1\n", &tables, |setup| setup);
    let client = site.client();
    assert_eq!(client.connect(site.brisk.https()).expect("a handshake").get(NAME, "/first").text(), "first");
    let flight = client.first_flight(format!("GET /early HTTP/1.1\r\nHost: {NAME}\r\n\r\n").as_bytes());
    let mut unfinished = flight.send(site.brisk.https()).expect("a gateway that listens");
    assert!(unfinished.is_accepted().expect("the server's flight"));
    wait_until("the request", || (silent.requests().len() == 2).then_some(()));
    // A request of another client leaves meanwhile, although its attempt began later.
    assert_eq!(site.get("/other").text(), "good");
    assert_eq!(good.last_request().head.line, "GET /other HTTP/1.1");
    assert_eq!((good.requests().len(), repeats(&site, "silent")), (1, 1));
}
