//! [`FirstFlight`], the size of a server's first flight with a certificate. If it exceeds the initial window of a new
//! connection, the handshake takes an additional round trip.

use std::cell::OnceCell;

use brisk_certs::{Certificate, Staple};
use brisk_keys::KeyAlgorithm;
use rustls::compress::{BROTLI_COMPRESSOR, CompressionLevel};

/// Initial congestion window of TCP: 10 segments (RFC 6928) of 1,460 bytes.
pub const TCP_FLIGHT: usize = 10 * 1460;

/// Bytes that a QUIC server may send to an unvalidated client: three times a datagram of 1,200 bytes (RFC 9000 section
/// 8.1).
pub const QUIC_FLIGHT: usize = 3 * 1200;

/// Other messages of a first flight in TLS 1.3: `ServerHello` without its key share, `change_cipher_spec`,
/// `EncryptedExtensions` with ALPN, `Finished`.
const OTHERS: usize = 95 + 6 + 19 + 52;

/// The server's `key_share` for X25519, and for X25519 with ML-KEM-768.
const X25519: usize = 32;
const HYBRID: usize = 1120;

/// Overhead and maximum content of an encrypted record.
const RECORD: usize = 22;
const RECORD_CONTENT: usize = 16 * 1024;

/// Size of the first flight of a full handshake in TLS 1.3.
#[derive(Debug)]
pub struct FirstFlight {
    /// Body of the `Certificate` message with chain and staple.
    message: Vec<u8>,
    compressed: OnceCell<usize>,
    /// All other bytes, with [`X25519`].
    others: usize,
}

impl FirstFlight {
    /// The flight of a handshake with `certificate` and `staple`.
    pub fn of(certificate: &Certificate, staple: Option<&Staple>) -> Self {
        // `CertificateVerify`: 8 bytes of header, scheme and length, then the signature (RFC 8446 section
        // 4.4.3).
        let others = OTHERS + X25519 + 8 + signature(certificate.algorithm);
        Self { message: message(certificate, staple), compressed: OnceCell::new(), others }
    }

    /// Length of the `Certificate` message.
    pub fn certificate(&self) -> usize {
        self.message.len() + 4
    }

    /// Length of the `CompressedCertificate` message with brotli (RFC 8879), if that is shorter. The first call
    /// compresses, which takes some milliseconds.
    pub fn compressed(&self) -> usize {
        let compress = || {
            let compressed = BROTLI_COMPRESSOR.compress(self.message.clone(), CompressionLevel::Amortized);
            // RFC 8879 section 4: the algorithm and two lengths precede the compressed bytes.
            compressed.map_or(self.certificate(), |bytes| bytes.len() + 4 + 8).min(self.certificate())
        };
        *self.compressed.get_or_init(compress)
    }

    /// Maximum size: for a client without certificate compression that has a key share for X25519 with ML-KEM-768.
    pub fn most(&self) -> usize {
        sealed(self.certificate() + self.others + HYBRID - X25519)
    }

    /// Minimum size: for a client with certificate compression and a key share for X25519. See
    /// [`compressed`](Self::compressed) for its cost.
    pub fn least(&self) -> usize {
        sealed(self.compressed() + self.others)
    }

    /// Whether [`most`](Self::most) fits [`TCP_FLIGHT`]: no client needs an additional round trip.
    pub fn fits_tcp(&self) -> bool {
        self.most() <= TCP_FLIGHT
    }

    /// Whether the flight could be sent at once over QUIC ([`QUIC_FLIGHT`]) to a client with certificate compression.
    pub fn fits_quic(&self) -> bool {
        self.least() <= QUIC_FLIGHT
    }
}

fn sealed(bytes: usize) -> usize {
    bytes + RECORD * bytes.div_ceil(RECORD_CONTENT)
}

/// The body of the `Certificate` message (RFC 8446 section 4.4.2).
fn message(certificate: &Certificate, staple: Option<&Staple>) -> Vec<u8> {
    let mut list = Vec::new();
    for (index, der) in certificate.chain.iter().enumerate() {
        list.extend_from_slice(&length24(der.len()));
        list.extend_from_slice(der);
        match staple.filter(|_| index == 0) {
            None => list.extend_from_slice(&[0, 0]),
            Some(staple) => {
                let len = staple.der.len();
                list.extend_from_slice(&((len + 8) as u16).to_be_bytes());
                // Extension status_request of type ocsp (RFC 6066 section 8).
                list.extend_from_slice(&[0, 5]);
                list.extend_from_slice(&((len + 4) as u16).to_be_bytes());
                list.push(1);
                list.extend_from_slice(&length24(len));
                list.extend_from_slice(&staple.der);
            }
        }
    }
    [&[0][..], &length24(list.len()), &list].concat()
}

fn length24(len: usize) -> [u8; 3] {
    let [.., high, middle, low] = len.to_be_bytes();
    [high, middle, low]
}

fn signature(algorithm: KeyAlgorithm) -> usize {
    match algorithm {
        // The longest encoding in DER, with a zero byte before each of the two numbers. 72 is the same for
        // P-256.
        KeyAlgorithm::EcdsaP384 => 104,
        KeyAlgorithm::Rsa { bits } => usize::from(bits) / 8,
        // FIPS 204, table 2.
        KeyAlgorithm::MlDsa44 => 2420,
        KeyAlgorithm::MlDsa65 => 3309,
        KeyAlgorithm::MlDsa87 => 4627,
        _ => 72,
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use brisk_certs::load;
    use brisk_keys::Keystore;
    use brisk_testkit::ca::{LeafKey, TestCa};

    use super::*;

    fn flight(key: LeafKey, staple: usize) -> FirstFlight {
        let leaf = TestCa::new().server(&["a.test"]).key(key).issue();
        let loaded = load(&leaf.chain, &leaf.key, &mut Keystore::new(), SystemTime::now()).unwrap();
        let bytes = (0..staple).map(|index| index as u8);
        let (this_update, next_update) = (SystemTime::now(), SystemTime::now());
        let staple = (staple > 0).then(|| Staple { der: bytes.collect(), this_update, next_update });
        FirstFlight::of(&loaded.certificate, staple.as_ref())
    }

    #[test]
    fn usual_certificates_fit_and_compression_makes_them_shorter() {
        let (ecdsa, rsa) = (flight(LeafKey::EcdsaP256, 0), flight(LeafKey::Rsa2048, 0));
        assert!(ecdsa.most() < rsa.most() && ecdsa.compressed() < ecdsa.certificate());
        assert!(ecdsa.least() < ecdsa.most() && ecdsa.fits_tcp() && ecdsa.fits_quic());
    }

    #[test]
    fn a_staple_counts_with_its_frame() {
        let (without, with) = (flight(LeafKey::EcdsaP256, 0), flight(LeafKey::EcdsaP256, 20_000));
        // The lengths of two ECDSA signatures may differ by a few bytes.
        let more = with.certificate() - without.certificate();
        assert!(more.abs_diff(20_008) < 16, "{more}");
        assert!(without.fits_tcp() && !with.fits_tcp());
    }
}
