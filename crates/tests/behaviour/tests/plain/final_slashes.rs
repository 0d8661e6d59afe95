//! Redirects of a path without the final slash that its route has.

use brisk_behaviour::h2;
use brisk_behaviour::h2_client::Client;
use brisk_behaviour::h3_client::{self as h3, h3_site};
use brisk_behaviour::site::{NAME, setup};
use brisk_testkit::brisk::{base, host};
use brisk_testkit::ca::TestCa;
use brisk_testkit::origin::Origin;

fn tables(app: &Origin) -> String {
    format!(
        r#"
[[host.route]]
path = "/gitea/"
upstream = "app"
strip_prefix = true

[[host.route]]
path = "/posts/"
when.methods = ["POST"]
upstream = "app"

[[host.route]]
path = "/both/"
upstream = "app"

[[host.route]]
path = "/both"
exact = true
respond = {{ body = "without" }}

[[host.route]]
path = "/Über uns/"
upstream = "app"

[[host.route]]
path = "/fixed/"
respond = {{ body = "fixed" }}

[[host.route]]
path = "/exact/"
exact = true
upstream = "app"

[upstream.app]
servers = ["{}"]
"#,
        app.url()
    )
}

#[test]
fn the_path_of_an_upstream_route_without_its_slash_is_redirected_to_it() {
    let app = Origin::fixed("reached");
    let site = h3_site("", &tables(&app));
    for (method, target, status, location) in [
        ("GET", "/gitea", 301, Some("/gitea/")),
        ("GET", "/gitea?a=b&c", 301, Some("/gitea/?a=b&c")),
        ("GET", "/%67itea", 301, Some("/gitea/")),
        ("GET", "//gitea", 301, Some("/gitea/")),
        ("GET", "/x/../gitea", 301, Some("/gitea/")),
        ("POST", "/gitea", 308, Some("/gitea/")),
        ("GET", "/gitea/", 200, None),
        ("GET", "/giteax", 404, None),
        ("GET", "/posts", 404, None),
        ("POST", "/posts", 308, Some("/posts/")),
        ("GET", "/both", 200, None),
        ("GET", "/%C3%9Cber%20uns", 301, Some("/%C3%9Cber%20uns/")),
        ("GET", "/fixed", 404, None),
        ("GET", "/exact", 404, None),
    ] {
        let request = format!("{method} {target} HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 0\r\n\r\n");
        let response = site.connect().request(&request);
        assert_eq!((response.status(), response.header("location")), (status, location), "{method} {target}");
    }
    let mut http2 = Client::connect(&site);
    http2.send(&h2::get(1, "/gitea?q"));
    assert_eq!(http2.status(1), 301);
    let mut http3 = h3::connect(&h3::client(&site), site.brisk.https());
    let response = h3::get(&mut http3, "/gitea?q");
    assert_eq!((response.status(), response.field("location")), ("301", Some("/gitea/?q")));
}

#[test]
fn a_path_that_another_route_has_is_not_redirected() {
    let app = Origin::fixed("reached");
    let tables = tables(&app) + "\n";
    let tables = tables
        .replace("\n[upstream.app]", "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n\n[upstream.app]");
    let site = h3_site("", &tables);
    assert_eq!(site.get("/gitea").text(), "reached");
    assert_eq!(app.last_request().head.line, "GET /gitea HTTP/1.1");
    // With the key, the redirect precedes the shorter path, but no route with exactly this path.
    let tables = tables
        .replace("strip_prefix = true", "strip_prefix = true\nfinal_slash = true")
        .replace("path = \"/both/\"", "path = \"/both/\"\nfinal_slash = true");
    let site = h3_site("", &tables);
    assert_eq!(site.get("/gitea?q").header("location"), Some("/gitea/?q"));
    // A tunnel (RFC 8441) is not redirected.
    let mut http2 = Client::connect(&site);
    http2.send(&h2::connect_with(1, "/gitea", &[]));
    assert_ne!(http2.status(1), 308);
    assert_eq!(app.last_request().head.line, "GET /gitea HTTP/1.1");
    assert_eq!(site.get("/gitea/x").text(), "reached");
    assert_eq!(site.get("/both").text(), "without");
    assert_eq!(site.get("/other").text(), "reached");
}

#[test]
fn restrictions_of_the_host_precede_the_redirect() {
    let app = Origin::fixed("reached");
    let site = h3_site("", &format!("deny = [\"127.0.0.0/8\"]\n{}", tables(&app)));
    assert_eq!(site.get("/gitea").status(), 403);
}

#[test]
fn an_explanation_has_the_redirect() {
    let (ca, app) = (TestCa::new(), Origin::fixed("reached"));
    let hosts = base("") + &host(&[NAME], &[&ca.server(&[NAME]).issue()]);
    let setup = setup().config(&(hosts + &tables(&app)));
    for (request, action) in [
        ("GET https://site.test/gitea?q", "redirect: 301 Moved Permanently to /gitea/?q"),
        ("POST https://site.test/posts", "redirect: 308 Permanent Redirect to /posts/"),
        ("GET https://site.test/posts", "404 Not Found"),
    ] {
        let explained = setup.run("check", &["brisk.toml", "--explain", request]).success();
        assert!(explained.contains(action), "{explained}");
    }
}
