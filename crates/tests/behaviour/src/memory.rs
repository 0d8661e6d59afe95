//! A search for secrets in the memory of other processes.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use aho_corasick::AhoCorasick;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use brisk_testkit::ca::Leaf;
use brisk_testkit::process::TIMEOUT;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;

/// Length of the pieces for which memory is searched. Two random secrets have no piece in common, and any 31 bytes of a
/// secret contain a piece, so that parts of a copy are found as well.
const PIECE: usize = 16;

/// Places of a secret in a message of a failed test.
const SHOWN: usize = 4;

const PAGE: u64 = 4096;

/// `SEQUENCE { INTEGER 0, ...` of `RSAPrivateKey`, RFC 8017 appendix A.1.2, for any key above 1024 bits.
const RSA: [u8; 7] = [0x30, 0x82, 0, 0, 0x02, 0x01, 0x00];

/// `INTEGER 1, OCTET STRING` of `ECPrivateKey` with 32 bytes, RFC 5915 section 3.
const P256: [u8; 5] = [0x02, 0x01, 0x01, 0x04, 0x20];

/// Secrets to search for.
#[derive(Debug, Default)]
pub struct Secrets {
    names: Vec<String>,
    pieces: Vec<Vec<u8>>,
}

impl Secrets {
    /// Adds the bytes of a text or a symmetric key, of at least 16 bytes.
    #[must_use]
    pub fn bytes(mut self, name: &str, secret: &[u8]) -> Self {
        // A shorter rest is left out, because few bytes occur in memory by chance.
        for piece in secret.as_chunks::<PIECE>().0 {
            self.names.push(name.to_owned());
            self.pieces.push(piece.to_vec());
        }
        self
    }

    /// Adds a secret also as base64, at all three positions that it can have within longer data.
    #[must_use]
    pub fn binary(mut self, name: &str, secret: &[u8]) -> Self {
        for skipped in 0..3 {
            // Groups of three bytes only: the last characters of others depend on the data after the secret.
            let groups = secret[skipped..].as_chunks::<3>().0.as_flattened();
            self = self.bytes(&format!("{name} in base64"), STANDARD.encode(groups).as_bytes());
        }
        self.bytes(name, secret)
    }

    /// Adds a number in both orders of bytes; the reverse order is that of machine words in memory as well.
    #[must_use]
    fn number(self, name: &str, big_endian: &[u8]) -> Self {
        let reversed: Vec<u8> = big_endian.iter().rev().copied().collect();
        self.binary(name, big_endian).bytes(&format!("{name} in reverse"), &reversed)
    }

    /// Adds the secret numbers of an RSA or P-256 key: `d`, `p`, `q`, `dp`, `dq` and `qinv`, or the scalar. Lines of PEM
    /// and DER are found by the numbers in them; the public numbers are in the certificate too.
    #[must_use]
    pub fn key(mut self, name: &str, leaf: &Leaf) -> Self {
        let key = PrivateKeyDer::from_pem_slice(leaf.key_pem.as_bytes()).expect("a key");
        let der = key.secret_der();
        let find = |head: &[u8]| der.windows(head.len()).position(|window| window == head);
        if let Some(at) = find(&P256) {
            return self.number(&format!("the scalar of {name}"), &der[at + P256.len()..][..32]);
        }
        let is_start = |window: &[u8]| window[..2] == RSA[..2] && window[4..] == RSA[4..];
        // The last one: in PKCS#8, the outer structure begins in the same way.
        let at = der.windows(RSA.len()).rposition(is_start).expect("an RSA or P-256 key");
        let mut rest = &der[at + RSA.len()..];
        for number in ["n", "e", "d", "p", "q", "dp", "dq", "qinv"] {
            let (value, after) = integer(rest);
            if !["n", "e"].contains(&number) {
                self = self.number(&format!("{number} of {name}"), value);
            }
            rest = after;
        }
        self
    }

