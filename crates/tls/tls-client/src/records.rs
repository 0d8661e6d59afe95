//! TLS 1.3 [`Records`] after a handshake, without the record layer of [`rustls`]: for connections whose sessions are resumed
//! repeatedly.
//!
//! rustls supports such sessions only for callers that process tickets themselves (`rustls::kernel`). Keys, ciphers and
//! sessions are those of rustls.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brisk_tls_base::record::{CIPHERTEXT, HEADER};
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::crypto::cipher::{
    InboundOpaqueMessage, InboundPlainMessage, MessageDecrypter, MessageEncrypter, OutboundChunks,
    OutboundPlainMessage,
};
use rustls::kernel::KernelConnection;
use rustls::{ConnectionTrafficSecrets, ContentType, ProtocolVersion, Tls13CipherSuite};

use super::error::broken;
use super::session::{ManyTimes, SavedSession};

/// Maximum size of incomplete handshake messages; tickets have some hundred bytes.
const MESSAGE_LIMIT: usize = 64 * 1024;

/// Maximum number of [`Records::sessions`] kept until they are taken.
const KEPT: usize = 16;

const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// The record layer of a connection.
pub(super) struct Records {
    origin: Arc<Mutex<KernelConnection<ClientConnectionData>>>,
    suite: &'static Tls13CipherSuite,
    encrypter: Box<dyn MessageEncrypter>,
    write_seq: u64,
    decrypter: Box<dyn MessageDecrypter>,
    read_seq: u64,
    /// Incomplete handshake messages.
    messages: Vec<u8>,
    /// Sessions from the server, from `NewSessionTicket` messages.
    pub(super) sessions: Vec<SavedSession>,
}

impl Records {
    /// Takes over from [`rustls`], which has completed a TLS 1.3 handshake and has nothing to send.
    pub(super) fn new(tls: UnbufferedClientConnection) -> Result<Self, rustls::Error> {
        let suite = tls.negotiated_cipher_suite().and_then(|suite| suite.tls13());
        let suite = suite.ok_or_else(|| rustls::Error::General("not TLS 1.3".into()))?;
        let (secrets, origin) = tls.dangerous_into_kernel_connection()?;
        let (write_seq, secret) = secrets.tx;
        let encrypter = encrypter(suite, secret)?;
        let (read_seq, secret) = secrets.rx;
        let decrypter = decrypter(suite, secret)?;
        let origin = Arc::new(Mutex::new(origin));
        let (messages, sessions) = (Vec::new(), Vec::new());
        Ok(Self { origin, suite, encrypter, write_seq, decrypter, read_seq, messages, sessions })
    }

    /// Decrypts the records in `incoming`. Returns the number of processed bytes and whether the server has closed its
    /// side.
    pub(super) fn open(
        &mut self,
        incoming: &mut [u8],
        outgoing: &mut Vec<u8>,
        take: &mut dyn FnMut(&[u8]),
    ) -> io::Result<(usize, bool)> {
        let mut used = 0;
        while let Some(len) = record_len(&incoming[used..])? {
            let record = &mut incoming[used..used + len];
            used += len;
            if self.open_record(record, outgoing, take)? {
                return Ok((used, true));
            }
        }
        Ok((used, false))
    }

    fn open_record(
        &mut self,
        record: &mut [u8],
        outgoing: &mut Vec<u8>,
        take: &mut dyn FnMut(&[u8]),
    ) -> io::Result<bool> {
        let content = ContentType::from(record[0]);
        // RFC 8446 section 5: dropped without processing.
        if content == ContentType::ChangeCipherSpec {
            return Ok(false);
        }
        let message = InboundOpaqueMessage::new(content, ProtocolVersion::TLSv1_2, &mut record[HEADER..]);
        let InboundPlainMessage { typ, payload, .. } =
            self.decrypter.decrypt(message, self.read_seq).map_err(broken)?;
        self.read_seq += 1;
        match (typ, payload) {
            (ContentType::ApplicationData, payload) => take(payload),
            (ContentType::Handshake, payload) => {
                // RFC 8446 section 5.1: a message may be divided among records.
                self.messages.extend_from_slice(payload);
                self.process_messages(outgoing)?;
            }
            // The level of an alert is ignored (RFC 8446 section 6).
            (ContentType::Alert, [_, 0]) => return Ok(true),
            (ContentType::Alert, [_, description]) => {
                return Err(broken(rustls::Error::AlertReceived((*description).into())));
            }
            _ => return Err(malformed("a message of a type that does not belong here")),
        }
        Ok(false)
    }

