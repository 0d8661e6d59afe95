//! Reader and writer for the part of DER (X.690) that OCSP and revocation lists need and `x509-parser` does not expose.
//! Reading neither copies nor recurses.

use std::time::SystemTime;

use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

use crate::x509::system_time;

pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OID: u8 = 0x06;
pub(crate) const ENUMERATED: u8 = 0x0a;
pub(crate) const UTC_TIME: u8 = 0x17;
pub(crate) const GENERALIZED_TIME: u8 = 0x18;
pub(crate) const SEQUENCE: u8 = 0x30;

/// Reason why bytes are malformed, for the operator.
pub(crate) type Malformed = &'static str;

/// A DER element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element<'a> {
    pub(crate) tag: u8,
    pub(crate) content: &'a [u8],
    /// Tag, length and contents.
    pub(crate) whole: &'a [u8],
}

impl<'a> Element<'a> {
    /// A reader for the elements in the contents.
    pub(crate) fn inside(self) -> Reader<'a> {
        Reader(self.content)
    }

    /// The contents of a BIT STRING. An error if it has unused bits.
    pub(crate) fn bits(self) -> Result<&'a [u8], Malformed> {
        match self.content.split_first() {
            Some((0, bits)) if self.tag == BIT_STRING => Ok(bits),
            _ => Err("a string of bits that are not whole bytes"),
        }
    }

    /// The contents of an INTEGER in its shortest form.
    pub(crate) fn integer(self) -> Result<&'a [u8], Malformed> {
        // X.690 section 8.3.2. Contents are compared as bytes, and a longer form of a number differs from it.
        match self.content {
            [] | [0, 0..=0x7f, ..] | [0xff, 0x80..=0xff, ..] => {
                Err("an INTEGER that is not in its shortest form")
            }
            content if self.tag == INTEGER => Ok(content),
            _ => Err("another element than an INTEGER"),
        }
    }

    /// The value of a BOOLEAN, whose tag may be an implicit one.
    pub(crate) fn boolean(self) -> Result<bool, Malformed> {
        // X.690 section 11.1. BER permits any other value for TRUE, so a comparison with 0xff alone would turn it into FALSE.
        match self.content {
            [0] => Ok(false),
            [0xff] => Ok(true),
            _ => Err("a BOOLEAN that is neither TRUE nor FALSE"),
        }
    }

    /// The time of a `UTCTime` or `GeneralizedTime`.
    pub(crate) fn time(self) -> Result<SystemTime, Malformed> {
        let read = if matches!(self.tag, UTC_TIME | GENERALIZED_TIME) {
            ASN1Time::from_der(self.whole).ok()
        } else {
            None
        };
        let (_, time) = read.ok_or("a time that cannot be read")?;
        Ok(system_time(time))
    }
}

/// Reader for consecutive elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads an element of any tag.
    pub(crate) fn next(&mut self) -> Result<Element<'a>, Malformed> {
        let bytes = self.0;
        let [tag, first, rest @ ..] = bytes else { return Err("it ends too early") };
        // None of the structures has tags of several bytes (X.690 section 8.1.2.4).
        if tag & 0x1f == 0x1f {
            return Err("a tag that is unknown here");
        }
        let (len, rest) = length(*first, rest)?;
        let content = rest.get(..len).ok_or("it ends too early")?;
        let whole = bytes.len() - rest.len() + len;
        self.0 = &bytes[whole..];
        Ok(Element { tag: *tag, content, whole: &bytes[..whole] })
    }

    /// Reads an element with the tag `tag`.
    pub(crate) fn expect(&mut self, tag: u8) -> Result<Element<'a>, Malformed> {
        self.optional(tag)?.ok_or("another element than expected")
    }

    /// Reads an element if it has the tag `tag`.
    pub(crate) fn optional(&mut self, tag: u8) -> Result<Option<Element<'a>>, Malformed> {
        if self.0.first() == Some(&tag) { self.next().map(Some) } else { Ok(None) }
    }

    /// Reads a BOOLEAN if it has the tag `tag`; `false` by default.
    pub(crate) fn flag(&mut self, tag: u8) -> Result<bool, Malformed> {
        self.optional(tag)?.map_or(Ok(false), Element::boolean)
    }

    /// Fails unless all elements have been read.
    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.is_empty() { Ok(()) } else { Err("something follows its end") }
    }
}

