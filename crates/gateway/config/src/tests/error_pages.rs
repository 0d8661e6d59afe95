//! `error_pages` of hosts and routes, and `maintenance` of hosts.

use std::collections::BTreeMap;

use brisk_answer::settings::{ErrorPage, ErrorPages, PageSource, RouteStatus};
use http::StatusCode;

use super::*;

fn text(host: &str, route: &str) -> String {
    let action = "[[host.route]]\npath = \"/\"\nrespond = { status = 403 }\n";
    format!("{LISTENER}{HOST}{host}\n{action}{route}\n")
}

#[test]
fn a_route_has_its_own_pages_and_those_of_its_host_for_other_statuses() {
    let folder = folder();
    for name in ["403.html", "host.html", "route.json", "class.html"] {
        fs::write(folder.path().join(name), name).expect("a page");
    }
    let page = |name: &'static str| ErrorPage::new(Path::new(name), name);
    let pages = |by_status: &[(u16, &'static str)], client_errors: Option<&'static str>| {
        let by_status = by_status.iter();
        let by_status: BTreeMap<_, _> = by_status
            .map(|(status, name)| (StatusCode::from_u16(*status).expect("a status"), page(name)))
            .collect();
        (by_status, client_errors.map(page))
    };
    let host = "error_pages = { 403 = \"403.html\", 404 = \"host.html\", 5xx = \"host.html\" }";
    for (route, expected) in [
        ("", pages(&[(403, "403.html"), (404, "host.html")], None)),
        ("error_pages = { 404 = \"route.json\" }", pages(&[(403, "403.html"), (404, "route.json")], None)),
        ("error_pages = { 4xx = \"class.html\" }", pages(&[], Some("class.html"))),
        (
            "error_pages = { 4xx = \"class.html\", 404 = \"route.json\" }",
            pages(&[(404, "route.json")], Some("class.html")),
        ),
    ] {
        let resolved = checked(folder.path(), &text(host, route)).expect(route);
        let settings = &resolved.settings.service.hosts[0];
        let ErrorPages { by_status, client_errors, server_errors, intercept } =
            settings.routes[0].error_pages.as_deref().expect("pages");
        let file = |source: &PageSource| source.file().cloned().expect("a file");
        let by_status: BTreeMap<_, _> =
            by_status.iter().map(|(status, page)| (*status, file(page))).collect();
        assert_eq!((by_status, client_errors.as_ref().map(file)), expected, "{route}");
        assert_eq!((server_errors.as_ref().map(file), *intercept), (Some(page("host.html")), false));
        assert_eq!(settings.error_pages.as_ref().expect("pages").by_status.len(), 2);
        let files = &resolved.settings.server.files;
        assert!(files.iter().any(|file| file.ends_with("403.html")), "pages are watched: {files:?}");
    }
    let resolved = checked(folder.path(), &text(host, "error_pages = {}")).expect("an empty table");
    let settings = &resolved.settings.service.hosts[0];
    assert!(settings.routes[0].error_pages.is_none(), "an empty table switches the pages off");
    assert!(settings.error_pages.is_some());
}

#[test]
fn a_wrong_page_is_refused() {
    let folder = folder();
    fs::write(folder.path().join("large.html"), vec![b'x'; (1 << 20) + 1]).expect("a page");
    for (pages, column, message) in [
        ("404 = \"none.html\"", 23, "404: cannot read none.html: No such file or directory (os error 2)"),
        (
            "404 = \"large.html\"",
            23,
            "404: large.html is larger than 1 MiB, and error pages are kept in memory",
        ),
        (
            "200 = \"large.html\"",
            23,
            "200: is not the status of an error: write one from 400 to 599, \"4xx\" or \"5xx\" for all of a class, or `intercept`",
        ),
        (
            "404 = 1",
            23,
            "404: expected the path of a file in quotes, or { route = \"/PATH\" }, found the number 1",
        ),
        ("404 = { route = \"x\" }", 33, "404.route: \"x\" is no path of this host: it begins with one slash"),
        (
            "404 = { route = \"/{pth}\" }",
            33,
            "404.route: \"/{pth}\" is no path of this host: {pth} is no variable; known here: ",
        ),
        ("404 = { route = \"/x\", status = 100 }", 48, "404.status: 100 is out of range: write 200 to 599"),
        (
            "404 = { route = \"/x\", status = \"own\" }",
            48,
            "404.status: expected a status, or \"route\" for that of the route, found the text \"own\"",
        ),
        ("intercept = true", 29, "intercept: has no effect without `upstream`"),
    ] {
        let error =
            checked(folder.path(), &text("", &format!("error_pages = {{ {pages} }}"))).expect_err(pages);
        let expected = format!("brisk.toml:9:{column}: host[0].route[0].error_pages.{message}");
        assert!(error.starts_with(&expected), "{error}\n{expected}");
    }
}

#[test]
fn a_page_is_the_response_of_a_route_that_exists() {
    let routes = |page: &str| {
        format!(
            "{LISTENER}{HOST}error_pages = {{ 404 = {{ route = \"{page}\", status = \"route\" }} }}\n\
             [[host.route]]\npath = \"/pages\"\nrespond = {{}}\n\
             [[host.route]]\npath = \"/one\"\nexact = true\ninternal = true\nrespond = {{}}\n"
        )
    };
    let resolved = accepted(&routes("/one?a={request.path}"));
    let pages = resolved.settings.service.hosts[0].error_pages.clone().expect("pages");
    let page = &pages.by_status[&StatusCode::NOT_FOUND];
    assert!(matches!(page, PageSource::Route(route) if route.status == RouteStatus::Route), "{page:?}");
    refused(
        &routes("/other"),
        "brisk.toml:5:33: host[0].error_pages.404.route: no route of the host has the path /other\n\
         brisk.toml:12:12: host[0].route[1].internal: nothing leads to this route: write internal_redirects = true in the route \
         whose upstream sends X-Accel-Redirect or X-Sendfile, or its path in error_pages",
    );
    refused(
        &routes("/pages/x{request.path}"),
        "brisk.toml:12:12: host[0].route[1].internal: nothing leads to this route: write internal_redirects = true in the route \
         whose upstream sends X-Accel-Redirect or X-Sendfile, or its path in error_pages",
    );
}

#[test]
fn maintenance_has_a_file_that_need_not_exist() {
    let maintenance = |keys: &str| text(&format!("maintenance = {{ {keys} }}"), "");
    let resolved = accepted(&maintenance("file = \"off\", allow = [\"10.0.0.0/8\"]"));
    let settings = resolved.settings.service.hosts[0].maintenance.clone().expect("maintenance");
    assert_eq!((settings.retry_after, settings.allow.len()), (Duration::from_mins(1), 1));
    for (keys, message) in [
        ("page = \"x\"", "5:15: host[0].maintenance: the key `file` is missing"),
        (
            "file = \"off\", retry_after = \"2d\"",
            "5:45: host[0].maintenance.retry_after: 2d is out of range: write 1s to 1d",
        ),
        (
            "file = \"off\", page = \"none.html\"",
            "5:38: host[0].maintenance.page: cannot read none.html: No such file or directory (os error 2)",
        ),
    ] {
        refused(&maintenance(keys), &format!("brisk.toml:{message}"));
    }
}
