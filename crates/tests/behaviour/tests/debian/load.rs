//! Short load with wrk and h2load: no request may fail; throughput is not measured.

use brisk_behaviour::site::{LIMIT, Site};
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::{command, run};

fn wrk(site: &Site, path: &str) {
    let url = format!("https://{}{path}", site.brisk.https());
    // On a busy machine, seconds may pass before the first response.
    let has_requests = ["-d1s", "-d5s", "-d30s", "-d120s"].iter().any(|duration| {
        let mut wrk = command("wrk");
        wrk.args(["-t1", "-c16", duration, "--timeout", "170s", &url]);
        let output = run(&mut wrk, b"", LIMIT).success();
        assert!(!output.contains("Non-2xx") && !output.contains("Socket errors"), "{output}");
        let requests = output.lines().find_map(|line| line.trim().split_once(" requests in "));
        requests.and_then(|(number, _)| number.parse().ok()).is_some_and(|number: u64| number > 0)
    });
    assert!(has_requests, "no response to wrk");
}

fn h2load(site: &Site, path: &str, requests: &str) {
    let url = format!("https://{}{path}", site.brisk.https());
    let output = run(command("h2load").args(["-n", requests, "-c8", "-m10", &url]), b"", LIMIT).success();
    let all = format!("{requests} succeeded, 0 failed, 0 errored, 0 timeout");
    assert!(output.contains(&all), "{output}");
    assert!(output.contains(&format!("status codes: {requests} 2xx, 0 3xx, 0 4xx, 0 5xx")), "{output}");
}

#[test]
fn nothing_fails_under_load() {
    let nginx = Nginx::http();
    let tables = "\n[[host.route]]\npath = \"/local\"\nrespond = { body = \"hello\" }\n".to_owned();
    let site = Site::with(&(tables + &brisk_behaviour::site::proxy_to(&[&nginx.url()])));
    wrk(&site, "/local");
    wrk(&site, "/1k");
    h2load(&site, "/local", "4000");
    h2load(&site, "/1k", "4000");
    h2load(&site, "/1m", "100");
    assert_eq!(nginx.errors(), "");
    let metrics = site.brisk.metrics();
    assert!(metrics.sum("brisk_request_errors_total", &["side=\"upstream\""]) < 0.5, "{}", metrics.0);
    assert!(metrics.sum("brisk_request_errors_total", &["side=\"internal\""]) < 0.5, "{}", metrics.0);
}

#[test]
fn nothing_fails_under_load_to_an_h2c_upstream() {
    let nginx = Nginx::h2c();
    let site = Site::proxying(&[&nginx.url()]);
    wrk(&site, "/1k");
    h2load(&site, "/1k", "2000");
    h2load(&site, "/1m", "50");
}

#[test]
fn nothing_fails_under_load_with_pipelines() {
    let nginx = Nginx::http();
    let site = Site::with(&(brisk_behaviour::site::proxy_to(&[&nginx.url()]) + "pipeline = 8\n"));
    h2load(&site, "/1k", "8000");
    h2load(&site, "/1m", "50");
    h2load(&site, "/health", "4000");
    assert_eq!(nginx.errors(), "");
    let metrics = site.brisk.metrics();
    assert!(metrics.sum("brisk_upstream_pipelined_requests_total", &[]) > 4000.0, "{}", metrics.0);
    assert!(metrics.sum("brisk_request_errors_total", &[]) < 0.5, "{}", metrics.0);
}