/// Reads `bytes` as a single SEQUENCE and returns a reader for its contents.
pub(crate) fn sequence(bytes: &[u8]) -> Result<Reader<'_>, Malformed> {
    let mut reader = Reader::new(bytes);
    let element = reader.expect(SEQUENCE)?;
    reader.end()?;
    Ok(element.inside())
}

// X.690 section 8.1.3. Section 10.1 (DER) requires the shortest form.
fn length(first: u8, rest: &[u8]) -> Result<(usize, &[u8]), Malformed> {
    if first < 0x80 {
        return Ok((usize::from(first), rest));
    }
    let count = usize::from(first & 0x7f);
    // Four bytes cannot overflow `usize`. A count of 0 is the indefinite form, which DER forbids (X.690
    // section 10.1).
    let Some((bytes, rest)) = rest.split_at_checked(count).filter(|_| (1..=4).contains(&count)) else {
        return Err("a length that is unknown here");
    };
    let len = bytes.iter().fold(0_usize, |len, byte| len << 8 | usize::from(*byte));
    if len < 0x80 || bytes[0] == 0 {
        return Err("a length in a longer form than needed");
    }
    Ok((len, rest))
}

/// Encodes an element with the concatenated `contents`.
pub(crate) fn write(tag: u8, contents: &[&[u8]]) -> Vec<u8> {
    let len: usize = contents.iter().map(|content| content.len()).sum();
    let mut element = vec![tag];
    if len < 0x80 {
        element.push(len as u8);
    } else {
        let bytes = len.to_be_bytes();
        let bytes = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
        element.push(0x80 | bytes.len() as u8);
        element.extend_from_slice(bytes);
    }
    for content in contents {
        element.extend_from_slice(content);
    }
    element
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for len in [0, 1, 127, 128, 255, 256, 70_000] {
            let content = vec![7; len];
            let element = write(OCTET_STRING, &[&content]);
            let mut reader = Reader::new(&element);
            assert_eq!(reader.expect(OCTET_STRING).unwrap().content, content);
            assert!(reader.end().is_ok());
        }
    }

    #[test]
    fn booleans_are_0x00_or_0xff() {
        let flag = |bytes: &[u8]| Reader::new(bytes).flag(BOOLEAN);
        assert_eq!(
            (flag(&[1, 1, 0]), flag(&[1, 1, 0xff]), flag(&[2, 1, 7])),
            (Ok(false), Ok(true), Ok(false))
        );
        for wrong in [&[1, 1, 1][..], &[1, 1, 0x7f], &[1, 0], &[1, 2, 0, 0xff]] {
            assert!(flag(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn integers_have_their_shortest_form() {
        let is_refused = |bytes: &[u8]| Reader::new(bytes).next().and_then(Element::integer).is_err();
        for right in [&[0][..], &[0x7f], &[0, 0x80], &[0xff], &[0xff, 0x7f], &[0x80, 0]] {
            let bytes = write(INTEGER, &[right]);
            assert_eq!(Reader::new(&bytes).next().and_then(Element::integer), Ok(right));
        }
        for wrong in [&[2, 0][..], &[2, 2, 0, 5], &[2, 2, 0xff, 0x80], &[1, 1, 5]] {
            assert!(is_refused(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for bytes in [
            &[][..],
            &[0x30],
            &[0x30, 1],
            &[0x30, 0x80, 0, 0],
            &[0x30, 0x81, 1, 0],
            &[0x30, 0x82, 0, 0x80],
            &[0x30, 0x85, 1, 1, 1, 1, 1],
            &[0x1f, 0x81, 0],
        ] {
            assert!(Reader::new(bytes).next().is_err(), "{bytes:?}");
        }
        assert!(sequence(&[0x30, 0, 0]).is_err());
    }
}
