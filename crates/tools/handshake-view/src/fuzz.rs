//! Properties that hold for any bytes from a server, for tests and for libFuzzer.

use std::time::{Duration, Instant};

use brisk_report::text::printable;
use brisk_wire::registry::ProtocolVersion;

use crate::chain::Chain;
use brisk_wire::vectors::FieldReader;

use crate::message::{self, Ticket};
use crate::recording::{Party, Recording};
use crate::records::ConnectionView;
use crate::steps::steps;

/// Records of a server after one byte, whose lowest bit selects known secrets: no byte is in two records, messages lie within
/// records, steps are in the order of time and every step has a round trip.
pub fn probed_wire(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let (mut recording, began) = (Recording::default(), Instant::now());
    recording.record(Party::Client, began + Duration::from_micros(200), &[22, 3, 1, 0, 4, 1, 0, 0, 0]);
    if first & 1 == 1 {
        recording.add_secret("SERVER_HANDSHAKE_TRAFFIC_SECRET", &[0; 32], &[7; 32]);
        recording.add_secret("SERVER_TRAFFIC_SECRET_0", &[0; 32], &[9; 32]);
    }
    let (early, late) = rest.split_at(rest.len() / 2);
    recording.record(Party::Server, began + Duration::from_millis(1), early);
    recording.record(Party::Server, began + Duration::from_millis(2), late);
    let view = ConnectionView::read(&recording);
    let total: usize = view.server.iter().map(|record| record.len).sum();
    assert!(total <= rest.len());
    for message in view.messages.iter().filter(|message| message.from == Party::Server) {
        assert!(message.records > 0 && message.record + message.records <= view.server.len());
        let _ = message::key_exchange(&message.body);
        let _ = message::compressed(&message.body);
        let _ = Ticket::read(&message.body, ProtocolVersion::TLS1_3);
        let _ = Ticket::read(&message.body, ProtocolVersion::TLS1_2);
    }
    let connected = began + Duration::from_micros(100);
    let rows = steps(&view, began, connected, Duration::from_micros(500));
    assert!(rows.windows(2).all(|pair| pair[0].at <= pair[1].at));
    assert!(rows.iter().all(|row| row.round > 0));
}

/// Certificates, each after its length in two bytes: displayed names contain no control characters.
pub fn probed_chain(bytes: &[u8]) {
    let (mut chain, mut fields) = (Vec::new(), FieldReader(bytes));
    while let Some(certificate) = fields.long() {
        chain.push(certificate.to_vec());
    }
    let read = Chain::read(&chain, 0);
    assert!(read.certificates.len() + read.unreadable <= chain.len());
    for certificate in &read.certificates {
        assert_eq!(printable(&certificate.subject), certificate.subject);
        assert_eq!(printable(&certificate.issuer), certificate.issuer);
    }
}

#[cfg(test)]
mod tests {
    use brisk_testkit::fuzz::drive;

    #[test]
    fn fuzz_probed_wire() {
        let words: &[&[u8]] = &[
            b"\x16\x03\x03\0",
            b"\x17\x03\x03\0",
            b"\x14\x03\x03\0\x01\x01",
            b"\x02\0\0\x2a\x03\x03",
            b"\0\x2b\0\x02\x03\x04",
        ];
        drive("probed_wire", words, super::probed_wire);
    }

    #[test]
    fn fuzz_probed_chain() {
        drive(
            "probed_chain",
            &[b"\x30\x82", b"\x06\x03\x55\x04\x03", b"\x0c\x04a\x1b[2"],
            super::probed_chain,
        );
    }
}
