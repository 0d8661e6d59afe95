//! Initial congestion window of the default route, queried with netlink (RFC 3549).

use std::time::Duration;

use rustix::io;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, recv, send, socket};

// Numbers of linux/netlink.h and linux/rtnetlink.h.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
const METRICS: u16 = 8;
const INITCWND: u16 = 11;
const MAIN_TABLE: u8 = 254;
const UNICAST: u8 = 1;

/// Maximum number of responses read.
const MOST: usize = 256;

/// Window in segments; `None` if the default route does not set it, there is no default route, or the query fails.
pub(super) fn initcwnd() -> Option<u32> {
    ask().ok().flatten()
}

fn ask() -> io::Result<Option<u32>> {
    // Protocol 0, the default, is NETLINK_ROUTE.
    let kernel = socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
    set_socket_timeout(&kernel, Timeout::Recv, Some(Duration::from_secs(1)))?;
    let mut request = Vec::with_capacity(28);
    request.extend(28_u32.to_ne_bytes());
    request.extend(GET_ROUTE.to_ne_bytes());
    request.extend(DUMP.to_ne_bytes());
    request.extend([0; 8]);
    // An `rtmsg` of which only the family, AF_INET, says something.
    request.extend([2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    send(&kernel, &request, SendFlags::empty())?;
    let mut buffer = vec![0; 64 << 10];
    for _ in 0..MOST {
        let (length, _) = recv(&kernel, &mut buffer[..], RecvFlags::empty())?;
        match read(&buffer[..length.min(64 << 10)]) {
            Answer::More => {}
            Answer::End => return Ok(None),
            Answer::Window(segments) => return Ok(Some(segments)),
        }
    }
    Ok(None)
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    More,
    End,
    Window(u32),
}

/// Parses the messages of a response.
fn read(mut messages: &[u8]) -> Answer {
    while let Some((length, kind)) = header(messages) {
        let Some(message) = messages.get(16..length) else { return Answer::End };
        match kind {
            DONE | ERROR => return Answer::End,
            NEW_ROUTE => {
                if let Some(segments) = of_route(message) {
                    return Answer::Window(segments);
                }
            }
            _ => {}
        }
        // `NLMSG_ALIGNTO` of linux/netlink.h.
        messages = messages.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Answer::More
}

fn header(bytes: &[u8]) -> Option<(usize, u16)> {
    let length = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    // A length of 0 would not advance the reader.
    (length >= 16).then_some((length, kind))
}

/// Window of a route, if it is the default route.
fn of_route(message: &[u8]) -> Option<u32> {
    let (&[_, destination, _, _, table, _, _, kind], attributes) =
        (message.first_chunk()?, message.get(12..)?);
    if (destination, table, kind) != (0, MAIN_TABLE, UNICAST) {
        return None;
    }
    let window = attribute(attribute(attributes, METRICS)?, INITCWND)?;
    Some(u32::from_ne_bytes(window.get(..4)?.try_into().ok()?))
}

/// Content of an attribute.
fn attribute(mut bytes: &[u8], number: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let content = bytes.get(4..length)?;
        // The highest bit says that attributes are within.
        if kind & 0x7fff == number {
            return Some(content);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute_of(number: u16, content: &[u8]) -> Vec<u8> {
        let length = (content.len() + 4) as u16;
        [&length.to_ne_bytes()[..], &number.to_ne_bytes(), content].concat()
    }

    fn route(destination: u8, metrics: &[u8]) -> Vec<u8> {
        let mut body = vec![2, destination, 0, 0, MAIN_TABLE, 3, 0, UNICAST, 0, 0, 0, 0];
        body.extend(attribute_of(15, &254_u32.to_ne_bytes()));
        body.extend(attribute_of(METRICS, metrics));
        let mut message = ((body.len() + 16) as u32).to_ne_bytes().to_vec();
        message.extend(NEW_ROUTE.to_ne_bytes());
        message.extend([0; 10]);
        message.extend(body);
        message
    }

    #[test]
    fn the_window_of_the_default_route_is_found() {
        let metrics = [attribute_of(1, &[0; 4]), attribute_of(INITCWND, &20_u32.to_ne_bytes())].concat();
        let messages = [route(24, &metrics), route(0, &metrics)].concat();
        assert_eq!(read(&messages), Answer::Window(20));
        assert_eq!(read(&route(24, &metrics)), Answer::More);
        assert_eq!(read(&route(0, &[])), Answer::More);
        let done = [&16_u32.to_ne_bytes()[..], &DONE.to_ne_bytes(), &[0; 10]].concat();
        assert_eq!(read(&done), Answer::End);
    }

    #[test]
    fn answers_that_end_early_are_no_reason_to_stop() {
        let metrics = attribute_of(INITCWND, &20_u32.to_ne_bytes());
        let message = route(0, &metrics);
        for length in 0..message.len() {
            assert_ne!(read(&message[..length]), Answer::Window(20), "{length}");
        }
    }

    #[test]
    fn the_kernel_answers() {
        ask().expect("routes can be read by every user");
    }
}
