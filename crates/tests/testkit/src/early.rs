//! Clients with early data whose flights the test controls.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use rustls::client::{ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, NamedGroup};

use crate::client::TlsStream;
use crate::process::TIMEOUT;
use crate::uninterrupted::Uninterrupted;

const RECORD_HEADER: usize = 5;
const APPLICATION_DATA: u8 = 23;

/// A `ClientHello` that offers a session, and early data, not sent yet.
pub struct FirstFlight {
    tls: ClientConnection,
    bytes: Vec<u8>,
}

impl FirstFlight {
    /// Uses the latest session of `config`; `None` if no session permits early data.
    pub(crate) fn new(config: &ClientConfig, name: &str, early: &[u8]) -> Option<Self> {
        let name = ServerName::try_from(name.to_owned()).expect("a host name");
        let mut tls = ClientConnection::new(Arc::new(config.clone()), name).expect("a client configuration");
        // Before `write_tls`, so that the flight contains the early data too.
        tls.early_data()?.write_all(early).expect("room for early data");
        let mut bytes = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut bytes).expect("a vector takes everything");
        }
        Some(Self { tls, bytes })
    }

    /// The bytes of the flight.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Sends the flight and nothing after it.
    pub fn send(self, address: SocketAddr) -> io::Result<Unfinished> {
        let mut tcp = TcpStream::connect(address)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(TIMEOUT))?;
        tcp.set_write_timeout(Some(TIMEOUT))?;
        tcp.write_all(&self.bytes)?;
        Ok(Unfinished { tls: self.tls, tcp })
    }
}

/// A connection whose client has sent early data and not finished its handshake. Reads yield data sent before that.
pub struct Unfinished {
    tls: ClientConnection,
    tcp: TcpStream,
}

impl Unfinished {
    /// Reads the server's flight. Returns whether the server accepted the early data.
    pub fn is_accepted(&mut self) -> io::Result<bool> {
        while self.tls.is_handshaking() {
            self.receive()?;
        }
        Ok(self.tls.is_early_data_accepted())
    }

    /// Finishes the handshake.
    pub fn finish(self) -> io::Result<TlsStream> {
        TlsStream::complete(self.tls, self.tcp)
    }

    fn receive(&mut self) -> io::Result<()> {
        if self.tls.read_tls(&mut Uninterrupted(&self.tcp))? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.tls.process_new_packets().map_err(io::Error::other).map(drop)
    }
}

impl Read for Unfinished {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.tls.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.receive()?,
                result => return result,
            }
        }
    }
}

/// Accepts a connection in place of the server, and reads the client's data up to its first record of early data,
/// without a response.
pub fn intercept(listener: &TcpListener) -> (TcpStream, Vec<u8>) {
    let (mut client, _) = listener.accept().expect("a client");
    client.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let (mut flight, mut at) = (Vec::new(), 0);
    loop {
        let needed = at + RECORD_HEADER;
        read_to(&mut client, &mut flight, needed);
        let (kind, len) = (flight[at], u16::from_be_bytes([flight[at + 3], flight[at + 4]]));
        at = needed + usize::from(len);
        read_to(&mut client, &mut flight, at);
        if kind == APPLICATION_DATA {
            return (client, flight);
        }
    }
}

fn read_to(client: &mut TcpStream, flight: &mut Vec<u8>, len: usize) {
    let have = flight.len();
    flight.resize(len, 0);
    client.read_exact(&mut flight[have..]).expect("a client that sends early data");
}

/// Keeps the first sessions that it receives and ignores later ones, so that the sessions age.
pub(crate) struct FirstSessions(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    hint: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    tls13: VecDeque<Tls13ClientSessionValue>,
    closed: bool,
}

impl FirstSessions {
    pub(crate) fn resumption() -> Resumption {
        Resumption::store(Arc::new(Self(Mutex::default())))
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().expect("nothing panics here")
    }
}

impl ClientSessionStore for FirstSessions {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.lock().hint = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.lock().hint
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.lock().tls12.get_or_insert(value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.lock().tls12.clone()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.lock().tls12 = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut kept = self.lock();
        if !kept.closed {
            kept.tls13.push_back(value);
        }
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let mut kept = self.lock();
        let first = kept.tls13.pop_front();
        // From the first use on: a resumed connection issues new tickets, which would be younger than the
        // test needs.
        kept.closed |= first.is_some();
        first
    }
}

impl fmt::Debug for FirstSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FirstSessions")
    }
}

impl fmt::Debug for FirstFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FirstFlight").field(&self.bytes.len()).finish()
    }
}

impl fmt::Debug for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Unfinished").field(&self.tcp).finish()
    }
}
