//! Acknowledging what a client sent before it has to wait for that.

use tokio::net::TcpStream;

use crate::options;

/// Acknowledges what was received now, where the kernel would wait 40 ms for something to send along with it. A client
/// with Nagle's algorithm on sends nothing more until then. Later acknowledgements are as before.
///
/// Costs a system call, and a packet if an acknowledgement was due. An error concerns a connection that is over.
pub fn acknowledge(stream: &TcpStream) {
    let _ = options::acknowledge(stream);
}
