//! Applications of Debian behind brisk, as they are distributed, with the snippets of `docs/applications.md`.

mod dokuwiki;
mod subversion;
mod webdav;

use brisk_behaviour::page::{block, section};
use brisk_behaviour::site::Site;
use brisk_testkit::apache::Apache;

const PAGE: &str = include_str!("../../../../../docs/applications.md");

/// The code block of `kind` in a section of the page.
fn snippet(title: &str, kind: &str) -> &'static str {
    block(section(PAGE, title), kind)
}

/// A site with the tables of a section in front of this Apache.
fn in_front_of(apache: &Apache, title: &str) -> Site {
    Site::with(&format!(
        "\n{}",
        snippet(title, "toml").replace("10.0.0.5:8080", &apache.address().to_string())
    ))
}
