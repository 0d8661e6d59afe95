//! Routes that applications lead to, single files and media types.

use super::*;

#[track_caller]
fn route(keys: &str, expected: &str) {
    let folder = folder();
    fs::create_dir(folder.path().join("www")).expect("a folder");
    fs::write(folder.path().join("sw.js"), "").expect("a file");
    let text = format!(
        "{LISTENER}{HOST}[[host.route]]\npath = \"/\"\n{keys}[upstream.app]\nservers = [\"http://127.0.0.1:1\"]\n"
    );
    assert_eq!(checked(folder.path(), &text).expect_err(&text), expected, "\nin:\n{text}");
}

#[test]
fn internal_routes_and_those_that_lead_to_them_belong_together() {
    route(
        "upstream = \"app\"\ninternal_redirects = true\n",
        "brisk.toml:8:22: host[0].route[0].internal_redirects: has no effect: no route of the host has internal = true",
    );
    route(
        "static = \"www\"\ninternal = true\n",
        "brisk.toml:8:12: host[0].route[0].internal: nothing leads to this route: write internal_redirects = true in the route \
         whose upstream sends X-Accel-Redirect or X-Sendfile, or its path in error_pages",
    );
    let app = "[[host.route]]\npath = \"/x\"\nupstream = \"app\"\ninternal_redirects = true\n";
    route(
        &format!("static = \"www\"\ninternal = true\naccess_log = false\n{app}"),
        "brisk.toml:9:14: host[0].route[0].access_log: has no effect on an internal route: write it in the route that clients use",
    );
    route(
        &format!(
            "respond = {{}}\n{app}[[host.route]]\npath = \"/y/\"\nupstream = \"app\"\ninternal = true\nfinal_slash = true\n"
        ),
        "brisk.toml:16:15: host[0].route[2].final_slash: has no effect on an internal route: write it in the route that clients use",
    );
    route(
        &format!("static = \"www\"\ninternal = true\npriority = \"low\"\n{app}"),
        "brisk.toml:9:12: host[0].route[0].priority: has no effect on an internal route: write it in the route that clients use",
    );
    route(
        "static = \"www\"\ninternal_redirects = true\n[[host.route]]\npath = \"/x\"\ninternal = true\nrespond = {}\n",
        "brisk.toml:8:22: host[0].route[0].internal_redirects: has no effect without `upstream`",
    );
}

#[test]
fn a_single_file_has_one_path() {
    route(
        "static = \"sw.js\"\n",
        "brisk.toml:7:10: host[0].route[0].static: sw.js is a file: write exact = true too, or the name of a folder",
    );
    route(
        "static = \"sw.js\"\nexact = true\nlisting = true\n",
        "brisk.toml:9:11: host[0].route[0].listing: has no effect on a single file in `static`",
    );
    route(
        "static = \"missing\"\n",
        "brisk.toml:7:10: host[0].route[0].static: the folder missing does not exist",
    );
}

#[test]
fn an_index_names_pages() {
    route(
        "static = \"www\"\nindex = []\n",
        "brisk.toml:8:9: host[0].route[0].index: names no page: remove the line, or write one as \"index.html\"",
    );
}

#[test]
fn a_single_file_may_be_written_later() {
    let folder = folder();
    let route = "[[host.route]]\npath = \"/t\"\nexact = true\nstatic = \"later.html\"\n";
    let resolved = checked(folder.path(), &format!("{LISTENER}{HOST}{route}")).expect("a warning");
    let expected = "later.html does not exist: requests get 404 until it does";
    assert!(resolved.warnings.iter().any(|warning| warning.ends_with(expected)), "{:?}", resolved.warnings);
}

#[test]
fn wrong_media_types_are_named() {
    route(
        "static = \"www\"\ntypes = { \".js\" = \"text/javascript\" }\n",
        "brisk.toml:8:19: host[0].route[0].types.\".js\": \".js\" is not an extension: write the letters after the last dot of a \
         name, as wasm = \"application/wasm\"",
    );
    route(
        "static = \"www\"\ndefault_type = \"text\"\n",
        "brisk.toml:8:16: host[0].route[0].default_type: \"text\" is not a media type: write one as \"text/html; charset=utf-8\"",
    );
    route(
        "respond = {}\ntypes = { js = \"text/javascript\" }\n",
        "brisk.toml:8:9: host[0].route[0].types: has no effect without `static`",
    );
}

