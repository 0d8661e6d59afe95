//! Streams whose reads and writes are repeated after an interruption.

use std::io::{self, ErrorKind, Read, Write};

/// A stream that repeats interrupted calls.
///
/// A call on a socket with a timeout ends with `EINTR` if the process is stopped and continued meanwhile, even without a
/// signal handler (signal(7)). Libraries such as rustls and tungstenite report that as the end of a handshake or message.
#[derive(Debug)]
pub struct Uninterrupted<S>(pub S);

impl<S: Read> Read for Uninterrupted<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        repeated(|| self.0.read(buffer))
    }
}

impl<S: Write> Write for Uninterrupted<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        repeated(|| self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        repeated(|| self.0.flush())
    }
}

fn repeated<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::Head;

    /// Interrupts every second call.
    struct Interrupting<'a>(&'a [u8], bool);

    impl Read for Interrupting<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 { Err(ErrorKind::Interrupted.into()) } else { self.0.read(buffer) }
        }
    }

    #[test]
    fn an_interrupted_read_is_repeated() {
        let mut stream = Uninterrupted(Interrupting(b"ab", false));
        let mut buffer = [0; 4];
        assert_eq!((stream.read(&mut buffer).expect("data"), &buffer[..2]), (2, &b"ab"[..]));
        assert_eq!(stream.read(&mut buffer).expect("the end"), 0);
    }

    #[test]
    fn a_head_is_read_over_interruptions() {
        let head = Head::read(&mut Interrupting(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", false));
        assert_eq!(head.expect("no error").expect("a head").header("host"), Some("a"));
    }
}
