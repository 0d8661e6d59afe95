//! Parser for `application/x-www-form-urlencoded`: form fields and query parameters.

/// The decoded value of the first field with this name, cut to `most` bytes.
pub(crate) fn field(form: &[u8], name: &str, most: usize) -> Option<Vec<u8>> {
    let own = |pair: &[u8]| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec);
    let value = form.split(|byte| *byte == b'&').find_map(own)?;
    let mut decoded = Vec::with_capacity(value.len().min(most));
    let mut rest = &value[..];
    while let Some((first, tail)) = rest.split_first().filter(|_| decoded.len() < most) {
        let digits = tail.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| str::from_utf8(digits).ok());
        let escaped =
            digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(escaped.unwrap_or(if *first == b'+' { b' ' } else { *first }));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_decoded_and_bounded() {
        let token = |form: &str| {
            field(form.as_bytes(), "token", 100).map(|value| String::from_utf8_lossy(&value).into_owned())
        };
        for (form, value) in [
            ("token=abc", Some("abc")),
            ("x=1&token=a%2Fb%3d+c&y", Some("a/b= c")),
            ("token=%zz%4", Some("%zz%4")),
            ("token=%+1", Some("% 1")),
            ("token=", Some("")),
            ("token=%ff", Some("\u{fffd}")),
            ("tokens=1", None),
            ("nothing", None),
        ] {
            assert_eq!(token(form).as_deref(), value, "{form}");
        }
        assert_eq!(token(&format!("token={}", "x".repeat(5000))).map(|value| value.len()), Some(100));
    }
}
