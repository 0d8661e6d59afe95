//! Properties that hold for any bytes from a server, for tests and for libFuzzer.

use crate::{http3, resolve};

/// A response of a name server: parsed, or refused with a reason.
pub fn probed_https_record(bytes: &[u8]) {
    if let Err(reason) = resolve::read(bytes) {
        assert!(!reason.is_empty());
    }
}

/// Bytes of a server after a hello like Chrome's: unencrypted, or the content of its encrypted records.
pub fn probed_browser(bytes: &[u8]) {
    crate::browser::fuzz::server(bytes);
}

/// A datagram that may be a `Version Negotiation` packet, after a byte with the number of bytes that are the connection IDs.
pub fn probed_versions(bytes: &[u8]) {
    let Some((&length, rest)) = bytes.split_first() else { return };
    let (ids, packet) = rest.split_at(rest.len().min(usize::from(length)));
    let (destination, source) = ids.split_at(ids.len() / 2);
    if let Some(versions) = http3::read_versions(packet, destination, source) {
        assert!(4 * versions.len() + ids.len() <= packet.len());
    }
}

/// Lines of `Alt-Svc`: services with a port and without an empty protocol, at most one for each five bytes (`h=":1"` has six).
pub fn probed_alt_svc(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let services = http3::alternative_services(text.lines());
    assert!(services.iter().all(|service| service.port > 0 && !service.protocol.is_empty()));
    assert!(5 * services.len() <= bytes.len());
}

#[cfg(test)]
mod tests {
    use brisk_testkit::fuzz::drive;

    #[test]
    fn fuzz_probed_alt_svc() {
        let words: &[&[u8]] = &[b"h3=\":443\"", b", ", b"; ma=5", b"\\\"", b"\n", b"clear", b"\"[::1]:1\""];
        drive("probed_alt_svc", words, super::probed_alt_svc);
    }

    #[test]
    fn fuzz_probed_https_record() {
        let words: &[&[u8]] = &[b"\0\x41\0\x01", b"\xc0\x0c", b"\0\x01\0\x03\x02h2", b"\0\x05\0\x02\0\0"];
        drive("probed_https_record", words, super::probed_https_record);
    }

    #[test]
    fn fuzz_probed_versions() {
        let words: &[&[u8]] = &[b"\x04abcd\x80\0\0\0\0\x02cd\x02ab\0\0\0\x01", b"k3C\xcf", b"\xff\0\0\x1d"];
        drive("probed_versions", words, super::probed_versions);
    }

    #[test]
    fn fuzz_probed_browser() {
        let words: &[&[u8]] = &[
            b"\0\x16\x03\x03\0",
            b"\x02\0\0\x76\x03\x03",
            b"\x13\x01\0\0\x2e\0\x2b\0\x02\x03\x04\0\x33\0\x24\0\x1d\0\x20",
            b"\x17\x03\x03\0\x20",
            b"\x08\0\0\x0b\0\x09\0\x10\0\x05\0\x03\x02h2",
            b"\x0d\0\0\x03\0\0\0",
            b"\x19\0\0\x02\0\x02",
        ];
        drive("probed_browser", words, super::probed_browser);
    }
}
