//! The script that the gateway inserts into pages.

use brisk_behaviour::site::{NAME, Site};

const NAVIGATION: &str = "Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n";

/// The `304` had the strong tag of the page without the script, under which caches then kept the page with it.
#[test]
fn a_304_has_the_tag_of_the_page_with_the_script_for_every_request() {
    let tables = "visits = true\n\n[[host.route]]\npath = \"/\"\nstatic = \"www\"\n";
    let page = "<!doctype html><html><head><title>x</title></head><body></body></html>";
    let site = Site::custom("", tables, |setup| setup.file("www/index.html", page));
    let ask =
        |headers: &str| site.connect().request(&format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n{headers}\r\n"));
    let page = ask(NAVIGATION);
    assert!(page.text().contains("<script async"), "{}", page.text());
    let weak = page.header("etag").expect("a tag");
    let strong = weak.strip_prefix("W/").expect("a weak tag");
    // A navigation, and a request of a script, which is not measured.
    for kind in [NAVIGATION, ""] {
        for tag in [weak, strong] {
            let confirmed = ask(&format!("{kind}If-None-Match: {tag}\r\n"));
            assert_eq!((confirmed.status(), confirmed.header("etag")), (304, Some(tag)), "{kind}");
        }
    }
}
