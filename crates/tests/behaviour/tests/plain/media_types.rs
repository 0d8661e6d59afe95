//! Media types of files, and routes for a single file.

use brisk_behaviour::site::Site;

const TABLES: &str = r#"
types = { wasm = "application/x-own", JS = "text/x-js" }
default_type = "text/x-default"

[[host.route]]
path = "/"
static = "www"

[[host.route]]
path = "/sub"
static = "www"
types = { js = "text/x-sub; charset=utf-8" }

[[host.route]]
path = "/worker.js"
exact = true
static = "other/sw.js"
precompressed = true

[[host.route]]
path = "/app"
static = "www"
fallback = "/index.html"
"#;

#[test]
fn files_have_the_types_of_route_and_host() {
    let site = Site::custom("", TABLES, |setup| {
        let names = ["index.html", "a.wasm", "a.js", "a.JS", "README", "a.x-unknown", "a.css", "b%20c.js"];
        names
            .into_iter()
            .fold(setup, |setup, name| setup.file(&format!("www/{name}"), "x"))
            .file("other/sw.js", "worker")
    });
    for (path, kind) in [
        ("/", "text/html"),
        ("/index.html", "text/html"),
        ("/a.wasm", "application/x-own"),
        ("/a.js", "text/x-js"),
        ("/a.JS", "text/x-js"),
        ("/b%2520c.js", "text/x-js"),
        ("/README", "text/x-default"),
        ("/a.x-unknown", "text/x-default"),
        ("/a.css", "text/css"),
        ("/sub/a.js", "text/x-sub; charset=utf-8"),
        ("/sub/a.wasm", "application/x-own"),
        ("/worker.js", "text/x-js"),
        ("/worker.js?v=2", "text/x-js"),
        ("/app/users", "text/html"),
    ] {
        let response = site.get(path);
        assert_eq!((response.status(), response.header("content-type")), (200, Some(kind)), "{path}");
    }
    assert_eq!(site.get("/worker.js").text(), "worker");
    for path in ["/worker.js/", "/worker.js/x", "/sw.js", "/other/sw.js"] {
        assert_eq!(site.get(path).status(), 404, "{path}");
    }
    let tag = site.get("/worker.js").header("etag").expect("a tag").to_owned();
    let finished = site.curl(
        &["-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", &format!("If-None-Match: {tag}")],
        "/worker.js",
    );
    assert_eq!(finished.success(), "304");
}
