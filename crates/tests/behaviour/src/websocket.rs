//! Upstreams that speak WebSocket.

use std::io;

use brisk_testkit::origin::Origin;

/// WebSocket server that returns every message.
pub fn echo() -> Origin {
    Origin::raw(|stream| {
        let mut socket = tungstenite::accept(stream).map_err(io::Error::other)?;
        loop {
            match socket.read() {
                Ok(message) if message.is_text() || message.is_binary() => {
                    socket.send(message).map_err(io::Error::other)?;
                }
                Ok(_) => {}
                // The client has closed: the regular end of each test.
                Err(_) => return Ok(()),
            }
        }
    })
}
