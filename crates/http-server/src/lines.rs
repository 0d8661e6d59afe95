//! Check that the lines of an HTTP/1.1 head end with CR LF, for hyper, which reads plain HTTP.
//!
//! hyper also accepts a bare LF as the end of a line, as RFC 9112 section 2.2 permits, and has no option to refuse it. A
//! proxy in front that treats a bare LF differently would see other headers than brisk. The check is therefore a filter
//! below hyper: one search for LF over the bytes of heads and trailers, and none over bodies. Each read ends at the end of a
//! head, so that hyper can report the length of the body before it reads on.

use std::cell::Cell;

use http_body::Body;

/// Line filter of one connection. The reader reports the body after each head with [`expect`](Self::expect).
#[derive(Debug, Default)]
pub(super) struct LineWatcher(Cell<Lines>);

impl LineWatcher {
    /// Starts filtering; the next byte begins a head.
    pub(super) fn begin(&self) {
        self.0.set(Lines::watched());
    }

    /// Sets the body that follows the head just read.
    pub(super) fn expect(&self, body: &impl Body) {
        let mut lines = self.0.get();
        lines.expect(body);
        self.0.set(lines);
    }

    /// Passes the next portion of `data` (not empty) to `put`. Returns the number of bytes consumed.
    #[inline]
    pub(super) fn pass(&self, data: &[u8], mut put: impl FnMut(&[u8])) -> usize {
        let mut lines = self.0.get();
        let portion = lines.portion(data);
        self.0.set(lines);
        match portion {
            Portion::Bytes(length) => {
                put(&data[..length]);
                length
            }
            // hyper refuses the request, since NUL is invalid anywhere in a head.
            Portion::BareLineFeed(before) => {
                put(&data[..before]);
                put(b"\0");
                before + 1
            }
        }
    }
}

/// Portion of the available bytes to read now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Portion {
    /// Number of bytes.
    Bytes(usize),
    /// Number of bytes before a bare LF.
    BareLineFeed(usize),
}

/// State of the filter within the bytes of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lines {
    /// Not HTTP/1.1, or no longer: everything passes.
    #[default]
    Unwatched,
    Head(Line),
    /// Behind the end of a head.
    Headed,
    /// Within a body: remaining bytes.
    Body(u64),
    Chunk(Size),
    /// Within a chunk: remaining bytes, including the CR LF after it.
    ChunkData(u64),
    Trailers(Line),
}

/// Line being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    length: usize,
    /// Whether the last byte so far is CR.
    returned: bool,
    /// Whether an empty line ends the section.
    may_end: bool,
}

/// Line before a chunk: size in hexadecimal and optional extensions (RFC 9112 section 7.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    value: u64,
    extended: bool,
}

impl Lines {
    /// State before the first head.
    pub(crate) fn watched() -> Self {
        Self::Head(Line::default())
    }

    /// Sets the body that follows the head just read.
    fn expect(&mut self, body: &impl Body) {
        if *self == Self::Unwatched {
            return;
        }
        *self = match body.size_hint().exact() {
            _ if body.is_end_stream() => Self::watched(),
            Some(length) => Self::Body(length),
            None => Self::Chunk(Size::default()),
        };
    }

    /// Returns the portion of `data` (not empty) to read now, and advances the state over it.
    pub(crate) fn portion(&mut self, data: &[u8]) -> Portion {
        if matches!(self, Self::Headed) {
            *self = Self::watched();
        }
        if *self == Self::watched() && is_one_head(data) {
            *self = Self::Headed;
            return Portion::Bytes(data.len());
        }
        let mut position = 0;
        while position < data.len() {
            let rest = &data[position..];
            match self {
                Self::Unwatched => return Portion::Bytes(data.len()),
                Self::Headed => *self = Self::watched(),
                Self::Head(line) | Self::Trailers(line) => match line.advance(rest) {
                    Advance::All => return Portion::Bytes(data.len()),
                    Advance::Ended(length) if matches!(self, Self::Head(_)) => {
                        *self = Self::Headed;
                        return Portion::Bytes(position + length);
                    }
                    Advance::Ended(length) => {
                        *self = Self::watched();
                        position += length;
                    }
                    Advance::BareLineFeed(length) => return Portion::BareLineFeed(position + length),
                },
                Self::Body(left) => {
                    position += skip(left, rest);
                    if *left == 0 {
                        *self = Self::watched();
                    }
                }
                Self::ChunkData(left) => {
                    position += skip(left, rest);
                    if *left == 0 {
                        *self = Self::Chunk(Size::default());
                    }
                }
                Self::Chunk(size) => {
                    position += 1;
                    match size.advance(rest[0]) {
                        None => {}
                        Some(0) => *self = Self::Trailers(Line { may_end: true, ..Line::default() }),
                        // Plus the CR LF after the data.
                        Some(length) => *self = Self::ChunkData(length.saturating_add(2)),
                    }
                }
            }
        }
        Portion::Bytes(data.len())
    }
}

/// Whether `data` is exactly one head with correct line ends, as nearly all reads are. A single pass without branches, which
/// the compiler vectorizes.
#[expect(clippy::needless_bitwise_bool, reason = "lazy operators are branches")]
fn is_one_head(data: &[u8]) -> bool {
    if data.starts_with(b"\r") || data.starts_with(b"\n") || !data.ends_with(b"\r\n\r\n") {
        return false;
    }
    let lines = &data[..data.len() - 2];
    let is_odd = |(before, byte): (&u8, &u8)| {
        ((*byte == b'\n') & (*before != b'\r')) | ((*before == b'\n') & (*byte == b'\r'))
    };
    !lines.iter().zip(&lines[1..]).fold(false, |odd, pair| odd | is_odd(pair))
}

