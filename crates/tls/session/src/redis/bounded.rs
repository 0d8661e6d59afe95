//! A reader between the socket and the parser of replies, which ends the connection within a reply that is too long: the parser holds
//! a reply until it is complete, for any length that the server claims.

use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum length of a reply in bytes. The longest are sessions below 64 KiB and the slots of a cluster.
const LONGEST: usize = 1 << 20;

/// Maximum number of values in a reply. Each takes up to 64 bytes when parsed, also one of three bytes such as `_\r\n`. A range
/// of slots in a cluster has 8 values, and 5 more for each replica.
const MOST_VALUES: usize = 1 << 15;

/// A connection whose replies have at most [`LONGEST`] bytes and [`MOST_VALUES`] values.
pub(super) struct Bounded<Io> {
    io: Io,
    replies: Replies,
}

impl<Io> Bounded<Io> {
    pub(super) fn new(io: Io) -> Self {
        Self { io, replies: Replies::default() }
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for Bounded<Io> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(cx, buffer))?;
        let counted = this.replies.count(&buffer.filled()[before..]);
        if counted.is_err() {
            tracing::warn!(
                "a reply of Redis has more than {LONGEST} bytes or {MOST_VALUES} values, or is malformed: the connection ends"
            );
        }
        Poll::Ready(counted.map_err(|TooLong| Error::new(ErrorKind::InvalidData, "a reply is too long")))
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Bounded<Io> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}

/// A reply has more than [`LONGEST`] bytes or [`MOST_VALUES`] values, claims more, or has a length that is no number.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

type Counted = std::result::Result<(), TooLong>;

/// Finds the ends of replies (`RESP2` and `RESP3`). It takes constant time for the content of a string.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Replies {
    /// Length of the reply so far.
    length: usize,
    /// Values of the reply so far, complete or not.
    begun: usize,
    /// Values that complete the reply, besides the current one.
    values: usize,
    /// Bytes of the current string that are left, with its end of line.
    left: usize,
    /// The current line: its type, and its number so far.
    kind: Option<u8>,
    number: usize,
    is_negative: bool,
    /// Whether the last byte of the line was CR. LF alone ends no line, for the parser neither.
    has_return: bool,
}

impl Replies {
    /// Whether all replies so far are complete.
    #[cfg(any(test, fuzzing))]
    pub(super) fn is_complete(&self) -> bool {
        self.length == 0
    }

    /// Counts the next bytes of the connection.
    pub(super) fn count(&mut self, mut bytes: &[u8]) -> Counted {
        while let Some((&first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let taken = self.left.min(bytes.len());
                bytes = &bytes[taken..];
                (self.left, self.length) = (self.left - taken, self.length + taken);
                if self.left == 0 {
                    self.end_value();
                }
            } else {
                bytes = rest;
                self.length += 1;
                self.line(first)?;
            }
            if self.length > LONGEST {
                return Err(TooLong);
            }
        }
        Ok(())
    }

    /// Takes the next byte of a line.
    fn line(&mut self, byte: u8) -> Counted {
        let Some(kind) = self.kind else {
            (self.kind, self.number, self.is_negative) = (Some(byte), 0, false);
            self.has_return = false;
            return Ok(());
        };
        let had_return = std::mem::replace(&mut self.has_return, byte == b'\r');
        let has_length = matches!(kind, b'$' | b'=' | b'!' | b'*' | b'~' | b'>' | b'%' | b'|');
        match byte {
            b'\n' if had_return => return self.end_line(kind),
            b'\r' => {}
            _ if had_return && has_length => return Err(TooLong),
            b'-' if has_length => self.is_negative = true,
            b'0'..=b'9' if has_length => self.number = self.number * 10 + usize::from(byte - b'0'),
            _ if has_length => return Err(TooLong),
            _ => {}
        }
        // Before the number can overflow.
        if self.number > LONGEST { Err(TooLong) } else { Ok(()) }
    }

