//! TLS 1.3 handshake (RFC 8446) after a `ClientHello` of own bytes.
//!
//! The server's `Finished` is verified. Certificate and signature are not: the probe's regular connection judges them.

use aws_lc_rs::{digest, hmac};
use brisk_handshake_view::message::{
    CERTIFICATE, CERTIFICATE_VERIFY, COMPRESSED_CERTIFICATE, FINISHED, SERVER_HELLO, compressed, extensions,
};
use brisk_handshake_view::open::{Opener, Sealer, expand};
use brisk_report::text::printable;
use brisk_wire::offer::{extension, handshake};
use brisk_wire::registry::CipherSuite;
use brisk_wire::server_flight::{ServerHello, alert_text};
use brisk_wire::vectors::FieldReader;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::hello::Secrets;

/// Maximum bytes of handshake messages from a server.
const MOST: usize = 256 << 10;
/// Maximum bytes of an encrypted record: `2^14 + 256` (RFC 8446 section 5.2).
const RECORD: usize = (1 << 14) + 256;

const ENCRYPTED_EXTENSIONS: u8 = 8;
const CERTIFICATE_REQUEST: u8 = 13;
/// Application-layer protocol settings (ALPS), with Chrome's number.
const ALPS: u16 = 0x44cd;

/// Facts from the server's flight after its hello.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerFlight {
    /// ALPN protocol.
    pub(super) protocol: Option<String>,
    /// Size and algorithm of a `CompressedCertificate` (RFC 8879).
    pub(super) compression: Option<(usize, &'static str)>,
    /// Whether the server accepts [`ALPS`], so that the client sends its own settings.
    takes_settings: bool,
    /// Context of a `CertificateRequest`; `None` if the server requests no certificate.
    asks: Option<Vec<u8>>,
    has_certificate: bool,
    is_signed: bool,
}

impl ServerFlight {
    /// Reads a message before `Finished`.
    fn take(&mut self, kind: u8, body: &[u8]) -> Result<(), String> {
        match kind {
            ENCRYPTED_EXTENSIONS => {
                let block = FieldReader(body).long().ok_or("EncryptedExtensions cannot be read")?;
                for (number, content) in extensions(block) {
                    match number {
                        extension::ALPN => {
                            self.protocol = Some(protocol(content).ok_or("ALPN cannot be read")?);
                        }
                        ALPS => self.takes_settings = true,
                        _ => {}
                    }
                }
            }
            CERTIFICATE_REQUEST => {
                self.asks =
                    Some(FieldReader(body).short().ok_or("CertificateRequest cannot be read")?.to_vec());
            }
            CERTIFICATE => self.has_certificate = true,
            COMPRESSED_CERTIFICATE => {
                self.has_certificate = true;
                let (algorithm, _) = compressed(body).ok_or("CompressedCertificate cannot be read")?;
                self.compression = Some((4 + body.len(), algorithm));
            }
            CERTIFICATE_VERIFY => self.is_signed = true,
            _ => return Err(format!("the server sends message {kind} in its flight")),
        }
        Ok(())
    }

    /// Messages of the client before its `Finished`.
    fn answers(&self) -> Vec<u8> {
        let mut all = Vec::new();
        if self.takes_settings {
            let [high, low] = ALPS.to_be_bytes();
            all.extend(handshake(ENCRYPTED_EXTENSIONS, &[0, 4, high, low, 0, 0]));
        }
        // RFC 8446 section 4.4.2: a client without a certificate sends an empty list, and no
        // `CertificateVerify` after it.
        if let Some(context) = &self.asks {
            all.extend(handshake(CERTIFICATE, &[&[context.len() as u8][..], context, &[0, 0, 0]].concat()));
        }
        all
    }
}

fn protocol(content: &[u8]) -> Option<String> {
    let name = FieldReader(FieldReader(content).long()?).short()?;
    Some(printable(&String::from_utf8_lossy(name)))
}

/// Reassembles handshake messages from the contents of records.
#[derive(Debug, Default)]
pub(super) struct Messages {
    bytes: Vec<u8>,
    taken: usize,
}

impl Messages {
    fn push(&mut self, content: &[u8]) -> Result<(), String> {
        // The sum is limited, not the buffer: complete messages leave the buffer, so an endless flight of
        // short ones would never fill it.
        self.taken += content.len();
        if self.taken > MOST {
            return Err(format!("the server's handshake is longer than {MOST} bytes"));
        }
        self.bytes.extend_from_slice(content);
        Ok(())
    }

    /// Type and all bytes of the next complete message.
    fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let &[kind, a, b, c] = self.bytes.first_chunk()?;
        let length = 4 + u32::from_be_bytes([0, a, b, c]) as usize;
        if self.bytes.len() < length {
            return None;
        }
        let rest = self.bytes.split_off(length);
        Some((kind, std::mem::replace(&mut self.bytes, rest)))
    }
}

