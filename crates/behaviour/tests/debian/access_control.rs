//! Access control beside that of nginx.

use brisk_behaviour::site::Site;
use brisk_testkit::nginx::Nginx;

const BRISK: &str = r#"
deny = ["127.0.0.9"]

[[host.route]]
path = "/"
respond = {}

[[host.route]]
path = "/inside"
allow = ["127.0.0.0/8"]
deny = ["127.0.0.0/29"]
respond = {}

[[host.route]]
path = "/one"
allow = ["127.0.0.9"]
respond = {}
"#;

/// The first rule that matches decides in nginx, so the most specific is first.
const NGINX: &str = "
deny 127.0.0.9;
location /x { alias FOLDER/1k; }
location /inside { alias FOLDER/1k; deny 127.0.0.0/29; allow 127.0.0.0/8; deny all; }
location /one { alias FOLDER/1k; allow 127.0.0.9; deny all; }
";

/// Status of a request over HTTP/2 to a server on this machine.
fn status(site: &Site, options: &[&str], url: &str) -> String {
    let silent = ["--http2", "--output", "/dev/null", "--write-out", "%{http_code} %{http_version}"];
    site.curl_url(&[&silent[..], options].concat(), url).success()
}

#[test]
fn networks_have_the_effect_that_they_have_in_nginx() {
    let site = Site::with(BRISK);
    let nginx = Nginx::https_with(&site.ca.server(&["site.test"]).issue(), NGINX);
    let mut seen = Vec::new();
    for client in ["127.0.0.1", "127.0.0.8", "127.0.0.9"] {
        for path in ["/x", "/inside", "/one"] {
            let url = format!("https://site.test:{}{path}", nginx.address().port());
            let options = ["--interface", client];
            let expected = status(&site, &options, &url);
            assert_eq!(status(&site, &options, &site.url(path)), expected, "{client} {path}");
            seen.push(expected);
        }
    }
    let statuses = ["200 2", "403 2", "403 2", "200 2", "200 2", "403 2", "403 2", "200 2", "200 2"];
    assert_eq!(seen, statuses);
}
