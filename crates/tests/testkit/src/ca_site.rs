//! The web site of a CA: issuer certificates, revocation lists, an OCSP responder, and simulated failures.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::ca::{Leaf, TestCa};
use crate::process::{Process, command, wait_until};

/// Response at a path.
#[derive(Clone, Debug)]
pub enum Answer {
    /// These bytes, with status 200.
    Bytes(Vec<u8>),
    /// The response of the server at this address, which gets the request with its body, at the rest of the path.
    Of(SocketAddr),
    /// No response; the connection stays open.
    Silence,
    /// The connection is closed.
    Hangup,
}

/// A plain HTTP server controlled by a test. Paths are distinguished up to their second slash.
#[derive(Debug)]
pub struct CaSite {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    answers: Mutex<HashMap<String, Answer>>,
    asked: Mutex<Vec<String>>,
    silent: Mutex<Vec<TcpStream>>,
    stopped: AtomicBool,
}

impl CaSite {
    /// Starts a server on a free port. Paths that are not [set](Self::set) close the connection.
    pub fn new() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                if own.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let own = Arc::clone(&own);
                thread::spawn(move || client.and_then(|client| own.serve(client)));
            }
        });
        Self { address, shared }
    }

    /// The URL of a path such as `/ocsp`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Sets the response at a path and below it.
    pub fn set(&self, path: &str, answer: Answer) {
        lock(&self.shared.answers).insert(path.to_owned(), answer);
    }

    /// Number of requests for a path.
    pub fn asked(&self, path: &str) -> usize {
        lock(&self.shared.asked).iter().filter(|asked| *asked == path).count()
    }
}

