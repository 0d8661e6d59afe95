//! The static table of RFC 7541 appendix A.

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

/// Places of [`NAMES`]: a power of two, most of them free.
const PLACES: usize = 256;

/// The indices of names, 0 where there is none, at the place of their hash or behind it.
static NAMES: [u8; PLACES] = places();

const fn hash(name: &[u8]) -> usize {
    let (first, last) = (name[0] as usize, name[name.len() - 1] as usize);
    let middle = name[name.len() / 2] as usize;
    (name.len() * 5 + first * 3 + last * 11 + middle * 17) % PLACES
}

const fn places() -> [u8; PLACES] {
    let mut places = [0; PLACES];
    let mut number = CONSTANTS.len();
    // From the end, so that of equal names the first is found first.
    while number > 0 {
        number -= 1;
        let mut at = hash(CONSTANTS[number].0.as_bytes());
        let mut placed = number as u8 + 1;
        // The earlier entry takes the place of the later one, which moves on.
        while placed != 0 {
            let there = places[at];
            places[at] = placed;
            placed = there;
            at = (at + 1) % PLACES;
        }
    }
    places
}

/// The first index of the static table with this name.
pub fn index_of_name(name: &[u8]) -> Option<usize> {
    if name.is_empty() {
        return None;
    }
    let mut at = hash(name);
    loop {
        match usize::from(NAMES[at]) {
            0 => return None,
            index if CONSTANTS[index - 1].0.as_bytes() == name => return Some(index),
            _ => at = (at + 1) % PLACES,
        }
    }
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
