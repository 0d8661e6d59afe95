//! State that a generation passes to its successor, such as ticket keys, over a pair of sockets that the supervisor creates for
//! each generation.
//!
//! The supervisor gives the outer end of the serving generation's pair to the next generation and reads nothing from it, so no
//! other process can reach the state. The sockets are datagram sockets, which keep the boundaries of messages.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process;
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

/// Name of the descriptor on which a generation receives [`Order`]s.
pub const STATE: &str = "state";

/// Name of the descriptor on which a generation reports to its supervisor ([`Notifier::through`](crate::Notifier::through)).
pub const REPORTS: &str = "reports";

/// Name of the descriptor on which a generation asks the [`Predecessor`].
pub const PREDECESSOR: &str = "predecessor";

/// Version of the messages. Messages of another version are ignored.
const EDITION: u8 = 1;

/// Length of an encoded [`Order`] in bytes.
const ORDER: usize = 2 + size_of::<u64>();

/// Maximum length of an answer in bytes; below the usual buffer of a socket (208 KiB).
const LONGEST: usize = 128 * 1024;

/// Maximum time for the answer of a [`Predecessor`].
const LIMIT: Duration = Duration::from_secs(2);

/// Message to a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A successor asks for the state; the answer repeats the number.
    Export(u64),
    /// The successor serves: `SIGTERM` follows, which stops this generation.
    Replaced,
    /// A successor has ended before it served.
    Abandoned,
}

/// A part of the state of a generation.
#[derive(Debug)]
pub struct StatePart {
    /// Name of at most 255 bytes. A generation ignores parts that it does not know.
    pub name: String,
    /// Content, which only the part itself understands. It is wiped when it is dropped.
    pub bytes: Zeroizing<Vec<u8>>,
}

/// The generation that serves while this process starts.
#[derive(Debug)]
pub struct Predecessor(UnixDatagram);

impl Order {
    /// The encoding for [`read`](Self::read).
    pub fn to_bytes(self) -> [u8; ORDER] {
        let (kind, number) = match self {
            Self::Export(number) => (1, number),
            Self::Replaced => (2, 0),
            Self::Abandoned => (3, 0),
        };
        let mut bytes = [0; ORDER];
        (bytes[0], bytes[1]) = (EDITION, kind);
        bytes[2..].copy_from_slice(&u64::to_be_bytes(number));
        bytes
    }

    /// Reads an order. `None` for another version or kind.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (&[EDITION, kind], number) = bytes.split_first_chunk()? else { return None };
        let number = u64::from_be_bytes(number.try_into().ok()?);
        match kind {
            1 => Some(Self::Export(number)),
            2 => Some(Self::Replaced),
            3 => Some(Self::Abandoned),
            _ => None,
        }
    }
}

impl Predecessor {
    /// Wraps the descriptor with the name [`PREDECESSOR`].
    pub fn new(descriptor: OwnedFd) -> Self {
        Self(descriptor.into())
    }

    /// The state of the predecessor. Blocks until the answer, for at most two seconds.
    pub fn ask(&self) -> io::Result<Vec<StatePart>> {
        // Not secret: it distinguishes the answer from those to successors that have ended meanwhile.
        let number = RandomState::new().hash_one(process::id());
        let deadline = Instant::now() + LIMIT;
        self.0.set_nonblocking(false)?;
        self.0.set_write_timeout(Some(LIMIT))?;
        self.0.send(&Order::Export(number).to_bytes())?;
        // Of the final size, since a buffer that grows would leave copies behind.
        let mut bytes = Zeroizing::new(vec![0; LONGEST]);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.0.set_read_timeout(Some(left))?;
            let length = match self.0.recv(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                received => received?,
            };
            if let Some(content) = content_of(number, &bytes[..length]) {
                return read_parts(content).ok_or_else(|| io::Error::other("the answer is damaged"));
            }
        }
    }
}

/// The answer to [`Order::Export`] with this number. Parts beyond `LONGEST` bytes in total are left out with a warning.
pub fn answer(number: u64, parts: &[StatePart]) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST));
    bytes.push(EDITION);
    bytes.extend_from_slice(&number.to_be_bytes());
    for StatePart { name, bytes: content } in parts {
        let (Ok(name_length), Ok(length)) = (u8::try_from(name.len()), u32::try_from(content.len())) else {
            tracing::warn!(name, "the state is too large for a successor");
            continue;
        };
        if bytes.len() + size_of::<u8>() + name.len() + size_of::<u32>() + content.len() > LONGEST {
            tracing::warn!(name, bytes = length, "the state is too large for a successor");
            continue;
        }
        bytes.push(name_length);
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(content);
    }
    bytes
}

