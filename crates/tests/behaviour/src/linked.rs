//! Two network namespaces with a link between them, for tests in which round trips take time.

use std::ffi::OsString;
use std::process::Command;

use brisk_link::{Direction, Link};
use brisk_testkit::programs::program;

use crate::program::built;

/// Creates a link. Prints a message and returns `None` if this machine does not permit one.
pub fn link(half: &str) -> Option<Link> {
    for name in ["ip", "unshare", "nsenter"] {
        program(name);
    }
    let half: Direction = half.parse().expect("a direction");
    let helper = built("brisk-link");
    match Link::start(&helper, half, half) {
        Ok(link) => Some(link),
        Err(error) if brisk_link::is_forbidden(&error) => {
            eprintln!("skipped, since this machine allows no network namespaces or TUN devices: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Command line prefix that runs another command at this end of a link.
pub fn words_before(end: &Command) -> Vec<OsString> {
    let words = std::iter::once(end.get_program()).chain(end.get_args());
    let mut words: Vec<_> = words.map(ToOwned::to_owned).collect();
    words.pop();
    words
}