    fn end_line(&mut self, kind: u8) -> Counted {
        self.kind = None;
        self.begun += 1;
        match kind {
            // Null in RESP2. The parser waits for the end of other negative lengths.
            _ if self.is_negative => {
                let is_null = matches!(kind, b'$' | b'*') && self.number == 1;
                if !is_null {
                    return Err(TooLong);
                }
            }
            b'$' | b'=' | b'!' => {
                self.left = self.number + 2;
                return if self.left > LONGEST { Err(TooLong) } else { Ok(()) };
            }
            b'*' | b'~' | b'>' => self.values += self.number,
            b'%' => self.values += 2 * self.number,
            // Attributes precede the value that they describe.
            b'|' => self.values += 2 * self.number + 1,
            _ => {}
        }
        if self.begun + self.values > MOST_VALUES {
            return Err(TooLong);
        }
        self.end_value();
        Ok(())
    }

    fn end_value(&mut self) {
        if let Some(values) = self.values.checked_sub(1) {
            self.values = values;
        } else {
            (self.length, self.begun) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(bytes: &[u8], piece: usize) -> std::result::Result<Replies, TooLong> {
        let mut replies = Replies::default();
        bytes.chunks(piece).try_for_each(|piece| replies.count(piece))?;
        Ok(replies)
    }

    #[test]
    fn complete_replies_of_all_kinds_are_not_added_up() {
        let string = [b"$600000\r\n".as_slice(), vec![b'*'; 600_000].as_slice(), b"\r\n"].concat();
        let replies: [&[u8]; 11] = [
            b"+OK\r\n",
            b"-ERR *9 $9\r\n",
            b":-12\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"$0\r\n\r\n",
            b"*3\r\n*0\r\n*2\r\n:1\r\n$2\r\nab\r\n+x\r\n",
            b"%1\r\n+a\r\n~2\r\n_\r\n#t\r\n",
            b"|1\r\n+a\r\n,1.5\r\n:7\r\n",
            b">2\r\n=5\r\ntxt:a\r\n(123\r\n",
            &string,
        ];
        for reply in replies {
            for piece in [1, 2, 7, reply.len()] {
                let three = counted(&reply.repeat(3), piece).expect("replies within the limit");
                assert_eq!(
                    (three.length, three.begun, three.values, three.left, three.kind),
                    (0, 0, 0, 0, None),
                    "{reply:?}"
                );
            }
        }
    }

    /// 349,000 nulls have less than 1 MiB, but were over 20 MB of parsed values.
    #[test]
    fn short_values_are_bounded_by_their_number() {
        let nulls = |count: usize| [format!("*{count}\r\n").into_bytes(), b"_\r\n".repeat(count)].concat();
        for piece in [1, 4096] {
            assert!(counted(&nulls(MOST_VALUES - 1).repeat(3), piece).is_ok());
            assert_eq!(counted(&nulls(MOST_VALUES), piece).err(), Some(TooLong));
            // Each of many arrays is small.
            let nested = [b"*9\r\n".as_slice(), &nulls(MOST_VALUES / 9).repeat(9)].concat();
            assert_eq!(counted(&nested, piece).err(), Some(TooLong));
        }
        assert!(size_of::<redis::Value>() <= 64);
    }

    #[test]
    fn longer_replies_end_before_they_are_complete() {
        let half = [b"$600000\r\n".as_slice(), vec![b'x'; 600_000].as_slice(), b"\r\n"].concat();
        let lines = [b"*300000\r\n".as_slice(), &b"+abc\r\n".repeat(300_000)].concat();
        let replies: [&[u8]; 10] = [
            b"$2000000000\r\n",
            b"$99999999999999999999999999",
            b"*1000000\r\n",
            b"%349526\r\n",
            b"$12a\r\n",
            b"$12\n",
            &[b"*2\r\n".as_slice(), &half, &half].concat(),
            &lines,
            &[b"+".as_slice(), vec![b'x'; LONGEST].as_slice()].concat(),
            &b":1\n".repeat(LONGEST),
        ];
        for reply in replies {
            for piece in [1, 4096] {
                assert_eq!(counted(reply, piece).err(), Some(TooLong), "{:?}", &reply[..10]);
            }
        }
    }
}
