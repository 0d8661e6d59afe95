//! Application data of a TLS connection whose secrets are known, decrypted as its records arrive.

use brisk_handshake_view::message::ServerChoice;
use brisk_handshake_view::{OpenedRecord, Party, RecordOpener, Recording};

/// Record type of application data.
const APPLICATION_DATA: u8 = 23;

/// Encrypted records in sequence that no key opens, after which a direction is given up.
const FAILURES: u32 = 16;

/// Header of a record.
const HEADER: usize = 5;

/// Decryption of both directions. Memory: an incomplete record for each.
#[derive(Debug)]
pub(crate) struct Decryption([Direction; 2]);

#[derive(Debug)]
struct Direction {
    opener: RecordOpener,
    /// Bytes of an incomplete record.
    partial: Vec<u8>,
    /// Offset of `partial` in the bytes of the direction.
    offset: u64,
    failures: u32,
}

impl Decryption {
    /// Uses the secrets in `recording`, for the suite that `chosen` names.
    pub(crate) fn new(chosen: &ServerChoice, recording: &Recording) -> Self {
        let direction = |party| Direction {
            opener: RecordOpener::new(Some(chosen), recording, party),
            partial: Vec::new(),
            offset: 0,
            failures: 0,
        };
        Self([direction(Party::Client), direction(Party::Server)])
    }

    /// Adds bytes of the stream. Calls `deliver` with the application data of each complete record and the record's offset in the
    /// bytes of the direction.
    pub(crate) fn add(&mut self, from: Party, bytes: &[u8], deliver: &mut dyn FnMut(u64, &[u8])) {
        self.0[from as usize].add(bytes, deliver);
    }

    /// Heap memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.0.iter().map(|direction| direction.partial.capacity()).sum()
    }
}

impl Direction {
    fn add(&mut self, bytes: &[u8], deliver: &mut dyn FnMut(u64, &[u8])) {
        if self.failures >= FAILURES {
            return;
        }
        self.partial.extend_from_slice(bytes);
        let partial = std::mem::take(&mut self.partial);
        let mut rest = &partial[..];
        while let Some((header, record)) = rest.split_first_chunk::<HEADER>() {
            let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
            let Some(payload) = record.get(..length) else { break };
            self.record(*header, payload, deliver);
            self.offset += (HEADER + length) as u64;
            rest = &record[length..];
        }
        // Without a key, the rest of the direction is not kept either.
        if self.failures < FAILURES {
            self.partial = rest.to_vec();
        }
    }

    fn record(&mut self, header: [u8; HEADER], payload: &[u8], deliver: &mut dyn FnMut(u64, &[u8])) {
        let OpenedRecord { is_encrypted, content } = self.opener.open(header, payload);
        match content {
            // Only an encrypted record proves the key; others open without one.
            Some((APPLICATION_DATA, content)) if is_encrypted => {
                self.failures = 0;
                deliver(self.offset, &content);
            }
            None => self.failures += 1,
            _ => {}
        }
    }
}
