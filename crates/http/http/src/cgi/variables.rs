//! Variables of a request (RFC 3875 section 4.1).

use http::{HeaderName, header};

use crate::message::HeaderList;

/// Variables with names and values in one buffer, in the order of their addition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables {
    bytes: Vec<u8>,
    /// Lengths of each name and its value.
    lengths: Vec<(u32, u32)>,
}

/// Headers that are no variables of their own: those with another name in CGI, those of the connection and the framing, which
/// end at the gateway, and `Proxy`, which would become `HTTP_PROXY` (CVE-2016-5385).
const OMITTED: [&str; 10] = [
    "connection",
    "content-length",
    "content-type",
    "keep-alive",
    "proxy",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

impl Variables {
    /// Adds a variable.
    pub fn add(&mut self, name: &str, value: impl AsRef<[u8]>) {
        let value = value.as_ref();
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.extend_from_slice(value);
        self.lengths.push((name.len() as u32, value.len() as u32));
    }

    /// Adds a variable, unless there is one with this name.
    pub fn add_missing(&mut self, name: &str, value: impl AsRef<[u8]>) {
        if !self.has(name) {
            self.add(name, value);
        }
    }

    /// Whether there is a variable with this name.
    pub fn has(&self, name: &str) -> bool {
        self.iter().any(|(own, _)| own == name.as_bytes())
    }

    /// Number of bytes in memory.
    pub fn size(&self) -> usize {
        self.bytes.capacity() + self.lengths.capacity() * size_of::<(u32, u32)>()
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &*self.bytes;
        self.lengths.iter().map(move |(name, value)| {
            let (own, after) = rest.split_at(*name as usize);
            let (value, after) = after.split_at(*value as usize);
            rest = after;
            (own, value)
        })
    }

    /// Adds the headers of a request as `HTTP_NAME`, except for those of the message's framing and names that are present. Lines
    /// with one name are joined. A name with other characters than letters, digits and hyphens is left out if it would become the
    /// variable of another header.
    pub fn add_headers(&mut self, headers: &HeaderList) {
        let own = self.lengths.len();
        let mut variable = String::new();
        let mut value = Vec::new();
        for (index, (name, first)) in headers.iter().enumerate() {
            // Searches instead of a table, since the limit of headers bounds the number of lines.
            let is_again = headers.iter().take(index).any(|(earlier, _)| earlier == name);
            if is_again || OMITTED.contains(&name.as_str()) || is_copy(name, headers) {
                continue;
            }
            variable.clear();
            variable.push_str("HTTP_");
            variable.extend(name.as_str().bytes().map(upper));
            // A client must not replace a variable of the operator.
            if self.iter().take(own).any(|(fixed, _)| fixed == variable.as_bytes()) {
                continue;
            }
            value.clear();
            value.extend_from_slice(first.as_bytes());
            // RFC 9113 section 8.2.3 for cookies, RFC 9110 section 5.3 for others.
            let separator: &[u8] = if *name == header::COOKIE { b"; " } else { b", " };
            for more in headers.get_all(name).skip(1) {
                value.extend_from_slice(separator);
                value.extend_from_slice(more.as_bytes());
            }
            self.add(&variable, &value);
        }
    }
}

fn upper(byte: u8) -> char {
    if byte.is_ascii_alphanumeric() { byte.to_ascii_uppercase().into() } else { '_' }
}

fn is_usual(name: &HeaderName) -> bool {
    name.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Whether the variable of `name` is that of another header, whose name has only usual characters or precedes.
fn is_copy(name: &HeaderName, headers: &HeaderList) -> bool {
    if is_usual(name) {
        return false;
    }
    let own = name.as_str();
    let is_same =
        |other: &str| other.len() == own.len() && other.bytes().map(upper).eq(own.bytes().map(upper));
    let before = headers.names().position(|other| other == name).unwrap_or_default();
    let mut others = headers.names().enumerate().filter(|(_, other)| *other != name);
    OMITTED.into_iter().any(is_same)
        || others.any(|(index, other)| (is_usual(other) || index < before) && is_same(other.as_str()))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(headers: &[(&'static str, &'static str)]) -> Vec<String> {
        let lines = headers.iter();
        let lines =
            lines.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut variables = Variables::default();
        variables.add("HTTP_FIXED", "own");
        variables.add_headers(&lines.collect());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        variables.iter().skip(1).map(|(name, value)| format!("{}={}", text(name), text(value))).collect()
    }

    #[test]
    fn headers_become_variables() {
        let headers = [
            ("host", "a.test"),
            ("x-a", "1"),
            ("cookie", "a=1"),
            ("content-type", "text/plain"),
            ("content-length", "5"),
            ("x-a", "2"),
            ("cookie", "b=2"),
            ("transfer-encoding", "chunked"),
            ("fixed", "forged"),
        ];
        assert_eq!(of(&headers), ["HTTP_HOST=a.test", "HTTP_X_A=1, 2", "HTTP_COOKIE=a=1; b=2"]);
    }

    #[test]
    fn no_spelling_forges_the_variable_of_another_header() {
        let headers = [
            ("x_user", "forged"),
            ("x-user", "anna"),
            ("x.user", "forged"),
            ("proxy", "evil"),
            ("content_length", "1"),
        ];
        assert_eq!(of(&headers), ["HTTP_X_USER=anna"]);
        assert_eq!(of(&[("x.a", "1"), ("x_a", "2")]), ["HTTP_X_A=1"]);
    }
}
