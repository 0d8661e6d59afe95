//! Lists of files in folders by brisk and by nginx.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use brisk_behaviour::h2;
use brisk_behaviour::h2_client::Client;
use brisk_behaviour::site::{NAME, Site};
use brisk_testkit::http1::Message;
use brisk_testkit::nginx::Nginx;

const ROUTES: &str = "\n[[host.route]]\npath = \"/files\"\nstatic = \"www\"\nlisting = true\n\
                      \n[[host.route]]\npath = \"/closed\"\nstatic = \"www\"\n";

const NAMES: [&str; 10] = [
    "a.txt",
    "b c.txt",
    "d&e.txt",
    "f<g>.html",
    "h\"i'j",
    "k%41",
    "l?m#n",
    "\u{fc}.txt",
    "deep/inner.txt",
    "deep/more/x",
];

fn get(mut stream: impl Read + Write, target: &str) -> Message {
    write!(stream, "GET {target} HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n").expect("a server");
    Message::read_response(&mut stream).expect("a response")
}

/// The links of a page, without `./`.
fn links(page: &str) -> BTreeSet<String> {
    let links = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    links.map(|link| link.strip_prefix("./").unwrap_or(link).to_owned()).collect()
}

/// Every link leads to the same content by both servers.
fn contents(
    mut fetch: impl FnMut(&str) -> Message,
    folder: &str,
    links: &BTreeSet<String>,
) -> BTreeSet<String> {
    let files = links.iter().filter(|link| !link.ends_with('/'));
    files
        .map(|link| {
            let response = fetch(&format!("{folder}{link}"));
            assert_eq!(response.status(), 200, "{link}");
            response.text()
        })
        .collect()
}

#[test]
fn folders_have_the_files_that_nginx_lists() {
    let site = Site::custom("", ROUTES, |setup| {
        NAMES
            .iter()
            .fold(setup, |setup, name| setup.file(&format!("www/{name}"), name))
            .file("www/.hidden", "x")
    });
    let root = site.brisk.folder().join("www");
    fs::create_dir(root.join("empty")).expect("a folder");
    let root = root.display();
    let nginx = Nginx::http_with(&format!("location /files/ {{ alias {root}/; autoindex on; }}"));
    let from_nginx = |path: &str| get(TcpStream::connect(nginx.address()).expect("nginx"), path);
    for folder in ["/files/", "/files/deep/", "/files/deep/more/", "/files/empty/"] {
        let (ours, theirs) = (get(site.connect(), folder), from_nginx(folder));
        assert_eq!((ours.status(), theirs.status()), (200, 200), "{folder}");
        assert_eq!(ours.header("content-type"), Some("text/html; charset=utf-8"));
        let (ours, theirs) = (links(&ours.text()), links(&theirs.text()));
        assert_eq!(ours.len(), theirs.len(), "{folder}: {ours:?} and {theirs:?}");
        let own = contents(|path| get(site.connect(), path), folder, &ours);
        assert_eq!(own, contents(from_nginx, folder, &theirs), "{folder}");
        let folders = |links: &BTreeSet<String>| {
            links.iter().filter(|link| link.ends_with('/')).cloned().collect::<Vec<_>>()
        };
        assert_eq!(folders(&ours), folders(&theirs));
    }
    for path in ["/files/none/", "/files/a.txt/", "/files/.hidden/", "/closed/", "/closed/deep/"] {
        assert_eq!(get(site.connect(), path).status(), 404, "{path}");
    }
    for (path, status, location) in [("/files", 301, "/files/"), ("/files/deep", 307, "/files/deep/")] {
        let response = get(site.connect(), path);
        assert_eq!((response.status(), response.header("location")), (status, Some(location)), "{path}");
    }
    let mut client = Client::connect(&site);
    client.send(&h2::get(1, "/files/deep/"));
    assert_eq!(client.status(1), 200);
    site.brisk.write("www/deep/index.html", "own page");
    assert_eq!(get(site.connect(), "/files/deep/").text(), "own page");
}

#[test]
fn a_route_without_its_slash_is_redirected_as_by_nginx() {
    let site = Site::custom("", ROUTES, |setup| setup.file("www/index.html", "start"));
    let root = site.brisk.folder().join("www");
    let nginx =
        Nginx::http_with(&format!("absolute_redirect off; location /closed {{ alias {}; }}", root.display()));
    for target in ["/closed", "/closed?a=b&c", "/closed/", "/closed/index.html"] {
        let theirs = get(TcpStream::connect(nginx.address()).expect("nginx"), target);
        let ours = get(site.connect(), target);
        let facts = |response: &Message| (response.status(), response.header("location").map(str::to_owned));
        assert_eq!(facts(&ours), facts(&theirs), "{target}");
    }
}
