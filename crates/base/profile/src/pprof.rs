//! Encoder for pprof: `profile.proto` of <https://github.com/google/pprof>, in the wire format of Protocol Buffers.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use brisk_coding::{Coding, Encoder};

use crate::Profile;

/// A message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field << 3));
        self.varint(value);
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field << 3 | 2));
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u32, message: &Self) {
        self.bytes(field, &message.0);
    }

    /// Appends a packed field.
    fn numbers(&mut self, field: u32, values: impl IntoIterator<Item = u64>) {
        let mut packed = Self::default();
        values.into_iter().for_each(|value| packed.varint(value));
        self.message(field, &packed);
    }
}

/// String table without duplicates; the first entry is empty, as the format requires.
struct StringTable<'p> {
    all: Vec<&'p str>,
    places: HashMap<&'p str, u64>,
}

impl<'p> StringTable<'p> {
    fn new() -> Self {
        Self { all: vec![""], places: HashMap::from([("", 0)]) }
    }

    fn index(&mut self, text: &'p str) -> u64 {
        *self.places.entry(text).or_insert_with(|| {
            self.all.push(text);
            self.all.len() as u64 - 1
        })
    }

    fn value_type(&mut self, kind: &'static str, unit: &'static str) -> Message {
        let mut message = Message::default();
        message.number(1, self.index(kind));
        message.number(2, self.index(unit));
        message
    }
}

/// Encodes the [`Profile`]. Each function has one location; the thread is a label of the sample.
pub(crate) fn encoded(profile: &Profile) -> Vec<u8> {
    let (mut texts, mut message) = (StringTable::new(), Message::default());
    let period = nanos(profile.period());
    for (kind, unit) in [("samples", "count"), ("cpu", "nanoseconds")] {
        message.message(1, &texts.value_type(kind, unit));
    }
    for (stack, samples) in &profile.stacks {
        let Some((thread, functions)) = stack.split_first() else { continue };
        let (mut sample, mut label) = (Message::default(), Message::default());
        sample.numbers(1, functions.iter().rev().map(|number| id(*number)));
        sample.numbers(2, [*samples, samples.saturating_mul(period)]);
        label.number(1, texts.index("thread"));
        label.number(2, texts.index(profile.name(*thread)));
        sample.message(3, &label);
        message.message(2, &sample);
    }
    for (number, name) in (0..).zip(&profile.names) {
        let (mut location, mut line, mut function) = <(Message, Message, Message)>::default();
        line.number(1, id(number));
        location.number(1, id(number));
        location.message(4, &line);
        message.message(4, &location);
        function.number(1, id(number));
        // `system_name` stays empty: with it, pprof would shorten names by the rules of C++.
        function.number(2, texts.index(name));
        message.message(5, &function);
    }
    let (period_type, gaps) = (texts.value_type("cpu", "nanoseconds"), profile.gaps());
    let comments: Vec<_> = gaps.iter().map(|gap| texts.index(gap)).collect();
    texts.all.iter().for_each(|text| message.bytes(6, text.as_bytes()));
    let begun = profile.begun.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    message.number(9, nanos(begun));
    message.number(10, nanos(profile.length));
    message.message(11, &period_type);
    message.number(12, period);
    if !comments.is_empty() {
        message.numbers(13, comments);
    }
    message.0
}

/// The ID of an index; 0 is not a valid ID.
fn id(number: u32) -> u64 {
    u64::from(number) + 1
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Compresses with gzip, which readers expect.
pub(crate) fn compressed(message: &[u8]) -> Vec<u8> {
    let mut output = Vec::new();
    match Encoder::new(Coding::Gzip, 6).write_whole(message, &mut output) {
        Ok(()) => output,
        // Readers also accept uncompressed profiles.
        Err(_) => message.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use brisk_coding::Decoder;

    use super::*;

    #[test]
    fn a_sample_is_encoded_as_the_format_says() {
        let profile = Profile::of(&[(&["t", "f"], 2)]);
        let expected: &[u8] = &[
            // sample_type: samples (1) in count (2), cpu (3) in nanoseconds (4)
            0x0a, 4, 8, 1, 16, 2, 0x0a, 4, 8, 3, 16, 4,
            // sample: location 2, values 2 and 20,000,000, label thread (5) = t (6)
            0x12, 16, 0x0a, 1, 2, 0x12, 5, 2, 0x80, 0xda, 0xc4, 0x09, 0x1a, 4, 8, 5, 16, 6,
            // location and function 1, named t (6)
            0x22, 6, 8, 1, 0x22, 2, 8, 1, 0x2a, 4, 8, 1, 16, 6,
            // location and function 2, named f (7)
            0x22, 6, 8, 2, 0x22, 2, 8, 2, 0x2a, 4, 8, 2, 16, 7,
        ];
        let encoded = encoded(&profile);
        assert_eq!(&encoded[..expected.len()], expected, "{encoded:02x?}");
        // time 0, 2 s, cpu in nanoseconds, each 10 ms
        let end = [0x48, 0, 0x50, 0x80, 0xa8, 0xd6, 0xb9, 7, 0x5a, 4, 8, 3, 16, 4, 0x60, 0x80, 0xad, 0xe2, 4];
        assert!(encoded.ends_with(&end), "{encoded:02x?}");
        let mut decoded = Vec::new();
        let gzip = compressed(&encoded);
        Decoder::new(Coding::Gzip).write(&gzip, &mut decoded).expect("gzip");
        assert_eq!(decoded, encoded);
    }
}
