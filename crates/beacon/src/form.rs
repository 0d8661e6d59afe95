//! Parser of key-value pairs, as in queries of URLs and posted forms.

/// Pairs that are looked at: a form with more is refused.
const MOST: usize = 1000;
/// The longest value that is decoded.
const LONGEST: usize = 64;

/// Calls `take` with each key and value as they are written; stops at its first error.
pub(crate) fn pairs<'f, E>(
    form: &'f [u8],
    too_many: E,
    mut take: impl FnMut(&'f [u8], &'f [u8]) -> Result<(), E>,
) -> Result<(), E> {
    for (index, pair) in form.split(|byte| *byte == b'&').enumerate() {
        if index >= MOST {
            return Err(too_many);
        }
        let Some(end) = pair.iter().position(|byte| *byte == b'=') else { continue };
        take(&pair[..end], &pair[end + 1..])?;
    }
    Ok(())
}

/// A value without its percent-encoding, in `room`. `None` if it is too long or its encoding is wrong.
pub(crate) fn decoded<'r>(value: &[u8], room: &'r mut [u8; LONGEST]) -> Option<&'r [u8]> {
    let mut length = 0;
    let mut rest = value.iter();
    while let Some(byte) = rest.next() {
        *room.get_mut(length)? = match byte {
            b'+' => b' ',
            b'%' => digit(*rest.next()?)? << 4 | digit(*rest.next()?)?,
            byte => *byte,
        };
        length += 1;
    }
    Some(&room[..length])
}

pub(crate) const fn room() -> [u8; LONGEST] {
    [0; LONGEST]
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|value| value as u8)
}

/// A number as scripts write them: digits, perhaps with a point and a sign; no exponent and no words.
pub(crate) fn number(value: &[u8]) -> Option<f64> {
    let is_plain = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-');
    let text = std::str::from_utf8(value).ok().filter(|text| text.len() <= 24)?;
    text.bytes().all(|byte| is_plain(&byte)).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(form: &str) -> Vec<(String, Option<String>)> {
        let mut found = Vec::new();
        let read = pairs(form.as_bytes(), (), |key, value| {
            let mut room = room();
            let value = decoded(value, &mut room).map(|value| String::from_utf8_lossy(value).into_owned());
            found.push((String::from_utf8_lossy(key).into_owned(), value));
            Ok(())
        });
        assert!(read.is_ok());
        found
    }

    #[test]
    fn pairs_are_split_and_values_decoded() {
        let some = |key: &str, value: &str| (key.to_owned(), Some(value.to_owned()));
        assert_eq!(
            read("a=1&b=%41+c&&d&e=&=f"),
            [some("a", "1"), some("b", "A c"), some("e", ""), some("", "f")]
        );
        assert_eq!(read("a=%4&b=%zz"), [("a".to_owned(), None), ("b".to_owned(), None)]);
        assert_eq!(read(&format!("a={}", "x".repeat(65)))[0].1, None);
        let many = "a=1&".repeat(MOST + 1);
        assert_eq!(pairs(many.as_bytes(), "too many", |_, _| Ok(())), Err("too many"));
    }

    #[test]
    fn numbers_are_digits() {
        assert_eq!(number(b"12.5"), Some(12.5));
        assert_eq!(number(b"-1"), Some(-1.0));
        for wrong in ["", "inf", "NaN", "1e9", "0x1", "1.2.3", "1 ", "1111111111111111111111111"] {
            assert_eq!(number(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
