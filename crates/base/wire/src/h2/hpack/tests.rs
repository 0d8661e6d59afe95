//! The examples of RFC 7541 appendix C, limits, and both directions against another implementation.

mod stories;

use super::*;
use crate::fields::lines::{Line, Lines};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal")).collect()
}

type Table = Decoder<Line>;

fn decoded(decoder: &mut Table, block: &[u8]) -> Result<Vec<String>, HpackError> {
    let mut fields = Lines::hpack();
    decoder.decode(block, 100, 1 << 16, &mut fields)?;
    Ok(fields.into_text())
}

#[test]
fn a_long_string_leaves_no_room_behind() {
    let mut block = Vec::new();
    Encoder::new().field(b"x-long", &vec![b'a'; 20_000], &mut block);
    let mut decoder = Table::new(DEFAULT_TABLE);
    let fields = decoded(&mut decoder, &block).expect("a field");
    assert_eq!(fields[0].len(), "x-long: ".len() + 20_000);
    assert!(decoder.room_for_test() <= 4 << 10, "{}", decoder.room_for_test());
}

#[test]
fn the_requests_of_the_rfc_are_decoded() {
    // Appendices C.3 and C.4
    for blocks in [
        [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ],
        [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ],
    ] {
        let mut decoder = Table::new(DEFAULT_TABLE);
        let [first, second, third] = blocks.map(|block| decoded(&mut decoder, &hex(block)).expect("fields"));
        assert_eq!(first, [":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"]);
        assert_eq!(second[4], "cache-control: no-cache");
        assert_eq!(
            third[2..],
            [":path: /index.html", ":authority: www.example.com", "custom-key: custom-value"]
        );
    }
}

#[test]
fn the_responses_of_the_rfc_are_decoded_with_a_table_that_overflows() {
    // Appendix C.6
    let mut decoder = Table::new(256);
    let [first, second, third] = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7
         8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335
         dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ]
    .map(|block| decoded(&mut decoder, &hex(block)).expect("fields"));
    let date = "date: Mon, 21 Oct 2013 20:13:21 GMT";
    assert_eq!(first, [":status: 302", "cache-control: private", date, "location: https://www.example.com"]);
    assert_eq!(second, [":status: 307", "cache-control: private", date, "location: https://www.example.com"]);
    assert_eq!(third[..2], [":status: 200", "cache-control: private"]);
    assert_eq!(third[5], "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1");
    let sizes: Vec<_> = decoder_sizes(&decoder);
    assert_eq!(sizes, [98, 52, 65], "as in C.6.3");
}

fn decoder_sizes(decoder: &Table) -> Vec<usize> {
    // An index beyond the last is refused; so the table is seen by asking.
    let mut sizes = Vec::new();
    for place in 0.. {
        let mut fields = Lines::hpack();
        let mut probe = decoder.clone_for_test();
        match probe.decode(&[0x80 | (62 + place)], 1, 1 << 16, &mut fields) {
            Ok(decoded) => sizes.push(decoded.size),
            Err(_) => return sizes,
        }
    }
    sizes
}

#[test]
fn blocks_that_break_the_rules_are_refused() {
    let refused = |block: &str| decoded(&mut Table::new(DEFAULT_TABLE), &hex(block)).expect_err(block);
    assert_eq!(refused("80"), HpackError::Index);
    assert_eq!(refused("be"), HpackError::Index);
    assert_eq!(refused("7f00 00"), HpackError::Index);
    assert_eq!(refused("ff80 8080 8080 00"), HpackError::Number);
    assert_eq!(refused("ffff ffff ff7f"), HpackError::Number);
    assert_eq!(refused("ff"), HpackError::Truncated);
    assert_eq!(refused("4005 6162"), HpackError::Truncated);
    assert_eq!(refused("4081 ff00"), HpackError::Huffman);
    assert_eq!(refused("3fe2 1f"), HpackError::TableSize);
    assert_eq!(refused("8220"), HpackError::TableSize);
}

#[test]
fn a_list_is_cut_at_its_limits_and_the_table_is_kept() {
    let mut decoder = Table::new(DEFAULT_TABLE);
    // One field of 41 bytes into the table, then ten times.
    let block = [hex("4003 6162 6306 6465 6667 6869"), vec![0xbe; 10]].concat();
    for (most, size, taken) in [(3, 1000, 3), (100, 4 * 41, 4), (0, 0, 0)] {
        let mut fields = Lines::hpack();
        let decoded = decoder.decode(&block, most, size, &mut fields).expect("a block");
        assert_eq!((fields.lines.len(), decoded.is_whole, decoded.size), (taken, false, 11 * 41));
    }
    assert_eq!(decoded(&mut decoder, &[0xc0]).expect("three fields in the table"), ["abc: defghi"]);
}

#[test]
fn what_is_encoded_is_decoded_alike_whatever_the_table_size() {
    let (mut encoder, mut decoder) = (Encoder::new(), Table::new(DEFAULT_TABLE));
    let mut sizes = Vec::new();
    for round in 0..200 {
        match round {
            50 => [0, 100].iter().for_each(|size| encoder.resize(*size)),
            100 => encoder.resize(1 << 20),
            _ => {}
        }
        let (number, long) = (round.to_string(), "x".repeat(round * 3));
        let list = [
            ("content-type", "text/html"),
            ("content-length", &number),
            ("date", if round % 100 < 50 { "Mon, 21 Oct 2013 20:13:21 GMT" } else { "Tue" }),
            ("x-served-by", "brisk"),
            ("x-long", &long),
            ("set-cookie", "a=b"),
            ("accept-encoding", "gzip, deflate"),
            ("x-empty", ""),
        ];
        let mut block = Vec::new();
        encoder.begin(&mut block);
        encoder.status([200, 404, 418, 503][round % 4], &mut block);
        for (name, value) in list {
            encoder.field(name.as_bytes(), value.as_bytes(), &mut block);
        }
        let expected = list.iter().map(|(name, value)| format!("{name}: {value}"));
        let status = format!(":status: {}", [200, 404, 418, 503][round % 4]);
        let expected: Vec<_> = [status].into_iter().chain(expected).collect();
        assert_eq!(decoded(&mut decoder, &block), Ok(expected), "round {round}");
        sizes.push(block.len());
    }
    assert!(sizes[4] < sizes[0] / 2, "fields that come again are indexed: {sizes:?}");
}

#[test]
fn secrets_are_never_indexed() {
    let mut encoder = Encoder::new();
    for _ in 0..3 {
        let mut block = Vec::new();
        encoder.field(b"set-cookie", b"id=secret", &mut block);
        encoder.field(b"authorization", b"secret", &mut block);
        assert_eq!(block[..2], [0x1f, 55 - 15]);
        assert_eq!(block.len(), 2 + 1 + 6 + 2 + 1 + 4, "{block:x?}");
    }
}

#[test]
fn a_status_is_indexed_at_once() {
    let mut encoder = Encoder::new();
    let mut block = Vec::new();
    encoder.status(503, &mut block);
    encoder.status(503, &mut block);
    assert_eq!((block[0], block[block.len() - 1]), (0x48, 0xbe));
}
