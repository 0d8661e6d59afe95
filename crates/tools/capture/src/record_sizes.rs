//! Number and sizes of TLS records.

use serde::Serialize;

/// Sizes of the records of a direction, for any number of bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecordCounter {
    header: [u8; 5],
    seen: u8,
    /// Payload bytes until the next header.
    left: usize,
    is_over: bool,
    sizes: RecordSizes,
}

/// Number and sizes of the records of one side.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct RecordSizes {
    /// Number of records.
    pub count: u64,
    /// Size of the largest record in bytes, without its header.
    pub largest: u16,
    /// Size of all records in bytes, without headers.
    pub bytes: u64,
}

impl RecordCounter {
    /// The [`RecordSizes`] until now.
    pub(crate) fn sizes(self) -> RecordSizes {
        self.sizes
    }

    /// Adds bytes of the stream.
    pub(crate) fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.is_over {
            let skipped = self.left.min(bytes.len());
            self.left -= skipped;
            bytes = &bytes[skipped..];
            while usize::from(self.seen) < self.header.len()
                && self.left == 0
                && let Some((byte, rest)) = bytes.split_first()
            {
                self.header[usize::from(self.seen)] = *byte;
                (self.seen, bytes) = (self.seen + 1, rest);
            }
            if usize::from(self.seen) == self.header.len() {
                let length = u16::from_be_bytes([self.header[3], self.header[4]]);
                // Behind bytes that are no header, there is no way to find the next record.
                self.is_over = !matches!(self.header, [20..=24, 3, ..]);
                self.sizes.count += u64::from(!self.is_over);
                self.sizes.largest = self.sizes.largest.max(length);
                self.sizes.bytes += u64::from(length);
                (self.seen, self.left) = (0, length.into());
            }
        }
    }
}
