//! Headers for upstreams that are made of claims: `claims_to_headers` of a route with `jwt`.

use std::fmt::Write as _;

use http::{HeaderName, HeaderValue};
use serde_json::Value;

use crate::rules::Claims;

/// A header with the value of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimHeader {
    /// Name of the header, in place of the header of the client with this name.
    pub header: HeaderName,
    /// Name of the claim; names of members separated by dots for a claim in objects.
    pub claim: String,
}

impl ClaimHeader {
    /// The value: a text, number or boolean, or a list of them separated by `,`. `None` for `null`, objects and nested lists,
    /// for a missing claim, and for a value that is empty.
    ///
    /// Bytes other than visible ASCII characters and spaces are percent-encoded; in lists also `,` and `%`, so that no entry of
    /// a list is read as two.
    pub(crate) fn value(&self, claims: &Claims) -> Option<HeaderValue> {
        let mut text = String::new();
        match self.find(claims)? {
            Value::Array(entries) => {
                for (index, entry) in entries.iter().enumerate() {
                    if index > 0 {
                        text.push(',');
                    }
                    encode(&scalar(entry)?, b",%", &mut text);
                }
            }
            value => encode(&scalar(value)?, b"", &mut text),
        }
        // RFC 9110 section 5.5: a field value neither begins nor ends with white space.
        let text = text.trim();
        HeaderValue::from_str(text).ok().filter(|_| !text.is_empty())
    }

    fn find<'c>(&self, claims: &'c Claims) -> Option<&'c Value> {
        // The whole name precedes its parts: RFC 7519 section 4.2 permits URIs as names, such as "https://example.com/roles".
        claims.get(&self.claim).or_else(|| {
            let mut names = self.claim.split('.');
            let first = claims.get(names.next()?)?;
            names.try_fold(first, |value, name| value.as_object()?.get(name))
        })
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(is_true) => Some(is_true.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn encode(text: &str, reserved: &[u8], out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if !reserved.contains(&byte) => out.push(char::from(byte)),
            other => {
                // A string takes all text.
                let _ = write!(out, "%{other:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_become_one_header_each() {
        let claims = json!({
            "sub": "al\r\nice: \u{fc}",
            "groups": ["a", "b,c%", 7, true],
            "realm": {"roles": ["x"]},
            "https://example.com/role": "admin",
            "nested": [["a"]],
            "empty": "",
            "none": [],
        });
        let value = |claim: &str| {
            let header = ClaimHeader { header: HeaderName::from_static("x-a"), claim: claim.to_owned() };
            let value = header.value(claims.as_object().expect("claims"))?;
            Some(value.to_str().expect("ASCII").to_owned())
        };
        for (claim, expected) in [
            ("sub", Some("al%0D%0Aice: %C3%BC")),
            ("groups", Some("a,b%2Cc%25,7,true")),
            ("realm.roles", Some("x")),
            ("https://example.com/role", Some("admin")),
            ("realm", None),
            ("nested", None),
            ("empty", None),
            ("none", None),
            ("missing", None),
            ("sub.x", None),
        ] {
            assert_eq!(value(claim).as_deref(), expected, "{claim}");
        }
    }
}
