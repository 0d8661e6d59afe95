//! `strip_prefix`, `replace_prefix`, `rewrite_path`, paths of servers, and `fallback`.

use brisk_answer::settings::UpstreamPath;

use super::*;

fn route(lines: &str) -> String {
    let group = "[upstream.app]\nservers = [\"http://127.0.0.1:1\"]\n";
    format!("{LISTENER}{group}{HOST}[[host.route]]\npath = \"/api/v1\"\nupstream = \"app\"\n{lines}\n")
}

fn path(lines: &str) -> UpstreamPath {
    let resolved = accepted(&route(lines));
    match &resolved.settings.service.hosts[0].routes[0].action {
        Action::Upstream(upstream) => upstream.path.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_prefix_is_that_of_the_route_unless_another_is_written() {
    for (lines, expected) in [
        ("strip_prefix = true", Some(("/api/v1", None))),
        ("strip_prefix = \"/api\"", Some(("/api", None))),
        ("strip_prefix = \"/\"", Some(("/", None))),
        ("replace_prefix = \"/new\"", Some(("/api/v1", Some("/new")))),
        ("strip_prefix = true\nreplace_prefix = \"/new\"", Some(("/api/v1", Some("/new")))),
        ("strip_prefix = \"/api\"\nreplace_prefix = \"/new/\"", Some(("/api", Some("/new/")))),
        ("strip_prefix = false", None),
        ("", None),
    ] {
        match (path(lines), expected) {
            (UpstreamPath::Replaced { prefix, by }, Some((wanted, other))) => {
                let by = by.as_ref().map(ToString::to_string);
                assert_eq!((prefix.as_str(), by.as_deref()), (wanted, other), "{lines}");
            }
            (UpstreamPath::Whole, None) => {}
            (other, _) => panic!("{lines}: {other:?}"),
        }
    }
}

#[test]
fn a_wrong_path_for_upstreams_is_refused() {
    for (lines, message) in [
        (
            "strip_prefix = \"/ap\"",
            "10:16: host[0].route[0].strip_prefix: \"/ap\" is not a prefix of whole segments of `path`, \"/api/v1\": write such a \
             prefix, or `true` for all of it",
        ),
        (
            "strip_prefix = 1",
            "10:16: host[0].route[0].strip_prefix: expected `true`, `false` or a path in quotes, found the number 1",
        ),
        (
            "strip_prefix = false\nreplace_prefix = \"/x\"",
            "10:16: host[0].route[0].strip_prefix: `false` contradicts `replace_prefix`, which replaces a prefix: remove one of \
             the two",
        ),
        (
            "replace_prefix = \"x\"",
            "10:18: host[0].route[0].replace_prefix: \"x\" is not a path: it begins with a slash, as \"/api\"",
        ),
        (
            "replace_prefix = \"/x?y\"",
            "10:18: host[0].route[0].replace_prefix: \"/x?y\" is not a path: it ends before \"?\" and \"#\", as \"/api\"",
        ),
        (
            "replace_prefix = \"/x y\"",
            "10:18: host[0].route[0].replace_prefix: \"/x y\" is not a path: it has no empty segments, no \".\" and \"..\", and \
             other characters than those of URLs are percent-encoded, as \"/api\"",
        ),
        (
            "rewrite_path = { pattern = \"(a)\", to = \"/$1\" }",
            "10:40: host[0].route[0].rewrite_path.to: \"/$1\" is not a path for the matches: $1 is written {1}",
        ),
        (
            "rewrite_path = { pattern = \"(a)\", to = \"/{2}\" }",
            "10:40: host[0].route[0].rewrite_path.to: \"/{2}\" is not a path for the matches: the expression has no group {2}",
        ),
        (
            "replace_prefix = \"/x\"\nrewrite_path = { pattern = \"(a)\", to = \"/\" }",
            "11:16: host[0].route[0].rewrite_path: and `replace_prefix` cannot both change the path: keep one",
        ),
        (
            "rewrite_path = []",
            "10:16: host[0].route[0].rewrite_path: an empty list has no expression: remove the line, or write { pattern, to }",
        ),
        (
            "final_slash = true",
            "10:15: host[0].route[0].final_slash: has no effect without `upstream` and a `path` that ends with a slash, as \
             \"/api/\"",
        ),
        (
            "rewrite = { pattern = \"(a)\", to = \"/\" }",
            "10:11: host[0].route[0].rewrite: expected `true` or `false` for URLs in documents; for paths of requests, \
             `rewrite_path`, found a table",
        ),
    ] {
        refused(&route(lines), &format!("brisk.toml:{message}"));
    }
}

#[test]
fn a_path_for_upstreams_needs_one() {
    refused(
        &route("strip_prefix = true").replace("upstream = \"app\"", "respond = {}"),
        "brisk.toml:10:16: host[0].route[0].strip_prefix: has no effect without `upstream`",
    );
}

#[test]
fn an_upstream_gets_one_path_of_each_entry() {
    let entry = |to: &str| {
        format!(
            "rewrite_path = [{{ pattern = \"(a)\", to = \"/{{1}}\" }}, {{ pattern = \"(b)\", to = {to} }}]"
        )
    };
    assert!(matches!(path(&entry("\"/x\"")), UpstreamPath::Rewritten(all) if all.len() == 2));
    refused(
        &route(&entry("[\"/{1}\", \"/x\"]")),
        "brisk.toml:10:75: host[0].route[0].rewrite_path[1].to: an upstream gets one path: a list is for files",
    );
}

#[test]
fn servers_of_one_upstream_have_one_path() {
    let text =
        route("").replace("[\"http://127.0.0.1:1\"]", "[\"http://a/x\", \"http://b/x/\", \"http://c\"]");
    refused(
        &text,
        "brisk.toml:4:41: upstream.app.servers[2]: has another path than http://a/x: all servers of an upstream have the same; \
         write a second upstream",
    );
    let groups = accepted(&text.replace("http://c", "http://c/x")).settings.upstreams;
    assert_eq!(groups[0].base_path(), "/x");
}

#[test]
fn files_may_have_another_path() {
    let folder = folder();
    fs::create_dir(folder.path().join("www")).expect("a folder");
    let files = |lines: &str| {
        let rewrite = "static = \"www\"\nrewrite_path = { pattern = \"^/v[0-9]+/(.*)$\", to = \"/{1}\" }";
        checked(folder.path(), &format!("{LISTENER}{HOST}[[host.route]]\npath = \"/\"\n{rewrite}\n{lines}\n"))
    };
    files("").expect("right");
    assert_eq!(
        files("listing = true").expect_err("a list of another folder"),
        "brisk.toml:9:11: host[0].route[0].listing: has no effect with `rewrite_path`, with which the folders have other paths: \
         remove one of the two"
    );
    assert_eq!(
        files("rewrite_files = { pattern = \"^\", to = \"/a\" }").expect_err("two paths"),
        "brisk.toml:9:17: host[0].route[0].rewrite_files: and `rewrite_path` cannot both change the path of files: keep one"
    );
    let several = |to: &str, rest: &str| {
        let rewrite =
            format!("static = \"www\"\nrewrite_files = [{{ pattern = \"^.*$\", to = {to} }}]\n{rest}");
        checked(folder.path(), &format!("{LISTENER}{HOST}[[host.route]]\npath = \"/\"\n{rewrite}\n"))
    };
    let app = "fallback = { upstream = \"app\" }\n[upstream.app]\nservers = [\"http://127.0.0.1:1\"]";
    several("[\"{0}\", \"{0}.html\"]", app).expect("right");
    assert_eq!(
        several("[]", "").expect_err("no path"),
        "brisk.toml:8:43: host[0].route[0].rewrite_files[0].to: an empty list has no path: write one as \"/{1}\""
    );
}

#[test]
fn a_fallback_is_a_file_below_the_folder() {
    let folder = folder();
    fs::create_dir(folder.path().join("www")).expect("a folder");
    let text = |lines: &str| format!("{LISTENER}{HOST}[[host.route]]\npath = \"/\"\n{lines}\n");
    let files =
        |lines: &str| checked(folder.path(), &text(&format!("static = \"www\"\nfallback = \"{lines}\"")));
    for (fallback, message) in [
        ("index.html", "\"index.html\" is not a path: it begins with a slash, as \"/api\""),
        ("/docs/", "\"/docs/\" is no file: write one as \"/index.html\""),
    ] {
        let expected = format!("brisk.toml:8:12: host[0].route[0].fallback: {message}");
        assert_eq!(files(fallback).expect_err(fallback), expected);
    }
    let warnings = files("/index.html").expect("a missing file is a warning").warnings;
    assert!(
        warnings.iter().any(|warning| warning.ends_with("www/index.html: paths without a file get 404")),
        "{warnings:?}"
    );
    fs::write(folder.path().join("www/index.html"), "x").expect("a file");
    assert_eq!(files("/index.html").expect("a file").warnings, Vec::<String>::new());
    refused(
        &text("respond = {}\nlisting = true"),
        "brisk.toml:8:11: host[0].route[0].listing: has no effect without `static`",
    );
    refused(
        &text("respond = {}\nfallback = \"/index.html\""),
        "brisk.toml:8:12: host[0].route[0].fallback: has no effect without `static`",
    );
}
