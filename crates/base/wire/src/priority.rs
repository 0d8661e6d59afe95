//! Priorities of RFC 9218: how urgent an answer is, and whether its parts are of use before it is whole.

/// The priority of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// From 0, the most urgent, to 7.
    pub urgency: u8,
    /// Parts of the answer are of use: it shares the connection with others.
    pub incremental: bool,
}

/// The priority of a request that states none (RFC 9218 section 4).
pub const DEFAULT: Priority = Priority { urgency: 3, incremental: false };

impl Priority {
    /// Parses the value of a `priority` header or a `PRIORITY_UPDATE`: a dictionary of RFC 8941 with `u` and `i`.
    /// Unknown members and wrong types are ignored; the last of two members with one name counts.
    pub fn read(value: &[u8]) -> Self {
        let mut priority = DEFAULT;
        for member in value.split(|byte| *byte == b',') {
            match value_of(member.trim_ascii()) {
                (b"u", Some([digit @ b'0'..=b'7'])) => priority.urgency = digit - b'0',
                (b"i", None | Some(b"?1")) => priority.incremental = true,
                (b"i", Some(b"?0")) => priority.incremental = false,
                _ => {}
            }
        }
        priority
    }
}

/// The key of a member and its value, without parameters.
fn value_of(member: &[u8]) -> (&[u8], Option<&[u8]>) {
    // RFC 8941 section 3.1.2: parameters of a member have no meaning for priorities.
    let end = member.iter().position(|byte| *byte == b';').unwrap_or(member.len());
    let bare = member[..end].trim_ascii_end();
    match bare.iter().position(|byte| *byte == b'=') {
        Some(at) => (&bare[..at], Some(&bare[at + 1..])),
        None => (bare, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> (u8, bool) {
        let Priority { urgency, incremental } = Priority::read(value.as_bytes());
        (urgency, incremental)
    }

    #[test]
    fn priorities_are_read_as_browsers_write_them() {
        assert_eq!(read("u=1, i"), (1, true));
        assert_eq!(read("i"), (3, true));
        assert_eq!(read("u=0"), (0, false));
        assert_eq!(read("u=5,i=?1;a=b ,x=\"y\""), (5, true));
    }

    #[test]
    fn what_is_wrong_means_nothing() {
        for wrong in ["", "u=8", "u=-1", "u=1.5", "u", "u=77", "i=1", "U=1", ",,,", "=", "u=\"1\""] {
            assert_eq!(read(wrong), (3, false), "{wrong:?}");
        }
        assert_eq!(read("u=1,u=9"), (1, false));
        assert_eq!(read("u=1,u=2,i,i=?0"), (2, false));
    }
}
