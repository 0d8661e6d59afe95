//! The host name of the SNI extension.

use super::HelloError;
use crate::vectors::FieldReader;

/// The only type of a name.
const HOST_NAME: u8 = 0;

const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;

/// The host name in the extension's `data`, in lower case; `None` for an IP address.
pub(super) fn read(data: &[u8]) -> Result<Option<String>, HelloError> {
    let malformed = HelloError::Malformed("server_name extension");
    let mut list = FieldReader::filling(data).ok_or(malformed)?;
    // RFC 6066 section 3: the list is not empty and "MUST NOT contain more than one name of the same name_type".
    let (Some(HOST_NAME), Some(name), []) = (list.byte(), list.long(), list.0) else {
        return Err(malformed);
    };
    let name = str::from_utf8(name).map_err(|_| malformed)?;
    // RFC 6066 section 3: the name has no trailing dot. A dot is tolerated, because the host is the same.
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.parse::<std::net::IpAddr>().is_ok() {
        return Ok(None);
    }
    if !is_host_name(name) {
        return Err(HelloError::Malformed("server name is no host name"));
    }
    Ok(Some(name.to_ascii_lowercase()))
}

/// Letters, digits, hyphens inside labels; underscores too, which names in use have.
fn is_host_name(name: &str) -> bool {
    name.len() <= LONGEST_NAME && name.split('.').all(is_label)
}

fn is_label(label: &str) -> bool {
    let bytes = label.as_bytes();
    (1..=LONGEST_LABEL).contains(&bytes.len())
        && bytes[0] != b'-'
        && bytes[bytes.len() - 1] != b'-'
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extension(name: &[u8]) -> Vec<u8> {
        let length = name.len() as u16;
        let mut data = (length + 3).to_be_bytes().to_vec();
        data.push(0);
        data.extend(length.to_be_bytes());
        data.extend(name);
        data
    }

    #[test]
    fn names_are_lower_case_and_lose_the_trailing_dot() {
        let read = |name: &str| read(&extension(name.as_bytes())).unwrap();
        assert_eq!(read("Example.COM").as_deref(), Some("example.com"));
        assert_eq!(read("example.com.").as_deref(), Some("example.com"));
        assert_eq!(read("_dmarc.xn--bcher-kva.example").as_deref(), Some("_dmarc.xn--bcher-kva.example"));
    }

    #[test]
    fn an_ip_address_counts_as_no_name() {
        assert_eq!(read(&extension(b"192.0.2.1")), Ok(None));
        assert_eq!(read(&extension(b"::1")), Ok(None));
    }

    #[test]
    fn what_is_no_host_name_is_refused() {
        let long_label = [b'a'; 64];
        let long_name = ["a"; 200].join(".");
        for name in [
            b"".as_slice(),
            b".",
            b"a..b",
            b"-a.b",
            b"a-.b",
            b"a b",
            b"a\0b",
            b"a/b",
            b"\"x",
            b"\xff",
            b"*.a",
            &long_label,
            long_name.as_bytes(),
        ] {
            assert!(read(&extension(name)).is_err(), "{:?}", String::from_utf8_lossy(name));
        }
    }

    #[test]
    fn a_list_of_no_name_or_two_names_is_refused() {
        assert!(read(&[]).is_err());
        assert!(read(&[0, 0]).is_err());
        assert!(read(&[0, 8, 0, 0, 1, b'a', 0, 0, 1, b'b']).is_err());
    }
}
