//! Copies and moves of files by Apache's `mod_dav`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use brisk_behaviour::site::Site;
use brisk_testkit::apache::Apache;

use super::{in_front_of, snippet};

fn apache(directives: &str) -> Apache {
    Apache::start(&["dav", "dav_fs"], directives, |folder| {
        for name in ["dav", "locks"] {
            let folder = folder.join(name);
            fs::create_dir(&folder).expect("a folder");
            fs::set_permissions(&folder, Permissions::from_mode(0o777)).expect("a folder of ours");
        }
    })
}

/// Status of a request by curl, over HTTP/2 and HTTP/1.1 in turn.
fn status(site: &Site, options: &[&str], path: &str) -> String {
    let more = ["--output", "/dev/null", "--write-out", "%{http_code}"];
    site.curl(&[options, &more].concat(), path).success()
}

fn moves_and_copies(site: &Site, version: &str) {
    let destination = |path: &str| format!("Destination: {}", site.url(path));
    let request = |method: &str, path: &str, options: &[&str]| {
        status(site, &[&[version, "--request", method], options].concat(), path)
    };
    let file = site.brisk.folder().join("file");
    fs::write(&file, "x".repeat(300_000)).expect("a temporary file");
    let file = file.display().to_string();
    assert_eq!(request("MKCOL", "/a%20b/", &[]), "201");
    assert_eq!(status(site, &[version, "--upload-file", &file], "/a%20b/one"), "201");
    assert_eq!(request("COPY", "/a%20b/one", &["--header", &destination("/a%20b/tw%c3%b6")]), "201");
    assert_eq!(request("MOVE", "/a%20b/one", &["--header", &destination("/three")]), "201");
    assert_eq!(request("MOVE", "/a%20b/", &["--header", &destination("/c/")]), "201");
    let no_overwrite = ["--header", &destination("/c"), "--header", "Overwrite: F"];
    assert_eq!(request("COPY", "/three", &no_overwrite), "412");
    for (path, expected) in [("/c/tw%c3%b6", "200"), ("/three", "200"), ("/a%20b/", "404"), ("/c/one", "404")]
    {
        assert_eq!(status(site, &[version], path), expected, "{path}");
    }
    let listing = site.curl(&[version, "--request", "PROPFIND", "--header", "Depth: 1"], "/c/").success();
    assert!(listing.contains("<D:href>/c/tw%c3%b6</D:href>"), "{listing}");
    let lock = "<?xml version=\"1.0\"?><D:lockinfo xmlns:D=\"DAV:\"><D:lockscope><D:exclusive/></D:lockscope>\
                <D:locktype><D:write/></D:locktype></D:lockinfo>";
    assert_eq!(request("LOCK", "/three", &["--data", lock]), "200");
    assert_eq!(request("MOVE", "/three", &["--header", &destination("/four")]), "423");
    for path in ["/c/", "/three"] {
        request("DELETE", path, &[]);
    }
}

#[test]
fn webdav_clients_copy_and_move_files_behind_apache() {
    for title in ["WebDAV behind Apache", "WebDAV behind another server"] {
        let apache = apache(snippet(title, "apache"));
        let site = in_front_of(&apache, title);
        moves_and_copies(&site, "--http2");
        // Locks of the first part remain with the file.
        let other = self::apache(snippet(title, "apache"));
        moves_and_copies(&in_front_of(&other, title), "--http1.1");
        assert!(!apache.errors().contains("bad scheme"), "{}", apache.errors());
    }
}

#[test]
fn apache_without_the_scheme_of_its_clients_refuses_their_destinations() {
    // The reason for both settings of the page.
    let apache = apache(snippet("WebDAV behind another server", "apache"));
    let site = in_front_of(&apache, "WebDAV behind Apache");
    fs::write(apache.folder().join("dav/one"), "1").expect("a file");
    let destination = format!("Destination: {}", site.url("/two"));
    assert_eq!(status(&site, &["--request", "COPY", "--header", &destination], "/one"), "502");
}