/// The encoded parts of an answer. `None` if it is no answer to this `number`.
fn content_of(number: u64, bytes: &[u8]) -> Option<&[u8]> {
    let (&[EDITION], rest) = bytes.split_first_chunk()? else { return None };
    let (answered, content) = rest.split_first_chunk()?;
    (u64::from_be_bytes(*answered) == number).then_some(content)
}

/// The parts of an answer. `None` if it is damaged.
fn read_parts(mut rest: &[u8]) -> Option<Vec<StatePart>> {
    let mut parts = Vec::new();
    while let Some((&name_length, after)) = rest.split_first() {
        let (name, after) = after.split_at_checked(name_length.into())?;
        let (length, after) = after.split_first_chunk()?;
        let (content, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        let name = String::from_utf8(name.to_vec()).ok()?;
        parts.push(StatePart { name, bytes: Zeroizing::new(content.to_vec()) });
        rest = after;
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn part(name: &str, bytes: &[u8]) -> StatePart {
        StatePart { name: name.to_owned(), bytes: Zeroizing::new(bytes.to_vec()) }
    }

    fn shown(parts: &[StatePart]) -> Vec<(&str, &[u8])> {
        parts.iter().map(|part| (&*part.name, &**part.bytes)).collect()
    }

    #[test]
    fn orders_are_read_as_they_are_written() {
        for order in [Order::Export(0), Order::Export(u64::MAX), Order::Replaced, Order::Abandoned] {
            assert_eq!(Order::read(&order.to_bytes()), Some(order));
        }
        let bytes = Order::Export(7).to_bytes();
        for length in 0..bytes.len() {
            assert_eq!(Order::read(&bytes[..length]), None, "{length} bytes");
        }
        assert_eq!(Order::read(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(Order::read(&[[2, 1], [0; 2]].concat()), None, "another edition");
        assert_eq!(Order::read(&[EDITION, 9, 0, 0, 0, 0, 0, 0, 0, 0]), None, "another kind");
    }

    #[test]
    fn a_successor_gets_the_answer_to_its_own_question() {
        let (own, other) = UnixDatagram::pair().expect("a pair");
        // Answers that a former successor has not read.
        own.send(&answer(1, &[part("tickets", b"old")])).expect("sent");
        own.send(b"garbage").expect("sent");
        let predecessor = thread::spawn(move || {
            let mut bytes = [0; 64];
            let length = own.recv(&mut bytes).expect("an order");
            let Some(Order::Export(number)) = Order::read(&bytes[..length]) else { panic!("{bytes:?}") };
            own.send(&answer(number, &[part("tickets", b"new"), part("other", b"")])).expect("sent");
        });
        let parts = Predecessor::new(other.into()).ask().expect("an answer");
        assert_eq!(shown(&parts), [("tickets", &b"new"[..]), ("other", b"")]);
        predecessor.join().expect("no panic");
    }

    #[test]
    fn a_predecessor_that_does_not_answer_is_left_after_two_seconds() {
        let (_own, other) = UnixDatagram::pair().expect("a pair");
        let error = Predecessor::new(other.into()).ask().expect_err("no answer");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn damaged_answers_are_refused_at_every_length() {
        let whole = answer(7, &[part("tickets", &[1; 40])]);
        assert!(content_of(8, &whole).is_none(), "another number");
        let ends = [9, whole.len()];
        for length in 0..=whole.len() {
            let content = content_of(7, &whole[..length]);
            assert_eq!(content.is_some(), length >= 9, "{length} bytes");
            assert_eq!(content.and_then(read_parts).is_some(), ends.contains(&length), "{length} bytes");
        }
    }

    #[test]
    fn state_that_is_too_large_is_left_out() {
        let whole = answer(7, &[part("large", &vec![1; LONGEST]), part("small", b"a")]);
        assert!(whole.len() <= LONGEST && whole.capacity() == LONGEST);
        let parts = content_of(7, &whole).and_then(read_parts).expect("parts");
        assert_eq!(shown(&parts), [("small", &b"a"[..])]);
    }
}