/// Messages of the server's flight up to `Finished`. The keys change after `Finished`, so it must end its record (RFC
/// 8446 section 5.1). Also called by the fuzz target.
pub(super) fn flight(
    said: &mut ServerFlight,
    messages: &mut Messages,
    content: &[u8],
) -> Result<Vec<(u8, Vec<u8>)>, String> {
    messages.push(content)?;
    let mut all = Vec::new();
    while let Some((kind, message)) = messages.next() {
        if kind != FINISHED {
            said.take(kind, &message[4..])?;
        }
        all.push((kind, message));
        if kind == FINISHED && !messages.bytes.is_empty() {
            return Err("the server's Finished is not the end of its record".to_owned());
        }
    }
    Ok(all)
}

/// Key schedule (RFC 8446 section 7.1) with the transcript.
struct Schedule {
    hash: hmac::Algorithm,
    digest: &'static digest::Algorithm,
    transcript: Vec<u8>,
    secret: Vec<u8>,
}

impl Schedule {
    fn new(suite: CipherSuite, transcript: Vec<u8>, shared: &[u8]) -> Self {
        let (hash, digest) = match suite {
            CipherSuite::TLS_AES_256_GCM_SHA384 => (hmac::HMAC_SHA384, &digest::SHA384),
            _ => (hmac::HMAC_SHA256, &digest::SHA256),
        };
        let zeros = vec![0; digest.output_len()];
        let mut new = Self { hash, digest, transcript, secret: Vec::new() };
        new.secret = new.extract(&zeros, &zeros);
        new.advance(shared);
        new
    }

    fn extract(&self, salt: &[u8], input: &[u8]) -> Vec<u8> {
        hmac::sign(&hmac::Key::new(self.hash, salt), input).as_ref().to_vec()
    }

    /// Derives the next secret.
    fn advance(&mut self, input: &[u8]) {
        let empty = digest::digest(self.digest, &[]);
        let salt = expand(self.hash, &self.secret, b"derived", empty.as_ref(), self.digest.output_len());
        self.secret = self.extract(&salt, input);
    }

    /// Traffic secret for the current transcript.
    fn traffic(&self, label: &[u8]) -> Vec<u8> {
        expand(self.hash, &self.secret, label, self.transcript_hash().as_ref(), self.digest.output_len())
    }

    fn transcript_hash(&self) -> digest::Digest {
        digest::digest(self.digest, &self.transcript)
    }

    /// Key of the `Finished` for this traffic secret.
    fn finished(&self, secret: &[u8]) -> hmac::Key {
        hmac::Key::new(self.hash, &expand(self.hash, secret, b"finished", &[], self.digest.output_len()))
    }
}

/// A connection after its handshake.
pub(super) struct Secured {
    pub(super) said: ServerFlight,
    pub(super) opener: Opener,
    pub(super) sealer: Sealer,
}

/// Completes the handshake after a `ClientHello` (without record header) up to the client's `Finished`. `read` begins
/// with the server's first byte.
pub(super) async fn complete(
    read: &mut (impl AsyncRead + Unpin),
    write: &mut (impl AsyncWrite + Unpin),
    hello: &[u8],
    secrets: &Secrets,
) -> Result<Secured, String> {
    let (answer, message) = server_hello(read).await?;
    let shared = answer.extension(extension::KEY_SHARE).and_then(|share| secrets.agree(share));
    let shared = shared.ok_or("the server's key share is of no use")?;
    let mut schedule = Schedule::new(answer.suite, [hello, &message].concat(), &shared);
    // RFC 8446 section 7.1: the handshake secrets cover both hellos, so the order of derivation and of
    // additions to the transcript must not change.
    let (client, server) = (schedule.traffic(b"c hs traffic"), schedule.traffic(b"s hs traffic"));
    let mut opener = Opener::new(answer.suite, [&server[..]].into_iter());

    let (mut said, mut messages) = (ServerFlight::default(), Messages::default());
    'flight: loop {
        let content = handshake_content(read, &mut opener).await?;
        for (kind, message) in flight(&mut said, &mut messages, &content)? {
            if kind == FINISHED {
                // RFC 8446 section 4.4.4: a `Finished` covers the messages before it, so it joins the
                // transcript afterwards.
                let key = schedule.finished(&server);
                hmac::verify(&key, schedule.transcript_hash().as_ref(), &message[4..])
                    .map_err(|_| "the server's Finished is wrong")?;
                schedule.transcript.extend(message);
                break 'flight;
            }
            schedule.transcript.extend(message);
        }
    }
    // RFC 8446 section 4.4.2: the hello offers no pre-shared key, so a server has to send both.
    if !said.has_certificate || !said.is_signed {
        return Err("the server proves nothing: it sends no certificate, or no signature".to_owned());
    }
    // RFC 8446 section 7.1: the application secrets end with the server's `Finished`. They are derived before
    // the messages of the client join the transcript.
    schedule.advance(&vec![0; schedule.digest.output_len()]);
    let (next_client, next_server) = (schedule.traffic(b"c ap traffic"), schedule.traffic(b"s ap traffic"));

    let mut own = said.answers();
    schedule.transcript.extend(&own);
    own.extend(handshake(
        FINISHED,
        hmac::sign(&schedule.finished(&client), schedule.transcript_hash().as_ref()).as_ref(),
    ));
    let failed = "keys cannot be made";
    let mut sealer = Sealer::new(answer.suite, &client).ok_or(failed)?;
    // RFC 8446 appendix D.4: a client with a session ID in its hello sends a `change_cipher_spec` before its
    // flight.
    let mut bytes = vec![20, 3, 3, 0, 1, 1];
    bytes.extend(sealer.seal(22, &own).ok_or(failed)?);
    write.write_all(&bytes).await.map_err(|error| format!("the connection breaks: {error}"))?;
    let opener = Opener::new(answer.suite, [&next_server[..]].into_iter());
    Ok(Secured { said, opener, sealer: Sealer::new(answer.suite, &next_client).ok_or(failed)? })
}

