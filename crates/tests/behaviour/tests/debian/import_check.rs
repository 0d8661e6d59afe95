//! `brisk import nginx --check`: nginx and brisk run beside each other, and each difference of their responses is shown.

use std::fs;

use brisk_behaviour::site::setup;
use brisk_testkit::process::Finished;

/// The result of a check, whose temporary folder is removed.
fn check(configuration: &str) -> Finished {
    let setup = setup().file("nginx.conf", configuration).file("temporary/kept", "");
    let temporary = setup.folder().join("temporary");
    let setup = setup.environment("TMPDIR", &temporary.display().to_string());
    let finished = setup.run("import", &["nginx", "nginx.conf", "--check"]);
    assert_eq!(fs::read_dir(temporary).expect("a folder").count(), 1, "{}", finished.text());
    finished
}

#[test]
fn a_right_translation_has_the_responses_of_nginx() {
    let finished = check(
        r#"
user www-data;
error_log /var/log/nginx/error.log;
http {
  access_log /var/log/nginx/access.log;
  map $http_x_kind $kind { default plain; beta new; }
  upstream app { server 10.0.0.5:8080; server 10.0.0.6:8080; }
  server { listen 80; listen [::]:80; server_name a.example; return 301 https://$host$request_uri; }
  server {
    listen 443 ssl;
    server_name a.example;
    ssl_certificate missing.pem;
    ssl_certificate_key missing.key;
    location / {
      proxy_pass http://app;
      proxy_set_header Host $host;
      proxy_set_header X-Kind $kind;
      proxy_set_header X-Real-IP $remote_addr;
    }
    location /api/ { proxy_pass https://10.0.0.7:8443/v1/; }
    location = /ping { default_type text/plain; return 200 "pong\n"; }
    location = /old { return 301 /new; }
    location ~ ^/user/(\d+)$ { return 302 /profile/$1; }
    location = /closed { return 403; }
  }
}
"#,
    );
    let text = finished.text();
    assert!(text.contains("because brisk redirects plain HTTP to HTTPS with 308"), "{text}");
    assert!(text.contains("requests have the same response"), "{text}");
    finished.success();
}

#[test]
fn a_difference_is_shown_with_both_responses() {
    // Without `root`, nginx has the page of its package, and it types texts by the path.
    let finished = check("server { listen 80; server_name a.example; location /echo/ { return 200 $uri; } }");
    let text = finished.text();
    let found = "GET http://a.example/ at 0.0.0.0:80\n    status: nginx \"200\", brisk \"404\"\n";
    assert!(text.contains(found), "{text}");
    let found =
        "/echo/a%20b.html at 0.0.0.0:80\n    content-type: nginx \"text/html\", brisk \"text/plain\"\n";
    assert!(text.contains(found), "{text}");
    assert!(!finished.status.success() && text.contains("responses differ"), "{text}");
}

#[test]
fn a_configuration_that_nginx_refuses_has_its_message() {
    let finished =
        check("server { listen 80; server_name a.example; location / { return 204; } no_such_directive; }");
    let text = finished.text();
    assert!(!finished.status.success() && text.contains("unknown directive"), "{text}");
}

#[test]
fn servers_listen_at_spare_ports_only() {
    let finished = check("server { server_name a.example; location / { return 204; } }");
    assert!(finished.text().contains("requests have the same response"), "{}", finished.text());
    finished.success();
    let finished = check("server { listen unix:/run/a.sock; location / { return 204; } }");
    assert!(!finished.status.success(), "nothing is compared: {}", finished.text());
}
