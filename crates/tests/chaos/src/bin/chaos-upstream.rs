//! `chaos-upstream PORT FILE`: the upstream server of the chaos tests.

use std::env;
use std::io;
use std::path::PathBuf;

fn main() -> io::Result<()> {
    let mut words = env::args_os().skip(1);
    let port = words.next().and_then(|word| word.to_str()?.parse().ok());
    match (port, words.next()) {
        (Some(port), Some(file)) => brisk_chaos::upstream::serve(port, &PathBuf::from(file)),
        _ => Err(io::Error::other("usage: chaos-upstream PORT FILE")),
    }
}