    fn process_messages(&mut self, outgoing: &mut Vec<u8>) -> io::Result<()> {
        if self.messages.len() > MESSAGE_LIMIT {
            return Err(malformed("a handshake message that is too long"));
        }
        // Taken, because the loop borrows the messages while it changes keys and sessions.
        let messages = std::mem::take(&mut self.messages);
        let mut rest = messages.as_slice();
        while let &[kind, high, middle, low, ref body @ ..] = rest {
            let len = u32::from_be_bytes([0, high, middle, low]) as usize;
            let Some((body, after)) = body.split_at_checked(len) else { break };
            // RFC 8446 section 4: `new_session_ticket` and `key_update`.
            match kind {
                4 => self.keep(body),
                24 => self.update_keys(body, outgoing)?,
                _ => return Err(malformed("a handshake message that does not belong here")),
            }
            rest = after;
        }
        self.messages = rest.to_vec();
        Ok(())
    }

    fn keep(&mut self, ticket: &[u8]) {
        // A ticket that rustls refuses costs its session only, and not the connection.
        let Some(session) = ManyTimes::session(&self.origin, ticket) else { return };
        if self.sessions.len() == KEPT {
            self.sessions.remove(0);
        }
        self.sessions.push(session);
    }

    /// `KeyUpdate` (RFC 8446 section 4.6.3).
    fn update_keys(&mut self, body: &[u8], outgoing: &mut Vec<u8>) -> io::Result<()> {
        let (seq, secret) = self.origin().update_rx_secret().map_err(broken)?;
        // RFC 8446 section 5.3: the sequence number begins at 0 with each key.
        (self.read_seq, self.decrypter) = (seq, decrypter(self.suite, secret).map_err(broken)?);
        if body == [1] {
            // RFC 8446 section 4.6.3: the reply is the last message under the old keys.
            self.seal(ContentType::Handshake, &[24, 0, 0, 1, 0], outgoing)?;
            let (seq, secret) = self.origin().update_tx_secret().map_err(broken)?;
            (self.write_seq, self.encrypter) = (seq, encrypter(self.suite, secret).map_err(broken)?);
        }
        Ok(())
    }

    /// Appends a record with application data, at most 16 KiB, to `outgoing`.
    pub(super) fn seal_data(&mut self, plaintext: &[u8], outgoing: &mut Vec<u8>) -> io::Result<()> {
        self.seal(ContentType::ApplicationData, plaintext, outgoing)
    }

    /// Appends the alert `close_notify`.
    pub(super) fn seal_close(&mut self, outgoing: &mut Vec<u8>) -> io::Result<()> {
        self.seal(ContentType::Alert, &CLOSE_NOTIFY, outgoing)
    }

    fn seal(&mut self, typ: ContentType, plaintext: &[u8], outgoing: &mut Vec<u8>) -> io::Result<()> {
        let payload = OutboundChunks::Single(plaintext);
        let message = OutboundPlainMessage { typ, version: ProtocolVersion::TLSv1_2, payload };
        let sealed = self.encrypter.encrypt(message, self.write_seq).map_err(broken)?;
        self.write_seq += 1;
        outgoing.extend_from_slice(&sealed.encode());
        Ok(())
    }

    fn origin(&self) -> MutexGuard<'_, KernelConnection<ClientConnectionData>> {
        self.origin.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn encrypter(
    suite: &Tls13CipherSuite,
    secret: ConnectionTrafficSecrets,
) -> Result<Box<dyn MessageEncrypter>, rustls::Error> {
    let (key, iv) = key_and_iv(secret)?;
    Ok(suite.aead_alg.encrypter(key, iv))
}

fn decrypter(
    suite: &Tls13CipherSuite,
    secret: ConnectionTrafficSecrets,
) -> Result<Box<dyn MessageDecrypter>, rustls::Error> {
    let (key, iv) = key_and_iv(secret)?;
    Ok(suite.aead_alg.decrypter(key, iv))
}

fn key_and_iv(
    secret: ConnectionTrafficSecrets,
) -> Result<(rustls::crypto::cipher::AeadKey, rustls::crypto::cipher::Iv), rustls::Error> {
    match secret {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => Ok((key, iv)),
        _ => Err(rustls::Error::General("a cipher that is not known here".into())),
    }
}

/// Length of the first record with its header, if it is complete.
fn record_len(bytes: &[u8]) -> io::Result<Option<usize>> {
    let Some(&[_, _, _, high, low]) = bytes.get(..HEADER) else { return Ok(None) };
    let len = usize::from(u16::from_be_bytes([high, low]));
    if len > CIPHERTEXT {
        return Err(malformed("a record that is too long"));
    }
    Ok(Some(HEADER + len).filter(|len| *len <= bytes.len()))
}

fn malformed(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server sent {what}"))
}
