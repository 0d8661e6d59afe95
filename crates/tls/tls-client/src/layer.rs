//! [`Layer`], the record layer of a connection after its handshake.

use std::io;

use brisk_tls_base::record::{KEY_UPDATE, OVERHEAD, encode};
use rustls::client::UnbufferedClientConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};

use super::error::broken;
use super::handshake::take_alert;
use super::notes::Notes;
use super::records::Records;
use super::session::SavedSession;

/// The record layer of a connection.
#[expect(clippy::large_enum_variant, reason = "nearly all connections are of the large one")]
pub(super) enum Layer {
    /// The record layer of [`rustls`].
    Tls {
        /// The connection.
        tls: Box<UnbufferedClientConnection>,
        /// The [`Notes`] for its callbacks.
        notes: Notes,
        /// Whether the server has closed its side, which [`rustls`] reports only once.
        closed: bool,
    },
    /// The record layer of this crate, for sessions that are resumed repeatedly.
    Records(Box<Records>),
}

impl Layer {
    /// Whether the server had closed its side when the handshake was complete.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self, Self::Tls { closed: true, .. })
    }

    /// Whether received sessions are kept.
    pub(super) fn brings_sessions(&self) -> bool {
        !matches!(self, Self::Tls { notes: Notes { refuses_sessions: true, .. }, .. })
    }

    /// Decrypts the records in `incoming`. Returns the number of processed bytes and whether the server has closed its
    /// side. Appends replies to `outgoing`, including an alert after an error.
    pub(super) fn open(
        &mut self,
        incoming: &mut [u8],
        outgoing: &mut Vec<u8>,
        take: &mut dyn FnMut(&[u8]),
    ) -> io::Result<(usize, bool)> {
        let (tls, notes, closed) = match self {
            Self::Records(records) => return records.open(incoming, outgoing, take),
            Self::Tls { tls, notes, closed } => (tls, notes, closed),
        };
        let mut used = 0;
        loop {
            let rest = &mut incoming[used..];
            let UnbufferedStatus { discard, state, .. } = notes.lend(|| tls.process_tls_records(rest));
            let end = match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(Ok(record)) = traffic.next_record() {
                        take(record.payload);
                    }
                    None
                }
                Ok(ConnectionState::EncodeTlsData(data)) => {
                    encode(data, outgoing);
                    None
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    None
                }
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                    *closed = true;
                    Some(Ok(()))
                }
                Ok(_) => Some(Ok(())),
                Err(error) => Some(Err(broken(error))),
            };
            used += discard;
            match end {
                None => {}
                Some(Ok(())) => return Ok((used, *closed)),
                Some(Err(error)) => {
                    take_alert(tls, outgoing);
                    return Err(error);
                }
            }
        }
    }

    /// Appends a record with `plaintext`, at most 16 KiB, to `outgoing`. `incoming` is unprocessed ciphertext; if it
    /// can be decrypted now, `take` gets its plaintext.
    pub(super) fn seal(
        &mut self,
        plaintext: &[u8],
        incoming: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
        take: &mut dyn FnMut(&[u8]),
    ) -> io::Result<()> {
        if let Self::Records(records) = self {
            return records.seal_data(plaintext, outgoing);
        }
        loop {
            // rustls decrypts pending records before it seals.
            let (used, _) = self.open(incoming, outgoing, take)?;
            incoming.drain(..used);
            let Self::Tls { tls, notes, .. } = self else { return Ok(()) };
            match notes.lend(|| tls.process_tls_records(incoming)).state.map_err(broken)? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    let begin = outgoing.len();
                    // At the limit of its cipher, rustls puts a `KeyUpdate` before the data, and both must
                    // have room.
                    outgoing.resize(begin + KEY_UPDATE + plaintext.len() + OVERHEAD, 0);
                    let sealed = traffic.encrypt(plaintext, &mut outgoing[begin..]);
                    outgoing.truncate(begin + *sealed.as_ref().unwrap_or(&0));
                    return sealed.map(drop).map_err(io::Error::other);
                }
                // Closed by the server, which may still read.
                ConnectionState::Closed => return Err(io::ErrorKind::NotConnected.into()),
                _ => {}
            }
        }
    }

    /// Appends the alert `close_notify` (RFC 8446 section 6.1), if it can still be sent.
    pub(super) fn seal_close(&mut self, incoming: &mut [u8], outgoing: &mut Vec<u8>) -> io::Result<()> {
        let (tls, notes) = match self {
            Self::Records(records) => return records.seal_close(outgoing),
            Self::Tls { tls, notes, .. } => (tls, notes),
        };
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) =
            notes.lend(|| tls.process_tls_records(incoming)).state
        {
            let begin = outgoing.len();
            outgoing.resize(begin + KEY_UPDATE + 2 + OVERHEAD, 0);
            let len = traffic.queue_close_notify(&mut outgoing[begin..]).unwrap_or(0);
            outgoing.truncate(begin + len);
        }
        Ok(())
    }

    /// Each [`SavedSession`] received since the last call.
    pub(super) fn take_sessions(&mut self) -> Vec<SavedSession> {
        match self {
            Self::Records(records) => std::mem::take(&mut records.sessions),
            Self::Tls { notes, .. } => {
                std::mem::take(&mut notes.received).into_iter().map(Into::into).collect()
            }
        }
    }

    /// The newest [`SavedSession`] received; the others stay.
    pub(super) fn take_session(&mut self) -> Option<SavedSession> {
        match self {
            Self::Records(records) => records.sessions.pop(),
            Self::Tls { notes, .. } => notes.received.pop().map(Into::into),
        }
    }
}
