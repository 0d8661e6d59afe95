//! Fields of `application/x-www-form-urlencoded`: forms and queries of URLs.

/// The decoded value of the first field with this name, cut to `most` bytes.
pub(crate) fn field(form: &[u8], name: &str, most: usize) -> Option<String> {
    let (_, value) = form_urlencoded::parse(form).find(|(key, _)| key == name)?;
    let mut value = value.into_owned();
    value.truncate(value.floor_char_boundary(most));
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_decoded_and_bounded() {
        let token = |form: &str| field(form.as_bytes(), "token", 100);
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
