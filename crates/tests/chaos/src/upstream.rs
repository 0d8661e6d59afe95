//! The upstream server of a run: a process of its own, so that it can be killed and stopped.
//!
//! The path of a request states the response: `/body/LENGTH/ID`, `/slow/MILLISECONDS/ID` (a body of [`SLOW`] bytes), `/cut/ID` (a
//! body that ends early), `/echo/ID` (the sum of the uploaded bytes). All bytes of a body depend on the id.

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use brisk_testkit::http1::Message;

/// Header with the id of the request in a response.
pub const ID: &str = "x-chaos-id";

/// Length of the body of `/slow` in bytes.
pub const SLOW: usize = 100;

/// Length of the body that `/cut` announces, and the part that it sends, in bytes.
const CUT: (usize, usize) = (1_000, 400);

/// The bytes of the body with this id.
pub fn body(id: u64, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + 8);
    // SplitMix64, whose states differ for all ids and places.
    let mut state = id.wrapping_mul(0xd134_2543_de82_ef95);
    while bytes.len() < length {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bytes.extend_from_slice(&(mixed ^ (mixed >> 27)).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// The response to an upload with this id: id, length, and a sum (FNV-1a) of the bytes.
pub fn receipt(id: u64, upload: &[u8]) -> String {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let sum = upload.iter().fold(0xcbf2_9ce4_8422_2325, step);
    format!("{id} {} {sum:016x}", upload.len())
}

/// Serves on this port of 127.0.0.1 until the process is killed. Adds the id of each whole upload to the file `uploads`, before the
/// response.
pub fn serve(port: u16, uploads: &Path) -> io::Result<()> {
    let uploads = Arc::new(File::options().create(true).append(true).open(uploads)?);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    for stream in listener.incoming() {
        let (Ok(stream), uploads) = (stream, Arc::clone(&uploads)) else { continue };
        // An error means that the gateway has left.
        thread::spawn(move || converse(stream, &uploads));
    }
    Ok(())
}

fn converse(mut stream: TcpStream, uploads: &File) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BufReader::new(stream.try_clone()?);
    while let Some(request) = Message::read_request(&mut input)? {
        let path = request.head.line.split(' ').nth(1).unwrap_or_default();
        let words: Vec<_> = path.split('/').skip(1).collect();
        match words[..] {
            ["health"] => respond(&mut stream, 0, b"ok")?,
            ["body", length, id] => {
                respond(&mut stream, number(id), &body(number(id), number(length) as usize))?;
            }
            ["slow", time, id] => {
                thread::sleep(Duration::from_millis(number(time)));
                respond(&mut stream, number(id), &body(number(id), SLOW))?;
            }
            ["echo", id] => {
                // One call of the system for each line: other processes append too.
                let mut uploads = uploads;
                uploads.write_all(format!("{id}\n").as_bytes())?;
                respond(&mut stream, number(id), receipt(number(id), &request.body).as_bytes())?;
            }
            ["cut", id] => {
                let head = head(number(id), CUT.0);
                return stream.write_all(&[head.as_bytes(), &body(number(id), CUT.1)].concat());
            }
            _ => stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?,
        }
    }
    Ok(())
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_default()
}

fn head(id: u64, length: usize) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n{ID}: {id}\r\nContent-Length: {length}\r\n\r\n"
    )
}

fn respond(stream: &mut TcpStream, id: u64, body: &[u8]) -> io::Result<()> {
    stream.write_all(&[head(id, body.len()).as_bytes(), body].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_and_receipts_depend_on_their_id_and_length() {
        assert_eq!(body(7, 100)[..50], body(7, 50));
        assert!(body(7, 50) != body(8, 50) && body(7, 0).is_empty());
        assert_ne!(receipt(7, b"one"), receipt(7, b"two"));
        assert_ne!(receipt(7, b"one"), receipt(8, b"one"));
    }
}