    /// The secrets in the memory of `process`. `None` if this process may not read that memory.
    pub fn found_in(&self, process: u32) -> Option<Found> {
        let open = |name: &str| File::open(format!("/proc/{process}/{name}")).ok();
        let (memory, pages) = (open("mem")?, open("pagemap")?);
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
        // One pass for all pieces, since the memory of a process is much larger than all secrets.
        let search = AhoCorasick::new(&self.pieces).expect("pieces");
        let (mut seen, mut found) = (0, Found::default());
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let (range, mode) = (words.next()?, words.next()?);
            let mapping = words.nth(3).unwrap_or("anonymous");
            // Mappings without `w` are files or guards; secrets are written while the process runs.
            if !mode.starts_with("rw") {
                continue;
            }
            let (start, end) = range.split_once('-')?;
            let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).expect("an address"));
            // Only present pages, so that a search takes a tenth of a second.
            for at in present_runs(&pages, start, end) {
                let mut run = vec![0; usize::try_from(at.end - at.start).expect("a length")];
                // The process runs on, and may unmap the pages meanwhile.
                let read = memory.read_at(&mut run, at.start).unwrap_or(0);
                seen += read;
                for hit in search.find_iter(&run[..read]) {
                    let place = format!("{:x} ({mapping})", at.start + hit.start() as u64);
                    found.0.entry(self.names[hit.pattern().as_usize()].clone()).or_default().push(place);
                }
            }
        }
        // A search that reads nothing would find nothing, and pass.
        assert!(seen > 1 << 18, "only {seen} bytes could be read");
        Some(found)
    }

    /// Waits until no secret is in the memory of `process`. Fails the test with the places where secrets remain.
    #[track_caller]
    pub fn wait_until_absent(&self, process: u32) {
        let started = Instant::now();
        while let Some(found) = self.found_in(process).filter(|found| !found.is_empty()) {
            assert!(
                started.elapsed() < TIMEOUT,
                "secrets remain in the memory of process {process}:\n{found}"
            );
            sleep(Duration::from_millis(100));
        }
    }
}

/// Places of secrets in the memory of a process, by the name of the secret.
#[derive(Debug, Default)]
pub struct Found(BTreeMap<String, Vec<String>>);

impl Found {
    /// Whether no secret was found.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a secret was found whose name contains `name`.
    pub fn has(&self, name: &str) -> bool {
        self.0.keys().any(|found| found.contains(name))
    }
}

impl Display for Found {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, places) in &self.0 {
            let shown = places.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
            writeln!(formatter, "{name}: {} pieces, at {shown}", places.len())?;
        }
        Ok(())
    }
}

/// The content of the DER `INTEGER` at the start of `der` without leading zeroes, and the bytes after it.
fn integer(der: &[u8]) -> (&[u8], &[u8]) {
    assert_eq!(der[0], 0x02, "not an INTEGER");
    let long = usize::from(der[1]).saturating_sub(0x80);
    let length = match long {
        0 => usize::from(der[1]),
        _ => der[2..2 + long].iter().fold(0, |length, byte| length << 8 | usize::from(*byte)),
    };
    let (value, rest) = der[2 + long..].split_at(length);
    let zeroes = value.iter().take_while(|byte| **byte == 0).count();
    (&value[zeroes..], rest)
}

/// Runs of pages from `start` to `end` that are in memory or swapped out. Most pages that an allocator reserves are neither.
fn present_runs(pages: &File, start: u64, end: u64) -> Vec<Range<u64>> {
    let mut entries = vec![0; usize::try_from((end - start) / PAGE * 8).expect("a length")];
    let read = pages.read_at(&mut entries, start / PAGE * 8).unwrap_or(0);
    let mut runs: Vec<Range<u64>> = Vec::new();
    for (page, entry) in (start..end).step_by(PAGE as usize).zip(entries[..read].as_chunks::<8>().0) {
        // The top two bits: present, swapped.
        if entry[7] & 0xc0 == 0 {
            continue;
        }
        match runs.last_mut().filter(|run| run.end == page) {
            Some(run) => run.end += PAGE,
            None => runs.push(page..page + PAGE),
        }
    }
    runs
}
