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
         whose upstream sends X-Accel-Redirect or X-Sendfile",
    );
    let app = "[[host.route]]\npath = \"/x\"\nupstream = \"app\"\ninternal_redirects = true\n";
    route(
        &format!("static = \"www\"\ninternal = true\naccess_log = false\n{app}"),
        "brisk.toml:9:14: host[0].route[0].access_log: has no effect on an internal route: write it in the route that clients use",
    );
    route(
        "static = \"www\"\ninternal_redirects = true\n[[host.route]]\npath = \"/x\"\ninternal = true\nrespond = {}\n",
        "brisk.toml:8:22: host[0].route[0].internal_redirects: has no effect without `upstream`",
    );
}
