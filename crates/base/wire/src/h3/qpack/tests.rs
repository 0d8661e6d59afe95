//! Examples of RFC 9204, references that need a dynamic table, and limits.

use super::*;
use crate::fields::lines::Lines;
use crate::fields::{FieldBlockError, OVERHEAD};

fn decoded(section: &[u8]) -> Result<Vec<String>, FieldBlockError> {
    let mut fields = Lines::qpack();
    Decoder::default().decode(section, 100, 1 << 16, &mut fields)?;
    Ok(fields.into_text())
}

#[test]
fn the_section_without_a_table_of_the_rfc_is_decoded() {
    // Appendix B.1
    let section = b"\0\0\x51\x0b/index.html";
    assert_eq!(decoded(section).as_deref(), Ok(&[":path: /index.html".to_owned()][..]));
    let mut out = Vec::new();
    begin(&mut out);
    field(b":path", b"/index.html", &mut out);
    // The same in Huffman code, which is shorter.
    assert!(out.len() < section.len() && out.starts_with(b"\0\0\x51\x88"), "{out:x?}");
    assert_eq!(decoded(&out), decoded(section));
}

#[test]
fn sections_that_need_a_dynamic_table_are_refused() {
    for section in [
        // Appendix B.2: insert count, base and two fields behind the base.
        &b"\x03\x81\x10\x11"[..],
        // A field and a name of the table, and both behind the base.
        b"\0\0\x80",
        b"\0\0\x40\x01a",
        b"\0\0\x10",
        b"\0\0\x00\x01a",
        // An insert count without references, and a negative base.
        b"\x01\0",
        b"\0\x80",
        // Behind the end of the static table.
        b"\0\0\xff\x24",
        b"\0\0\x5f\x54\x01a",
    ] {
        assert_eq!(decoded(section), Err(FieldBlockError::Index), "{}", section.escape_ascii());
    }
    // The last field of the static table, and a base that has no effect.
    assert_eq!(decoded(b"\0\x05\xff\x23").as_deref(), Ok(&["x-frame-options: sameorigin".to_owned()][..]));
}

#[test]
fn sections_that_end_early_or_have_wrong_strings_are_refused() {
    for section in [&b""[..], b"\0", b"\0\0\x51", b"\0\0\x51\x02a", b"\0\0\x22a", b"\0\0\xff", b"\0\0\x21a"] {
        assert_eq!(decoded(section), Err(FieldBlockError::Truncated), "{}", section.escape_ascii());
    }
    assert_eq!(decoded(b"\0\0\xff\xff\xff\xff\xff\xff"), Err(FieldBlockError::Number));
    assert_eq!(decoded(b"\0\0\x51\x81\xff"), Err(FieldBlockError::Huffman));
    assert_eq!(decoded(b"\0\0\x29\xff\x01a"), Err(FieldBlockError::Huffman));
}

#[test]
fn fields_are_decoded_as_they_were_encoded() {
    let fields = [
        ("content-type", "text/css"),
        ("content-type", "text/other"),
        ("x-own", "a value"),
        ("a-name-that-is-longer-than-its-prefix", ""),
        ("set-cookie", "id=1"),
        ("date", "Tue, 24 Nov 2026 08:00:00 GMT"),
    ];
    let mut out = Vec::new();
    begin(&mut out);
    for code in [103, 200, 418, 503] {
        status(code, &mut out);
    }
    for (name, value) in fields {
        field(name.as_bytes(), value.as_bytes(), &mut out);
    }
    let mut expected: Vec<_> = [103, 200, 418, 503].map(|code| format!(":status: {code}")).into();
    expected.extend(fields.map(|(name, value)| format!("{name}: {value}")));
    assert_eq!(decoded(&out), Ok(expected));
}

#[test]
fn secrets_are_never_added_to_a_table() {
    // RFC 9204 sections 4.5.4 and 4.5.6: the bit N.
    for (name, bit, is_secret) in [
        ("set-cookie", 0x20, true),
        ("authentication-info", 0x10, true),
        ("location", 0x20, false),
        ("x-own", 0x10, false),
    ] {
        let mut out = Vec::new();
        field(name.as_bytes(), b"value", &mut out);
        assert_eq!(out[0] & bit != 0, is_secret, "{name}");
    }
}

#[test]
fn lists_have_limits_of_fields_and_bytes() {
    // Three times the field 15.
    let section = [&b"\0\0"[..], &[0xc0 | 15; 3]].concat();
    let size = ":method".len() + "CONNECT".len() + OVERHEAD;
    for (most, limit, taken) in [(3, 3 * size, 3), (2, 3 * size, 2), (3, 3 * size - 1, 2), (3, 0, 0)] {
        let mut fields = Lines::qpack();
        let decoded = Decoder::default().decode(&section, most, limit, &mut fields).expect("a section");
        assert_eq!((fields.lines.len(), decoded.is_whole, decoded.size), (taken, taken == 3, 3 * size));
    }
}

#[test]
fn a_long_string_leaves_no_room_behind() {
    let mut section = vec![0, 0];
    field(b"x-long", &vec![b'a'; 20_000], &mut section);
    let mut decoder = Decoder::default();
    decoder.decode(&section, 100, 1 << 16, &mut Lines::qpack()).expect("a field");
    assert!(decoder.room_for_test() <= 4 << 10, "{}", decoder.room_for_test());
}
