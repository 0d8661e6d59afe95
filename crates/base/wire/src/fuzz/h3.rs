//! Properties of HTTP/3 streams.

use super::LIMIT;
use crate::h3::error::Code;
use crate::h3::order::{ControlOrder, Order, RequestOrder};
use crate::h3::qpack::instructions::DecoderStream;
use crate::h3::reader::{FrameReader, Item};
use crate::h3::settings::PeerSettings;
use crate::h3::{frame, varint};
use crate::priority::Priority;

/// Items of a stream with this order that arrives in pieces of `piece` bytes. Parts of `DATA` are joined.
fn h3_items<O: Order>(order: O, bytes: &[u8], piece: usize) -> (Vec<(u64, Vec<u8>)>, Option<Code>) {
    let mut reader = FrameReader::new(order);
    let mut items = Vec::new();
    let mut written = Vec::new();
    for mut input in bytes.chunks(piece.max(1)) {
        loop {
            let item = match reader.next(&mut input) {
                Ok(Some(item)) => item,
                Ok(None) => break,
                Err(code) => return (items, Some(code)),
            };
            match item {
                Item::Head(head) => {
                    written.clear();
                    head.write(&mut written);
                    assert!(written.len() <= 2 * varint::LONGEST);
                    items.push((head.kind, head.length.to_be_bytes().into()));
                }
                Item::Data(part) => items.last_mut().expect("a head").1.extend_from_slice(part),
                Item::Frame(kind, payload) => {
                    assert!(payload.len() <= 2 * LIMIT);
                    items.push((kind, payload.into_owned()));
                }
                Item::TooLong => items.push((u64::MAX, Vec::new())),
            }
        }
        assert!(input.is_empty() && reader.held() <= 4 * LIMIT);
    }
    (items, reader.end().err())
}

/// Streams of a client of HTTP/3, after one byte with kind and split: no bytes make the readers panic, the frames do not
/// depend on the split over reads, no more is held than the limit, and payloads are read as they are written.
pub fn h3_frames(bytes: &[u8]) {
    let Some((&first, bytes)) = bytes.split_first() else { return };
    let piece = usize::from(first >> 2) % 32 + 1;
    match first & 3 {
        0 => {
            let order = RequestOrder::new(LIMIT as u64);
            assert_eq!(h3_items(order, bytes, piece), h3_items(order, bytes, bytes.len()));
        }
        1 => {
            let order = ControlOrder::default();
            let whole = h3_items(order, bytes, bytes.len());
            assert_eq!(h3_items(order, bytes, piece), whole);
        }
        2 => {
            let (mut whole, mut split) = (DecoderStream::default(), DecoderStream::default());
            let mut counts = bytes.chunks(piece).map(|piece| split.read(piece));
            assert_eq!(counts.by_ref().sum::<Result<u64, _>>(), whole.read(bytes));
        }
        _ => {
            let _ = PeerSettings::read(bytes);
            if let Ok((id, value)) = frame::priority_update(bytes) {
                assert!(id <= varint::LARGEST && value.len() < bytes.len());
                assert!(Priority::read(value).urgency < 8);
            }
            if let Ok(id) = frame::id(bytes) {
                let mut written = Vec::new();
                varint::write(id, &mut written);
                assert!(written.len() <= bytes.len() && varint::whole(&written) == Some(id));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_h3_frames() {
        brisk_testkit::fuzz::drive(
            "h3_frames",
            &[
                b"\x05\x04\x04\x01\0\x06\x40\x64",
                b"\x01\x05\0\0\xd1\xd7\xc1",
                b"\0\x03abc",
                b"\x80\x0f\x07\0\x04\0u=1",
                b"\x07\x01\0\x0d\x01\x08",
                b"\x40\x21\x02xy",
                b"\x7f\x80\x01",
            ],
            super::h3_frames,
        );
    }
}
