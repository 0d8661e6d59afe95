//! Gateways and clients of `[[tcp]]`.

use std::net::{SocketAddr, TcpStream};

use brisk_testkit::ca::Leaf;
use brisk_testkit::process::TIMEOUT;

/// Keys of a gateway without HTTP.
pub const ALONE: &str = "server.https = []\nserver.http = []\n";

/// A connection whose reads and writes fail after [`TIMEOUT`].
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a listener");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    stream.set_write_timeout(Some(TIMEOUT)).expect("a socket");
    stream
}

/// The key `certificates` with `leaf`.
pub fn certificate(leaf: &Leaf) -> String {
    format!("certificates = [{{ chain = \"{}\", key = \"{}\" }}]\n", leaf.chain.display(), leaf.key.display())
}

/// Bytes whose order a copy cannot confuse.
pub fn numbered(length: usize) -> Vec<u8> {
    // A plain counter would repeat at each multiple of 256, which buffers have as lengths.
    (0..length).map(|place| ((place / 251) ^ place) as u8).collect()
}
