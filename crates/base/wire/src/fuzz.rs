//! Properties that hold for any bytes, for tests and for libFuzzer.

mod h3;

use fluke_hpack::{Decoder as OtherDecoder, Encoder as OtherEncoder};

use crate::client_hello::{ClientHello, Extent, HelloError, Progress, extent};
use crate::fields::lines::{Line, Lines};
use crate::h2::frame::{FrameHead, HeadersPayload, WriteFrames, flag, without_padding};
use crate::h2::hpack::{DEFAULT_TABLE, Decoded, Decoder, Encoder, HpackError, OVERHEAD};
use crate::h2::settings::PeerSettings;
use crate::h3::qpack;
use crate::priority::Priority;
use crate::server_flight::{self, Flight, FlightError, Part, ServerHello};
use crate::suites;

pub use h3::h3_frames;

const LIMIT: usize = 2048;

/// Reader of a `ClientHello`: no bytes make it panic, its result does not depend on how the bytes are split, and a hello in
/// records has the same fields as the message without them.
pub fn client_hello(bytes: &[u8]) {
    let whole = ClientHello::read(bytes, LIMIT);
    if let Ok(Extent::Complete { wire, message }) = extent(bytes, LIMIT) {
        assert!(message < wire && wire <= bytes.len() && wire <= LIMIT);
    }
    if let Ok(Progress::Complete(hello)) = &whole {
        assert!(!hello.versions.is_empty() && !hello.suites.is_empty());
    }
    same_without_records(bytes, &whole);
    let Some((&length, _)) = bytes.split_last() else {
        return;
    };
    match ClientHello::read(&bytes[..bytes.len().min(length.into())], LIMIT) {
        Ok(Progress::Incomplete) => {}
        Ok(complete) => assert_eq!(whole, Ok(complete)),
        Err(_) => assert!(whole.is_err()),
    }
}

/// The payloads of the records at the start of `bytes`, and `bytes` itself, read as messages without records.
fn same_without_records(bytes: &[u8], whole: &Result<Progress, HelloError>) {
    let (mut message, mut rest) = (Vec::new(), bytes);
    while let [22, _, _, high, low, after @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(after.len());
        message.extend_from_slice(&after[..length]);
        rest = &after[length..];
    }
    if matches!(whole, Ok(Progress::Complete(_))) {
        assert_eq!(ClientHello::read_message(&message, LIMIT), *whole);
    }
    if let Ok(Progress::Complete(hello)) = ClientHello::read_message(bytes, LIMIT) {
        let size = 4 + usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
        let record = |part: &[u8]| [&[22, 3, 1], (part.len() as u16).to_be_bytes().as_slice(), part].concat();
        let records: Vec<u8> = bytes[..size].chunks(97).flat_map(record).collect();
        assert_eq!(ClientHello::read(&records, 2 * LIMIT), Ok(Progress::Complete(hello)));
    }
}

/// Readers of a server's response to a hello: no bytes make them panic, their result does not depend on how the bytes
/// are split, and they hold no more bytes than were received.
pub fn server_flight(bytes: &[u8]) {
    fn parts(bytes: &[u8], piece: usize) -> (Vec<Part>, Option<FlightError>) {
        let mut flight = Flight::new(LIMIT);
        let mut parts = Vec::new();
        for piece in bytes.chunks(piece.max(1)) {
            flight.push(piece);
            assert!(flight.waiting() <= bytes.len());
            loop {
                match flight.next() {
                    Ok(Some(part)) => parts.push(part),
                    Ok(None) => break,
                    Err(error) => return (parts, Some(error)),
                }
            }
        }
        (parts, None)
    }
    let whole = parts(bytes, bytes.len());
    let piece = bytes.last().map_or(1, |&last| usize::from(last) % 16 + 1);
    assert_eq!(parts(bytes, piece), whole);
    let mut suite = &suites::all()[0];
    let mut version = crate::registry::ProtocolVersion::TLS1_2;
    for part in &whole.0 {
        let Part::Handshake(kind, body) = part else { continue };
        assert!(body.len() <= LIMIT);
        match kind {
            2 => {
                if let Ok(hello) = ServerHello::read(body) {
                    assert!(hello.session_id.len() <= 32);
                    let _ = hello.alpn();
                    suite = suites::find(hello.suite).unwrap_or(suite);
                    version = hello.version;
                }
            }
            4 => drop(server_flight::session_ticket(body)),
            11 => {
                if let Ok(all) = server_flight::certificates(body) {
                    assert!(all.iter().map(Vec::len).sum::<usize>() <= body.len());
                }
            }
            12 => drop(server_flight::key_exchange(body, suite, version)),
            22 => drop(server_flight::staple(body)),
            _ => drop(server_flight::scts(body)),
        }
    }
    let _ = server_flight::sslv2_accepts(bytes);
}

/// The payloads of frames: no bytes make their readers panic, padding is taken off within its bounds, and heads are read
/// as they are written.
pub fn http2_frame(bytes: &[u8]) {
    let Some((head, payload)) = bytes.split_first_chunk() else { return };
    let read = FrameHead::read(head);
    assert_eq!(FrameHead::read(&read.to_bytes()), read);
    let mut written = Vec::new();
    written.frame(read.kind, read.flags, read.stream, payload);
    assert_eq!(written.split_off(9), payload);
    if let Ok(data) = without_padding(read.flags, payload) {
        assert!(payload.len() - data.len() <= 256);
    }
    if let Ok(headers) = HeadersPayload::read(read.flags, payload) {
        assert_eq!(headers.dependency.is_some(), read.has(flag::PRIORITY));
    }
    let mut settings = PeerSettings::default();
    if let Ok(least_table) = settings.apply(payload) {
        assert!(settings.initial_window < 1 << 31 && least_table <= settings.header_table);
    }
    assert!(Priority::read(payload).urgency < 8);
}