fn skip(left: &mut u64, data: &[u8]) -> usize {
    let skipped = usize::try_from(*left).unwrap_or(usize::MAX).min(data.len());
    *left -= skipped as u64;
    skipped
}

enum Advance {
    /// All bytes belong to the section.
    All,
    /// Number of bytes up to and including the end of the section.
    Ended(usize),
    /// Number of bytes before a bare LF.
    BareLineFeed(usize),
}

impl Line {
    fn advance(&mut self, data: &[u8]) -> Advance {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', data) {
            let length = self.length + (end - start);
            let returned = if end > start { data[end - 1] == b'\r' } else { self.returned };
            if !returned {
                return Advance::BareLineFeed(end);
            }
            if length == 1 && self.may_end {
                return Advance::Ended(end + 1);
            }
            // Empty lines before a request line are permitted (RFC 9112 section 2.2) and do not end the head.
            *self = Self { may_end: self.may_end || length > 1, ..Self::default() };
            start = end + 1;
        }
        if let Some(last) = data[start..].last() {
            self.length += data.len() - start;
            self.returned = *last == b'\r';
        }
        Advance::All
    }
}

impl Size {
    /// Returns the size at the end of the line. Invalid digits are left to hyper, which refuses them; here they only must
    /// not disturb the count.
    fn advance(&mut self, byte: u8) -> Option<u64> {
        if byte == b'\n' {
            return Some(self.value);
        }
        match char::from(byte).to_digit(16) {
            Some(digit) if !self.extended => {
                self.value = self.value.saturating_mul(16).saturating_add(digit.into());
            }
            _ => self.extended = true,
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

    #[test]
    fn a_head_is_read_to_its_end() {
        let both = [HEAD, HEAD].concat();
        let mut lines = Lines::watched();
        assert_eq!(lines.portion(&both), Portion::Bytes(HEAD.len()));
        assert_eq!(lines, Lines::Headed);
        assert_eq!(lines.portion(&both[HEAD.len()..]), Portion::Bytes(HEAD.len()));
    }

    #[test]
    fn only_a_whole_head_is_one() {
        assert!(is_one_head(HEAD));
        for other in [
            &[HEAD, HEAD].concat()[..],
            &HEAD[..HEAD.len() - 1],
            b"\r\n\r\n",
            b"A\nB\r\n\r\n",
            b"",
            b"A\r\n\r\n\r\n",
        ] {
            assert!(!is_one_head(other), "{}", other.escape_ascii());
        }
    }

    #[test]
    fn it_does_not_matter_where_reads_end() {
        for split in 1..HEAD.len() {
            let mut lines = Lines::watched();
            assert_eq!(lines.portion(&HEAD[..split]), Portion::Bytes(split), "{split}");
            assert_eq!(lines.portion(&HEAD[split..]), Portion::Bytes(HEAD.len() - split), "{split}");
            assert_eq!(lines, Lines::Headed, "{split}");
        }
    }

    #[test]
    fn a_bare_line_feed_is_found_wherever_it_is() {
        for head in [
            &b"\nGET / HTTP/1.1\r\n"[..],
            b"GET / HTTP/1.1\nHost: a\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: b\nHost: a\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\n\n",
            b"\r\nGET / HTTP/1.1\r\nHost: a\r\r\n\n",
        ] {
            let place = (0..head.len()).find(|&at| head[at] == b'\n' && (at == 0 || head[at - 1] != b'\r'));
            let place = place.expect("a bare line feed");
            assert_eq!(Lines::watched().portion(head), Portion::BareLineFeed(place));
            for split in 1..=place {
                let mut lines = Lines::watched();
                assert_eq!(lines.portion(&head[..split]), Portion::Bytes(split));
                assert_eq!(lines.portion(&head[split..]), Portion::BareLineFeed(place - split));
            }
        }
    }

    #[test]
    fn bodies_may_hold_anything_and_heads_after_them_are_watched() {
        let wrong = b"GET / HTTP/1.1\n";
        let length = (Lines::Body(5), &b"\n\n\na\n"[..]);
        let chunks = (
            Lines::Chunk(Size::default()),
            &b"3;x=\"1\"\r\n\n\n\n\r\n0a\r\n0123456\n\n\n\r\n0\r\nX: 1\r\n\r\n"[..],
        );
        for (state, body) in [length, chunks] {
            for split in 0..body.len() {
                let all = [body, wrong].concat();
                let mut lines = state;
                if split > 0 {
                    assert_eq!(lines.portion(&all[..split]), Portion::Bytes(split));
                }
                let expected = all.len() - 1 - split;
                assert_eq!(lines.portion(&all[split..]), Portion::BareLineFeed(expected), "{split}");
            }
        }
    }

    #[test]
    fn the_lines_of_trailers_are_watched_too() {
        let mut lines = Lines::Chunk(Size::default());
        assert_eq!(lines.portion(b"0\r\nX: 1\nY: 2\r\n\r\n"), Portion::BareLineFeed(7));
    }
}
