//! Route of a path, independent of its spelling.

use brisk_behaviour::site::{Site, upstream};
use brisk_testkit::origin::Origin;

/// `/admin` is closed, everything else is the upstream's.
fn guarded(origin: &Origin) -> Site {
    let closed = "\n[[host.route]]\npath = \"/admin\"\nrespond = { status = 403 }\n";
    let open = "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n";
    Site::with(&format!("{closed}{open}{}", upstream(&[&origin.url()])))
}

#[test]
fn no_spelling_of_a_path_dodges_its_route() {
    let origin = Origin::fixed("reached");
    let site = guarded(&origin);
    for (path, status) in [
        ("/admin/secret", 403),
        ("/admin;x/secret", 403),
        ("/admin;x=1;y", 403),
        ("/;x/admin/secret", 403),
        ("/admin%3bx/secret", 403),
        ("/%61dmin/secret", 403),
        ("/a/../admin/secret", 403),
        ("/a;x/../admin/secret", 403),
        ("/admin%2fsecret", 403),
        ("/admin%5csecret", 400),
        ("/admin%5Csecret", 400),
        ("/admin\\secret", 400),
        ("/a/..;/admin/secret", 400),
        ("/a/;x/../admin/secret", 400),
    ] {
        assert_eq!(site.get(path).status(), status, "{path}");
    }
    assert_eq!(origin.requests().len(), 0);
}

#[test]
fn parameters_reach_the_upstream_as_they_came() {
    let origin = Origin::fixed("reached");
    let site = guarded(&origin);
    assert_eq!(site.get("/cars;color=red/list;page=2?x=;").status(), 200);
    assert_eq!(origin.last_request().head.line, "GET /cars;color=red/list;page=2?x=; HTTP/1.1");
}