#[test]
fn wrong_locations_and_cookies_are_named() {
    route(
        "upstream = \"app\"\nrewrite_location = { app = \"/\" }\n",
        "brisk.toml:8:28: host[0].route[0].rewrite_location.app: \"app\" is not the beginning of a URL: write one as \
         \"http://app:8080/\", or as \"/path/\" for the host itself",
    );
    route(
        "upstream = \"app\"\nrewrite_location = { \"http://app/\" = \"//other/\" }\n",
        "brisk.toml:8:38: host[0].route[0].rewrite_location.\"http://app/\": \"//other/\" begins with a host: write its scheme too",
    );
    route(
        "respond = {}\ncookies = { secure = true }\n",
        "brisk.toml:8:11: host[0].route[0].cookies: has no effect without `upstream`",
    );
    route(
        "upstream = \"app\"\ncookies = { path = { \"/a\" = \"b\" } }\n",
        "brisk.toml:8:29: host[0].route[0].cookies.path.\"/a\": paths of cookies begin with a slash, as { \"/old/\" = \"/new/\" }",
    );
    route(
        "upstream = \"app\"\ncookies = { domain = { a = \"b; c\" } }\n",
        "brisk.toml:8:28: host[0].route[0].cookies.domain.a: \"b; c\" cannot stand in a cookie: it has spaces or \";\"",
    );
    route(
        "upstream = \"app\"\ncookies = { same_site = \"none\", secure = false }\n",
        "brisk.toml:8:25: host[0].route[0].cookies.same_site: browsers refuse cookies with SameSite=None and without Secure: \
         write secure = true",
    );
}

#[test]
fn a_retry_has_statuses_of_errors() {
    refused(
        &format!(
            "{LISTENER}{HOST}upstream = \"http://127.0.0.1:1\"\n[upstream.app]\nservers = [\"http://127.0.0.1:1\"]\nretry = {{ statuses = [503, 200] }}\n"
        ),
        "brisk.toml:8:28: upstream.app.retry.statuses[1]: 200 is not the status of an error: write 400 to 599",
    );
}

#[test]
fn settings_of_a_host_are_those_of_routes_without_their_own() {
    let text = format!(
        "{LISTENER}server.limits.body_size = \"1MiB\"\n{HOST}body_size = \"2MiB\"\nbuffer_request = true\ntimeouts = {{ head = \"5s\", request = \"9s\" }}\n\
         [[host.route]]\npath = \"/\"\nupstream = \"app\"\n\
         [[host.route]]\npath = \"/own\"\nupstream = \"app\"\nbody_size = \"3MiB\"\nbuffer_request = false\ntimeouts = {{ head = \"7s\" }}\n\
         [[host.route]]\npath = \"/files\"\nrespond = {{}}\n\
         [upstream.app]\nservers = [\"http://127.0.0.1:1\"]\n"
    )
    .replace("[server]\n", "")
    .replace("https =", "server.https =");
    let resolved = accepted(&text);
    let routes = &resolved.settings.service.hosts[0].routes;
    let found: Vec<_> = routes
        .iter()
        .map(|route| {
            (
                route.body.limit.map(|limit| limit >> 20),
                route.body.buffers,
                route.timeouts.upstream.head,
                route.timeouts.request,
            )
        })
        .collect();
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(
        found,
        [
            (Some(2), true, seconds(5), seconds(9)),
            (Some(3), false, seconds(7), seconds(9)),
            (Some(2), false, seconds(5), seconds(9)),
        ]
    );
    refused(
        &format!("{LISTENER}{HOST}buffer_request = true\n"),
        "brisk.toml:5:18: host[0].buffer_request: needs a limit for what is buffered: write body_size = \"10MiB\" beside it",
    );
}

#[test]
fn an_internal_route_has_files_or_an_upstream() {
    let app = "[[host.route]]\npath = \"/x\"\nupstream = \"app\"\ninternal_redirects = true\n";
    route(
        &format!("static = \"www\"\ninternal = true\nfallback = {{ upstream = \"app\" }}\n{app}"),
        "brisk.toml:9:12: host[0].route[0].fallback: an internal route has files or an upstream, not both: write a second internal \
         route",
    );
}

#[test]
fn replaced_urls_end_alike() {
    route(
        "upstream = \"app\"\nrewrite_location = { \"http://a.test/\" = \"https://www.example.com\" }\n",
        "brisk.toml:8:41: host[0].route[0].rewrite_location.\"http://a.test/\": \"http://a.test/\" ends with a slash and \
         \"https://www.example.com\" does not: write it at both ends, or the rest of a path joins the last word",
    );
}

#[test]
fn a_single_file_beside_the_configuration_is_found() {
    let text =
        format!("{LISTENER}{HOST}[[host.route]]\npath = \"/a\"\nexact = true\nstatic = \"Cargo.toml\"\n");
    let file = Path::new("brisk-single-file.toml");
    fs::write(file, text).expect("a file");
    let checked = check(file, &Running::default());
    fs::remove_file(file).expect("a file");
    let settings = checked.expect("a configuration").settings;
    let Action::Static(files) = &settings.service.hosts[0].routes[0].action else { panic!("no files") };
    assert_eq!(files.root, Path::new("."));
}
