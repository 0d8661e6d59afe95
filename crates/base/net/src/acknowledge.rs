//! [`acknowledge`], the immediate acknowledgement of received data (`TCP_QUICKACK`).

use tokio::net::TcpStream;

use crate::options;

/// Acknowledges the received data now, instead of up to 40 ms later together with a response. A client with Nagle's
/// algorithm sends nothing more until then. Later acknowledgements are not affected.
///
/// Costs a system call, and a packet if an acknowledgement was due. Errors are ignored, since they concern a connection
/// that is closed.
pub fn acknowledge(stream: &TcpStream) {
    let _ = options::acknowledge(stream);
}
