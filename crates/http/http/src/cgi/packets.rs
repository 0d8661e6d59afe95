//! Heads of requests of uwsgi and SCGI. The body follows as it is, and the connection carries one request.

use bytes::{BufMut as _, BytesMut};

use super::{TooManyVariables, Variables};

/// Writes the packet of a uwsgi request for a WSGI application (modifiers 0).
///
/// # Errors
///
/// [`TooManyVariables`] above 65,535 bytes; nothing is written.
pub fn uwsgi(variables: &Variables, out: &mut BytesMut) -> Result<(), TooManyVariables> {
    let size: usize = variables.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    // Checked before the first byte, because the length precedes the variables.
    let size = u16::try_from(size).map_err(|_| TooManyVariables)?;
    out.reserve(usize::from(size) + 4);
    out.put_u8(0);
    out.put_u16_le(size);
    out.put_u8(0);
    for part in variables.iter().flat_map(|(name, value)| [name, value]) {
        // Does not truncate: the sum of all lengths fits.
        out.put_u16_le(part.len() as u16);
        out.extend_from_slice(part);
    }
    Ok(())
}

/// Writes the netstring of an SCGI request with a body of `length` bytes. `variables` must not have `CONTENT_LENGTH`, which is the
/// first of all, and `SCGI`.
pub fn scgi(length: u64, variables: &Variables, out: &mut BytesMut) {
    let first = format!("CONTENT_LENGTH\0{length}\0SCGI\x001\0");
    let others: usize = variables.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    out.extend_from_slice(format!("{}:{first}", first.len() + others).as_bytes());
    for part in variables.iter().flat_map(|(name, value)| [name, value]) {
        // NUL ends a part, and no header has it.
        out.extend(part.iter().map(|byte| if *byte == 0 { b' ' } else { *byte }));
        out.put_u8(0);
    }
    out.put_u8(b',');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> Variables {
        let mut variables = Variables::default();
        variables.add("A", "bc");
        variables.add("DE", "");
        variables
    }

    #[test]
    fn a_uwsgi_packet_has_lengths_in_little_endian() {
        let mut out = BytesMut::new();
        uwsgi(&variables(), &mut out).expect("a packet");
        assert_eq!(&out[..], b"\0\x0d\0\0\x01\0A\x02\0bc\x02\0DE\0\0");
        let mut large = Variables::default();
        large.add("A", vec![b'x'; 65_530]);
        assert_eq!(uwsgi(&large, &mut BytesMut::new()), Ok(()));
        large.add("B", "");
        assert_eq!(uwsgi(&large, &mut BytesMut::new()), Err(TooManyVariables));
    }

    #[test]
    fn an_scgi_request_begins_with_its_length() {
        let mut out = BytesMut::new();
        scgi(27, &variables(), &mut out);
        assert_eq!(&out[..], b"34:CONTENT_LENGTH\x0027\0SCGI\x001\0A\0bc\0DE\0\0,");
    }
}
