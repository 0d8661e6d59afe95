//! Sends one request with a stored session: `fetch FOLDER CA-FILE HOST ADDRESS PATH [early] [tls12]`.
//!
//! Prints the kind of handshake, the outcome of early data, the status and the time until the first byte of the response.

use std::error::Error;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Instant;

use openssl::ssl::{SslConnector, SslMethod, SslVersion};
use sealed_sessions::{Client, EarlyData, SessionStore};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let [folder, ca, host, address, path, options @ ..] = &words[..] else {
        return Err("usage: fetch FOLDER CA-FILE HOST ADDRESS PATH [early] [tls12]".into());
    };
    let has = |option: &str| options.iter().any(|word| word == option);
    let mut builder = SslConnector::builder(SslMethod::tls_client())?;
    builder.set_ca_file(ca)?;
    if has("tls12") {
        builder.set_max_proto_version(Some(SslVersion::TLS1_2))?;
    }
    let client = Client::new(builder, SessionStore::open(Path::new(folder))?)?;
    let address: SocketAddr = address.parse()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");

    let started = Instant::now();
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut connection = if has("early") {
        client.connect_with_early_data(host, address.port(), stream, request.as_bytes())?
    } else {
        let mut connection = client.connect(host, address.port(), stream)?;
        connection.stream.ssl_write(request.as_bytes())?;
        connection
    };
    let mut response = vec![0; 4096];
    let length = connection.stream.ssl_read(&mut response)?;
    let time = started.elapsed();
    let mut rest = Vec::new();
    let _ = connection.stream.read_to_end(&mut rest);
    let handshake = if connection.is_resumed { "resumed" } else { "full" };
    let early = match connection.early_data {
        EarlyData::NotSent => "not-sent",
        EarlyData::Accepted => "accepted",
        EarlyData::Rejected => "rejected",
    };
    let text = String::from_utf8_lossy(&response[..length]);
    let status = text.split(' ').nth(1).unwrap_or("none");
    println!("{handshake} {early} {status} {:.0} ms", time.as_secs_f64() * 1000.0);
    Ok(())
}
