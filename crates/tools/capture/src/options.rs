//! Options of TCP headers.

use serde::Serialize;

/// SACK blocks in a header at most (RFC 2018 section 3).
const BLOCKS: usize = 4;

/// Options of a TCP header that the analysis uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Maximum segment size.
    pub(crate) mss: Option<u16>,
    /// Shift count of the window, at most 14 (RFC 7323 section 2.3).
    pub(crate) scale: Option<u8>,
    pub(crate) permits_sack: bool,
    pub(crate) has_timestamps: bool,
    /// Length of the Fast Open cookie (RFC 7413); `0` requests a cookie.
    pub(crate) fast_open: Option<u8>,
    sack: [(u32, u32); BLOCKS],
    blocks: u8,
}

impl Options {
    /// Parses options. Ends before the first malformed or truncated option.
    pub(crate) fn read(mut bytes: &[u8]) -> Self {
        let mut options = Self::default();
        loop {
            match bytes {
                [1, rest @ ..] => bytes = rest,
                [0, ..] | [] | [_] => return options,
                [kind, length, ..] => {
                    let (kind, length) = (*kind, usize::from(*length));
                    // A length below 2 has no such range, so a forged option cannot loop forever.
                    let Some(content) = bytes.get(2..length) else { return options };
                    options.set(kind, content);
                    bytes = &bytes[length..];
                }
            }
        }
    }

    fn set(&mut self, kind: u8, content: &[u8]) {
        match (kind, content) {
            (2, [high, low]) => self.mss = Some(u16::from_be_bytes([*high, *low])),
            (3, [shift]) => self.scale = Some((*shift).min(14)),
            (4, []) => self.permits_sack = true,
            (5, _) => {
                for block in content.as_chunks::<8>().0 {
                    let number = u64::from_be_bytes(*block);
                    let Some(place) = self.sack.get_mut(usize::from(self.blocks)) else { return };
                    *place = ((number >> 32) as u32, number as u32);
                    self.blocks += 1;
                }
            }
            (8, _) => self.has_timestamps = true,
            // The second one is the experimental number of Fast Open, before RFC 7413.
            (34, cookie) | (254, [0xf9, 0x89, cookie @ ..]) => self.fast_open = Some(cookie.len() as u8),
            _ => {}
        }
    }

    /// SACK blocks: begin and end of each.
    pub(crate) fn sack(&self) -> &[(u32, u32)] {
        &self.sack[..self.blocks.into()]
    }
}

/// Options of the `SYN` of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SynOptions {
    /// Maximum segment size that the side receives, in bytes.
    pub mss: Option<u16>,
    /// Shift count of the side's window; `None` disables scaling for both sides.
    pub window_scale: Option<u8>,
    /// The side supports selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// The side uses timestamps.
    pub timestamps: bool,
    /// Bytes of the Fast Open cookie; `0` is a request for a cookie, `None` the absence of the option.
    pub fast_open_cookie: Option<u8>,
}

impl From<&Options> for SynOptions {
    fn from(options: &Options) -> Self {
        Self {
            mss: options.mss,
            window_scale: options.scale,
            sack: options.permits_sack,
            timestamps: options.has_timestamps,
            fast_open_cookie: options.fast_open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_linux_syn_are_read() {
        let syn = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7, 34, 2];
        let options = Options::read(&syn);
        assert_eq!((options.mss, options.scale, options.fast_open), (Some(1460), Some(7), Some(0)));
        assert!(options.permits_sack && options.has_timestamps);
    }

    #[test]
    fn sack_blocks_are_read_and_false_lengths_end_the_list() {
        let mut sack = vec![1, 1, 5, 18, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 12];
        assert_eq!(Options::read(&sack).sack(), [(1, 2), (9, 12)]);
        // Five blocks do not fit into a header, but into an option of false length.
        sack = [&[5, 82][..], &[7; 80]].concat();
        assert_eq!(Options::read(&sack).sack().len(), 4);
        sack.extend([5, 34]);
        sack.extend([7; 32]);
        assert_eq!(Options::read(&sack).sack().len(), 4);
        for length in [0, 1, 3, 255] {
            assert_eq!(Options::read(&[2, length, 5, 0xb4, 3, 3, 255]).mss, None);
        }
        assert_eq!(Options::read(&[3, 3, 255]).scale, Some(14));
    }
}
