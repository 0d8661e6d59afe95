//! Upstreams of a trial: servers that respond with the request that they received.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Bytes of a head, or of a body, that are read at most.
const LARGEST: u64 = 1 << 20;

/// Timeout for a part of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Line of a response in place of `Host` with the name or the address of the upstream.
pub(super) const OWN_HOST: &str = "host: (of proxy_pass)";

/// Listens at the ports of `upstreams`. Responses have the name of the upstream, the request line, and the headers `forwarded`.
/// `false` if another program listens at a port. The threads end with the process.
pub(super) fn start(upstreams: &BTreeMap<String, u16>, forwarded: &[String]) -> bool {
    let forwarded: Arc<[String]> = forwarded.into();
    for (name, port) in upstreams {
        let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, *port)) else { return false };
        let (name, forwarded) = (name.clone(), Arc::clone(&forwarded));
        thread::spawn(move || {
            // A thread for each connection, because a server may open the next one before it closes the last.
            for stream in listener.incoming().flatten() {
                let (name, forwarded) = (name.clone(), Arc::clone(&forwarded));
                // A client that has gone is no error of the trial.
                thread::spawn(move || drop(respond(&stream, &name, &forwarded)));
            }
        });
    }
    true
}

fn respond(stream: &TcpStream, name: &str, forwarded: &[String]) -> io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut reader = BufReader::new(stream);
    let mut head = (&mut reader).take(LARGEST);
    let mut line = String::new();
    head.read_line(&mut line)?;
    // The version is that of each server.
    let request = line.rsplit_once(' ').map_or("", |(request, _)| request).to_owned();
    let own = stream.local_addr()?.to_string();
    let (mut lines, mut length, mut is_chunked) = (Vec::new(), 0, false);
    loop {
        line.clear();
        if head.read_line(&mut line)? == 0 || line.trim_end().is_empty() {
            break;
        }
        let Some((key, value)) = line.trim_end().split_once(':') else { continue };
        let (key, value) = (key.to_ascii_lowercase(), value.trim());
        match &*key {
            "content-length" => length = value.parse().unwrap_or(0),
            "transfer-encoding" => is_chunked = true,
            _ => {}
        }
        if key == "host" && (value == name || value == own) {
            lines.push(OWN_HOST.to_owned());
        } else if key == "host" || forwarded.contains(&key) {
            lines.push(format!("{key}: {value}"));
        }
    }
    lines.sort();
    lines.splice(..0, [name.to_owned(), request.clone()]);
    lines.push(if is_chunked { "chunked".to_owned() } else { format!("{length} bytes") });
    io::copy(&mut (&mut reader).take(length.min(LARGEST)), &mut io::sink())?;
    let text = lines.join("\n");
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    )?;
    if request.starts_with("HEAD ") { Ok(()) } else { stream.write_all(text.as_bytes()) }
}
