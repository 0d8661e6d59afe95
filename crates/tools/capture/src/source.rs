//! Bytes of a capture: uncompressed, gzip or zstd, recognised by their first bytes.

use std::io::{self, Read};

use brisk_coding::{Coding, Decoder};

/// Bytes read at once from a compressed input.
const PIECE: usize = 64 * 1024;

/// First bytes of gzip (RFC 1952 section 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// First bytes of a zstd frame (RFC 8878 section 3.1.1).
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Reader that decompresses its input if the input is compressed. Uses at most 9 MiB for zstd, 200 KiB otherwise.
pub(crate) struct Source<R> {
    input: R,
    /// Bytes read from `input` and not yet used.
    raw: Vec<u8>,
    /// `None` for an uncompressed input.
    decoder: Option<Decoder>,
    /// Decoded bytes from `given` on.
    decoded: Vec<u8>,
    given: usize,
    has_more: bool,
}

impl<R: Read> Source<R> {
    /// Reads the first four bytes.
    pub(crate) fn new(mut input: R) -> io::Result<Self> {
        let mut raw = Vec::new();
        // A single `read` of a pipe may return fewer bytes.
        input.by_ref().take(4).read_to_end(&mut raw)?;
        let coding = if raw.starts_with(&GZIP) {
            Some(Coding::Gzip)
        } else {
            raw.starts_with(&ZSTD).then_some(Coding::Zstd)
        };
        let decoder = coding.map(Decoder::new);
        Ok(Self { input, raw, decoder, decoded: Vec::new(), given: 0, has_more: false })
    }

    /// Decodes the next bytes into `decoded`, which is empty only at the end of the input.
    fn decode(&mut self) -> io::Result<()> {
        let decoder = self.decoder.as_mut().expect("only called for compressed inputs");
        self.decoded.clear();
        self.given = 0;
        while self.decoded.is_empty() {
            // The decoder may hold output for which it had no room, so it is called without new input first.
            if self.raw.is_empty() && !self.has_more {
                self.input.by_ref().take(PIECE as u64).read_to_end(&mut self.raw)?;
                if self.raw.is_empty() {
                    let ended = decoder.finish();
                    return ended.map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof));
                }
            }
            let progress = decoder.write(&self.raw, &mut self.decoded).map_err(|_| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the compressed data is damaged, or needs a window of more than 8 MiB",
                )
            })?;
            self.raw.drain(..progress.taken);
            self.has_more = progress.has_more;
        }
        Ok(())
    }
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.decoder.is_none() {
            if self.raw.is_empty() {
                return self.input.read(buffer);
            }
            let len = self.raw.len().min(buffer.len());
            buffer[..len].copy_from_slice(&self.raw[..len]);
            self.raw.drain(..len);
            return Ok(len);
        }
        if self.given == self.decoded.len() {
            self.decode()?;
        }
        let rest = &self.decoded[self.given..];
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        self.given += len;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use brisk_coding::{Encoder, FlushMode};

    use super::*;

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        Source::new(bytes)?.read_to_end(&mut all)?;
        Ok(all)
    }

    #[test]
    fn compressed_and_uncompressed_bytes_are_read() {
        let content: Vec<u8> =
            (0..300_000_u32).flat_map(|number| number.wrapping_mul(number).to_le_bytes()).collect();
        assert_eq!(read(&content).expect("no coding"), content);
        for coding in [Coding::Gzip, Coding::Zstd] {
            let mut compressed = Vec::new();
            let mut encoder = Encoder::new(coding, 1);
            encoder.write(&content, &mut compressed, FlushMode::Finish).expect("memory");
            assert_eq!(read(&compressed).expect("decoded"), content, "{coding:?}");
            let cut = read(&compressed[..compressed.len() / 2]).expect_err("cut off");
            assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
            compressed[12..64].fill(0xff);
            assert!(read(&compressed).is_err(), "{coding:?}");
        }
        assert_eq!(read(b"").expect("nothing"), b"");
        assert_eq!(read(b"abc").expect("short"), b"abc");
    }
}