fn decoded(
    decoder: &mut Decoder<Line>,
    block: &[u8],
    most: usize,
) -> Result<(Vec<Line>, Decoded), HpackError> {
    let mut lines = Lines::hpack();
    let decoded = decoder.decode(block, most, usize::MAX, &mut lines)?;
    Ok((lines.lines, decoded))
}

/// Header blocks, each after one byte with its length: the result equals that of another decoder, as far as the other
/// one follows the RFC. Limits leave the table unchanged, and both decoders read the re-encoded fields.
pub fn hpack(bytes: &[u8]) {
    let (mut decoder, mut limited) = (Decoder::new(DEFAULT_TABLE), Decoder::new(DEFAULT_TABLE));
    let (mut encoder, mut back, mut other_back) =
        (Encoder::new(), Decoder::new(DEFAULT_TABLE), OtherDecoder::new());
    let (mut other, mut other_encoder) = (OtherDecoder::new(), OtherEncoder::new());
    let mut from_other = Decoder::new(DEFAULT_TABLE);
    let mut rest = bytes;
    while let Some((&length, after)) = rest.split_first() {
        let (block, after) = after.split_at(after.len().min(length.into()));
        rest = after;
        let found = decoded(&mut decoder, block, usize::MAX);
        let cut = decoded(&mut limited, block, 2);
        let Ok((lines, whole)) = found else {
            assert_eq!(cut.err(), found.err());
            return;
        };
        let sizes = lines.iter().map(|(name, value)| name.len() + value.len() + OVERHEAD);
        assert_eq!(sizes.sum::<usize>(), whole.size);
        let (first, part) = cut.expect("a block that can be decoded");
        assert_eq!(
            (part.size, part.is_whole, &first[..]),
            (whole.size, lines.len() <= 2, &lines[..lines.len().min(2)])
        );
        let theirs = other.decode(block);
        if lines.is_empty() {
            // The other decoder refuses a block that only changes the size of the table.
            continue;
        }
        assert_eq!(theirs.ok().as_ref(), Some(&lines), "the other decoder");
        encoder.resize([0, 60, 4096, 1 << 20][usize::from(length) % 4]);
        let mut again = Vec::new();
        encoder.begin(&mut again);
        for (name, value) in &lines {
            encoder.field(name, value, &mut again);
        }
        assert_eq!(decoded(&mut back, &again, usize::MAX).expect("what was encoded").0, lines);
        assert_eq!(other_back.decode(&again).expect("what was encoded"), lines);
        let theirs = other_encoder.encode(lines.iter().map(|(name, value)| (&name[..], &value[..])));
        assert_eq!(decoded(&mut from_other, &theirs, usize::MAX).expect("what the other encoded").0, lines);
    }
}

/// Field sections: no bytes make the decoder panic, limits change neither the size nor the first fields, and re-encoded
/// fields are read as they were.
pub fn qpack(bytes: &[u8]) {
    let decoded = |section: &[u8], most| {
        let mut lines = Lines::qpack();
        let decoded = qpack::Decoder::default().decode(section, most, usize::MAX, &mut lines);
        decoded.map(|decoded| (lines.lines, decoded))
    };
    let (found, cut) = (decoded(bytes, usize::MAX), decoded(bytes, 2));
    let Ok((lines, whole)) = found else {
        assert_eq!(cut.err(), found.err());
        return;
    };
    let sizes = lines.iter().map(|(name, value)| name.len() + value.len() + OVERHEAD);
    assert_eq!(sizes.sum::<usize>(), whole.size);
    let (first, part) = cut.expect("a section that can be decoded");
    assert_eq!((part.size, part.is_whole), (whole.size, lines.len() <= 2));
    assert_eq!(first, lines[..lines.len().min(2)]);
    let mut again = Vec::new();
    qpack::begin(&mut again);
    for (name, value) in &lines {
        qpack::field(name, value, &mut again);
    }
    assert_eq!(decoded(&again, usize::MAX), Ok((lines, whole)));
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_client_hello() {
        brisk_testkit::fuzz::drive(
            "client_hello",
            &[b"\0\x33", b"\0\x2b", b"\0\x0a", b"\x16\x03\x01"],
            super::client_hello,
        );
    }

    #[test]
    fn fuzz_server_flight() {
        brisk_testkit::fuzz::drive(
            "server_flight",
            &[b"\x16\x03\x03", b"\x15\x03\x01\0\x02\x02\x28", b"\x02\0\0", b"\x0c\0\0", b"\xc0\x2f"],
            super::server_flight,
        );
    }

    #[test]
    fn fuzz_http2_frame() {
        brisk_testkit::fuzz::drive(
            "http2_frame",
            &[b"u=1, i", b"\0\x04\0\x01\0\0", b"\0\x05"],
            super::http2_frame,
        );
    }

    #[test]
    fn fuzz_hpack() {
        brisk_testkit::fuzz::drive(
            "hpack",
            &[
                b"\x82\x87\x84",
                b"\x40\x03x-a\x011",
                b"\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
                b"\xbe",
                b"\x3f\xe1\x1f",
            ],
            super::hpack,
        );
    }

    #[test]
    fn fuzz_qpack() {
        brisk_testkit::fuzz::drive(
            "qpack",
            &[b"\0\0", b"\x51\x0b/index.html", b"\xd1\xd7", b"\xff\x23", b"\x23x-a\x011"],
            super::qpack,
        );
    }
}
