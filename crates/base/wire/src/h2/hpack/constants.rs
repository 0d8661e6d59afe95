//! The static table of RFC 7541 appendix A.

use crate::fields::names::Names;

/// The fields of the static table; its first index is 1.
pub const CONSTANTS: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// The field at an index of the static table.
pub fn constant(index: usize) -> Option<(&'static str, &'static str)> {
    CONSTANTS.get(index.checked_sub(1)?).copied()
}

static NAMES: Names = Names::new(&CONSTANTS);

/// The first index of the static table with this name.
pub fn index_of_name(name: &[u8]) -> Option<usize> {
    NAMES.find(&CONSTANTS, name).map(|place| place + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_their_first_index() {
        for (name, _) in CONSTANTS {
            let first = CONSTANTS.iter().position(|(other, _)| *other == name).map(|place| place + 1);
            assert_eq!(index_of_name(name.as_bytes()), first, "{name}");
        }
        for unknown in ["", "x", "x-forwarded-for", "Date", "content-lengtH", ":protocol"] {
            assert_eq!(index_of_name(unknown.as_bytes()), None, "{unknown}");
        }
        assert_eq!((constant(0), constant(62)), (None, None));
        assert_eq!(constant(2), Some((":method", "GET")));
    }
}
