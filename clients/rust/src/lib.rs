//! TLS client sessions that survive a restart of the application.
//!
//! A [`SessionStore`] keeps sessions in a folder, sealed with AES-256-GCM, separately for each network and server. A
//! [`Client`] uses the store with OpenSSL: the first connection after a restart resumes, which saves a round trip with
//! TLS 1.2, and with early data (0-RTT) another one.
//!
//! - Each file is removed before its session is used, so that a TLS 1.3 ticket is used once, also by several processes.
//! - A file that was modified, renamed, or copied is ignored: a full handshake follows, without an error.
//! - Early data is sent only by [`Client::connect_with_early_data`], because an attacker can replay it.
//!
//! ```no_run
//! # use std::net::TcpStream;
//! # use openssl::ssl::{SslConnector, SslMethod};
//! use sealed_sessions::{Client, SessionStore};
//!
//! let store = SessionStore::open("/var/lib/app/sessions".as_ref())?.on_network("office");
//! let client = Client::new(SslConnector::builder(SslMethod::tls_client())?, store)?;
//! let stream = TcpStream::connect(("example.com", 443))?;
//! let request = b"GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n";
//! let mut connection = client.connect_with_early_data("example.com", 443, stream, request)?;
//! std::io::copy(&mut connection.stream, &mut std::io::stdout())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod client;
mod early;
mod store;

pub use client::{Client, Connection, Error};
pub use early::EarlyData;
pub use store::{LONGEST_LIFE, SESSIONS_PER_SERVER, SessionStore};