impl Default for CaSite {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for CaSite {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes the accepting thread; an error means that it is not waiting.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        let head = read_head(&mut client)?;
        let mut body = vec![0; content_length(&head)];
        client.read_exact(&mut body)?;
        let path = head.split(' ').nth(1).unwrap_or_default();
        // RFC 6960 appendix A.1: a GET request to a responder is in the path, behind the path of the URL.
        let place = path.match_indices('/').nth(1).map_or(path, |(end, _)| &path[..end]).to_owned();
        // Counted before the response, so that a client with the response finds the number.
        lock(&self.asked).push(place.clone());
        let answer = lock(&self.answers).get(&place).cloned();
        match answer.unwrap_or(Answer::Hangup) {
            Answer::Bytes(bytes) => {
                let length = bytes.len();
                write!(client, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
                client.write_all(&bytes)
            }
            Answer::Of(server) => {
                let mut server = TcpStream::connect(server)?;
                // A request line without a path would be malformed.
                let rest = if place == path { "/" } else { "" };
                server.write_all(head.replacen(&place, rest, 1).as_bytes())?;
                server.write_all(&body)?;
                io::copy(&mut server, &mut client).map(drop)
            }
            Answer::Silence => {
                // Kept, because a drop would close the connection.
                lock(&self.silent).push(client);
                Ok(())
            }
            Answer::Hangup => Ok(()),
        }
    }
}

fn read_head(client: &mut TcpStream) -> io::Result<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && head.len() < 64 * 1024 {
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn content_length(head: &str) -> usize {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let mut lengths = fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    lengths.next().map_or(0, |(_, length)| length.trim().parse().expect("a number as Content-Length"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The panic of one connection's thread must not fail the others.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts an OCSP responder of `openssl` for leaves of the intermediate of `ca`: `revoked` are revoked since yesterday,
/// `good` are good, others are unknown. `signer` signs: a leaf, or by default the intermediate.
pub fn responder(
    ca: &TestCa,
    good: &[&Leaf],
    revoked: &[&Leaf],
    signer: Option<&Leaf>,
) -> (Process, SocketAddr) {
    listening(&mut ocsp(ca, good, revoked, signer))
}

fn listening(openssl: &mut Command) -> (Process, SocketAddr) {
    let process = Process::start(openssl.args(["-port", "0"]));
    let address = wait_until("openssl ocsp that listens", || {
        // Both streams: the lines may be on either one.
        let output = process.stdout() + &process.stderr();
        let port =
            output.split("ACCEPT ").nth(1)?.split_whitespace().next()?.rsplit(':').next()?.parse().ok()?;
        output.contains("waiting").then_some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    });
    (process, address)
}

/// Starts an OCSP responder of `openssl` that reports the certificate with the hexadecimal `serial` as revoked.
/// `issuer` are the files of its issuer's certificate and key.
pub fn revoking_responder(issuer: &(PathBuf, PathBuf), serial: &str) -> (Process, SocketAddr) {
    let index = issuer.0.with_extension("index");
    fs::write(&index, format!("R\t401231000000Z\t260101000000Z\t{serial}\tunknown\t/CN=revoked\n"))
        .expect("a temporary file");
    let mut openssl = command("openssl");
    openssl.args(["ocsp", "-nmin", "5", "-index"]).arg(index);
    openssl.arg("-CA").arg(&issuer.0).arg("-rsigner").arg(&issuer.0).arg("-rkey").arg(&issuer.1);
    listening(&mut openssl)
}

/// The response of [`responder`] to this request.
pub fn response(
    ca: &TestCa,
    good: &[&Leaf],
    revoked: &[&Leaf],
    signer: Option<&Leaf>,
    request: &[u8],
) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (asked, answer) = (folder.path().join("request"), folder.path().join("response"));
    fs::write(&asked, request).expect("a temporary file");
    let mut openssl = ocsp(ca, good, revoked, signer);
    let output = openssl.arg("-reqin").arg(&asked).arg("-respout").arg(&answer).output().expect("openssl");
    fs::read(&answer).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn ocsp(ca: &TestCa, good: &[&Leaf], revoked: &[&Leaf], signer: Option<&Leaf>) -> Command {
    let (certificate, key) = match signer {
        Some(leaf) => (leaf.chain.clone(), leaf.key.clone()),
        None => ca.intermediate_files(),
    };
    let lines =
        good.iter().map(|leaf| format!("V\t401231000000Z\t\t{:04X}\tunknown\t/CN={0}\n", leaf.serial()));
    let revoked = revoked
        .iter()
        .map(|leaf| format!("R\t401231000000Z\t260101000000Z\t{:04X}\tunknown\t/CN={0}\n", leaf.serial()));
    let index = ca.unique_file("index.txt");
    fs::write(&index, lines.chain(revoked).collect::<String>()).expect("a temporary file");
    let mut openssl = command("openssl");
    openssl.args(["ocsp", "-nmin", "5", "-index"]).arg(index);
    openssl.arg("-CA").arg(ca.intermediate_files().0).arg("-rsigner").arg(certificate).arg("-rkey").arg(key);
    openssl
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use super::*;
    use crate::http1::Message;
    use crate::origin::Origin;

    /// The body used to stay behind, so that a responder waited for it forever.
    #[test]
    fn a_server_behind_a_path_gets_bodies_and_the_rest_of_the_path() {
        let origin = Origin::answering(|request, stream| {
            let line = &request.head.line;
            let body = String::from_utf8_lossy(&request.body);
            write!(stream, "HTTP/1.1 200 OK\r\nX-Request: {line} {body}\r\nContent-Length: 0\r\n\r\n")?;
            stream.shutdown(Shutdown::Both)
        });
        let site = CaSite::new();
        site.set("/ocsp", Answer::Of(origin.address()));
        for (request, expected) in [
            ("POST /ocsp HTTP/1.1\r\ncontent-length: 7\r\n\r\nrequest", "POST / HTTP/1.1 request"),
            ("GET /ocsp/MEI= HTTP/1.1\r\n\r\n", "GET /MEI= HTTP/1.1"),
        ] {
            let mut client = TcpStream::connect(site.address).expect("a connection");
            client.write_all(request.as_bytes()).expect("a server that reads");
            let response = Message::read_response(&mut client).expect("a response");
            assert_eq!(response.head.header("x-request"), Some(expected));
        }
    }
}