/// Header and payload of the next record.
pub(super) async fn record(read: &mut (impl AsyncRead + Unpin)) -> Result<([u8; 5], Vec<u8>), String> {
    let broken = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => "the server closes the connection".to_owned(),
        _ => format!("the connection breaks: {error}"),
    };
    let mut header = [0; 5];
    read.read_exact(&mut header).await.map_err(broken)?;
    let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
    // Checked before the payload is read: a server of another protocol would otherwise keep the client
    // waiting for a length that is no length.
    if !(20..=24).contains(&header[0]) || header[1] != 3 || length > RECORD {
        return Err("the server sends what is no record of TLS 1.3".to_owned());
    }
    let mut payload = vec![0; length];
    read.read_exact(&mut payload).await.map_err(broken)?;
    Ok((header, payload))
}

async fn server_hello(read: &mut (impl AsyncRead + Unpin)) -> Result<(ServerHello, Vec<u8>), String> {
    let mut messages = Messages::default();
    loop {
        let (header, payload) = record(read).await?;
        match header[0] {
            22 => messages.push(&payload)?,
            // Warnings were looked at before.
            20 | 21 => continue,
            _ => return Err("the server sends data before its hello".to_owned()),
        }
        if let Some((kind, message)) = messages.next() {
            // RFC 8446 section 5.1: the keys change after the hello, so bytes behind it in the record were
            // not protected.
            if !messages.bytes.is_empty() {
                return Err("the server's hello is not the end of its record".to_owned());
            }
            let hello = ServerHello::read(&message[4..]).ok().filter(|_| kind == SERVER_HELLO);
            return hello
                .map(|hello| (hello, message))
                .ok_or_else(|| "the server's hello cannot be read".to_owned());
        }
    }
}

/// Content of the next encrypted handshake record.
async fn handshake_content(
    read: &mut (impl AsyncRead + Unpin),
    opener: &mut Opener,
) -> Result<Vec<u8>, String> {
    // A bound of its own: `change_cipher_spec` records never reach `Messages`, so its limit does not count
    // them.
    for _ in 0..MOST / 16 {
        let (header, payload) = record(read).await?;
        match header[0] {
            // RFC 8446 section 5: such a record is dropped without further processing.
            20 => {}
            23 => {
                return match opener.open(header, &payload) {
                    Some((22, content)) => Ok(content),
                    Some((21, alert)) => Err(named(&alert)),
                    Some(_) => Err("the server sends data before its Finished".to_owned()),
                    None => Err("a record of the server cannot be opened".to_owned()),
                };
            }
            21 => return Err(named(&payload)),
            _ => return Err("the server sends a handshake that is not encrypted".to_owned()),
        }
    }
    Err("the server sends no handshake".to_owned())
}

/// An alert as text.
pub(super) fn named(alert: &[u8]) -> String {
    alert.get(1).map_or_else(|| "an alert".to_owned(), |description| alert_text(*description))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_may_be_behind_a_change_of_keys_in_one_record() {
        let (mut said, mut messages) = (ServerFlight::default(), Messages::default());
        let finished = handshake(FINISHED, &[7; 32]);
        assert!(flight(&mut said, &mut messages, &finished).is_ok());
        for rest in [&handshake(4, &[7; 9])[..], &[4]] {
            let content = [&finished[..], rest].concat();
            let ended = flight(&mut ServerFlight::default(), &mut Messages::default(), &content);
            assert!(ended.is_err_and(|reason| reason.contains("Finished")), "{rest:?}");
        }

        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0x13, 1, 0]);
        let hello = handshake(SERVER_HELLO, &body);
        let record = |content: &[u8]| {
            brisk_wire::offer::record(22, brisk_wire::registry::ProtocolVersion::TLS1_2, content)
        };
        assert!(server_hello(&mut &record(&hello)[..]).await.is_ok());
        let ended = server_hello(&mut &record(&[&hello[..], &[8]].concat())[..]).await;
        assert_eq!(ended.err().as_deref(), Some("the server's hello is not the end of its record"));
    }
}
