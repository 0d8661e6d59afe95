//! A server [`Handshake`] on memory buffers, without sockets. The [`Acceptor`](crate::Acceptor) transfers the bytes.

use std::io;
use std::sync::Arc;

use brisk_tls_base::record::encode;
use rustls::HandshakeKind;
use rustls::server::UnbufferedServerConnection;
use rustls::sign::CertifiedKey;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};

use crate::early_data;
use crate::notes::{self, HandshakeInput, Notes};
use crate::suspend::Suspendable;

/// A handshake between two reads from the client.
pub(crate) struct Handshake {
    /// Boxed: it is large and is moved into the stream later.
    pub(crate) tls: Box<UnbufferedServerConnection>,
    /// Unprocessed bytes from the client; [`rustls`] keeps offsets into them.
    pub(crate) incoming: Vec<u8>,
    /// Records for the client, made by [`rustls`].
    pub(crate) outgoing: Vec<u8>,
    /// Early data, and application data that arrived with the client's last flight.
    pub(crate) plaintext: Vec<u8>,
    /// Whether the client has closed its side.
    pub(crate) peer_closed: bool,
    /// Whether a `HelloRetryRequest` was sent.
    pub(crate) hello_retry: bool,
    /// Whether early data was accepted, even if none has arrived.
    pub(crate) early_data: bool,
    /// Bytes of early data received.
    pub(crate) early_bytes: u64,
    input: HandshakeInput,
    certificate: Option<Arc<CertifiedKey>>,
}

/// State of a [`Handshake`] after processing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The client must send more.
    Incomplete,
    /// Early data is available. The client must send more, and the server's flight may still have to be sent.
    EarlyData,
    Complete,
    /// The client closed before the handshake was complete.
    Closed,
}

/// The result of [`Handshake::advance`].
pub(crate) type Advanced = (Box<Handshake>, Result<Progress, rustls::Error>);

impl Handshake {
    /// Creates a handshake with the bytes `incoming`, which contain at least the whole `ClientHello`. `input` and `certificate`
    /// are for its callbacks.
    pub(crate) fn new(
        tls: Box<UnbufferedServerConnection>,
        incoming: Vec<u8>,
        input: HandshakeInput,
        certificate: Option<Arc<CertifiedKey>>,
    ) -> Self {
        Self {
            tls,
            incoming,
            outgoing: Vec::new(),
            plaintext: Vec::new(),
            peer_closed: false,
            hello_retry: false,
            early_data: false,
            early_bytes: 0,
            input,
            certificate,
        }
    }

    /// Processes the received bytes. Callbacks may wait: the future is then pending, and the socket is free.
    pub(crate) async fn advance(self: Box<Self>) -> io::Result<(Advanced, Notes)> {
        // A call for each flight, so that a handshake that waits for its client holds no stack.
        Ok(Suspendable::new(move || self.process())?.await)
    }

    fn process(mut self: Box<Self>) -> Advanced {
        notes::update(|notes| notes.input = self.input);
        notes::show(self.certificate.clone());
        let mut used = 0;
        let result = loop {
            let UnbufferedStatus { discard, state, .. } =
                self.tls.process_tls_records(&mut self.incoming[used..]);
            let done = match state {
                Ok(ConnectionState::EncodeTlsData(data)) => {
                    encode(data, &mut self.outgoing);
                    None
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    None
                }
                // Unreachable by construction, since early data is then disabled: the last line of defence against
                // replays.
                Ok(ConnectionState::ReadEarlyData(_)) if !self.input.early_data => {
                    Some(Err(rustls::Error::General("early data with a session that others may have".into())))
                }
                Ok(ConnectionState::ReadEarlyData(mut early)) => {
                    self.early_data = true;
                    // Never an error: rustls has decrypted the records already.
                    while let Some(Ok(record)) = early.next_record() {
                        self.early_bytes += record.payload.len() as u64;
                        self.plaintext.extend_from_slice(record.payload);
                    }
                    None
                }
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(Ok(record)) = traffic.next_record() {
                        self.plaintext.extend_from_slice(record.payload);
                    }
                    None
                }
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                    self.peer_closed = true;
                    self.tls.is_handshaking().then_some(Ok(Progress::Closed))
                }
                Ok(_) => Some(Ok(self.progress())),
                Err(error) => Some(Err(error)),
            };
            used += discard;
            if let Some(result) = done {
                break result;
            }
        };
        self.incoming.drain(..used);
        self.hello_retry |= self.tls.handshake_kind() == Some(HandshakeKind::FullWithHelloRetryRequest);
        self.early_data |= self.input.early_data && early_data::accepted(&self.tls, &self.outgoing);
        if result.is_err() {
            take_alert(&mut self.tls, &mut self.outgoing);
        }
        (self, result)
    }

    /// The [`Progress`] once all bytes of `incoming` have been processed.
    fn progress(&self) -> Progress {
        if !self.tls.is_handshaking() {
            Progress::Complete
        } else if self.plaintext.is_empty() {
            Progress::Incomplete
        } else {
            Progress::EarlyData
        }
    }
}

/// Collects the alert that [`rustls`] has prepared after an error. The client's bytes are not passed again, because after
/// an error they must not be read twice.
pub(crate) fn take_alert(tls: &mut UnbufferedServerConnection, outgoing: &mut Vec<u8>) {
    while tls.wants_write() {
        let Ok(ConnectionState::EncodeTlsData(data)) = tls.process_tls_records(&mut []).state else { return };
        encode(data, outgoing);
    }
}
