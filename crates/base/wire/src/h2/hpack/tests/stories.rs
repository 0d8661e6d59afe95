//! Requests of real sites as other encoders wrote them (`tests/hpack-test-case`), and as ours does.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::{DEFAULT_TABLE, Encoder, Table, decoded, hex};

/// The fields of each block of a story, as `name: value`.
type Story = Vec<Vec<String>>;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hpack-test-case")
}

/// The parts of a file behind the lines that name a story.
fn parts(file: &str) -> BTreeMap<String, String> {
    let text = fs::read_to_string(folder().join(file)).expect("a file of the repository");
    let parts = text.split("# story ").skip(1).map(|part| part.split_once('\n').expect("lines"));
    parts.map(|(name, rest)| (name.to_owned(), rest.to_owned())).collect()
}

fn stories() -> BTreeMap<String, Story> {
    let read = |text: &str| -> Story {
        let blocks = text.trim_end_matches('\n').split("\n\n");
        let field = |line: &str| line.replacen('\t', ": ", 1);
        blocks.map(|block| block.lines().map(field).collect()).collect()
    };
    parts("stories.txt").into_iter().map(|(name, text)| (name, read(&text))).collect()
}

/// As the tests of HPACK show fields.
fn escaped(fields: &[String]) -> Vec<String> {
    fields.iter().map(|field| field.escape_default().to_string()).collect()
}

#[test]
fn blocks_of_other_encoders_are_decoded() {
    let stories = stories();
    assert_eq!(stories.len(), 20);
    let files = fs::read_dir(folder()).expect("a folder of the repository");
    let names = files.map(|file| file.expect("an entry").file_name().into_string().expect("a name"));
    let encoders: Vec<_> = names
        .filter(|name| Path::new(name).extension().is_some_and(|end| end == "txt") && name != "stories.txt")
        .collect();
    assert_eq!(encoders.len(), 9);
    for encoder in encoders {
        for (name, blocks) in parts(&encoder) {
            // Sizes of the table that were allowed; no block here relies on a lower limit being refused.
            let sizes = blocks.lines().filter_map(|line| line.split_once(' '));
            let largest = sizes.map(|(size, _)| size.parse().expect("a number")).max().unwrap_or(0);
            let mut decoder = Table::new(DEFAULT_TABLE.max(largest));
            let blocks = blocks.lines().map(|line| line.rsplit(' ').next().unwrap_or_default());
            for (number, block) in blocks.enumerate() {
                let fields = decoded(&mut decoder, &hex(block));
                assert_eq!(fields, Ok(escaped(&stories[&name][number])), "{encoder} {name} {number}");
            }
        }
    }
}

#[test]
fn what_is_written_of_them_is_read_again() {
    for (name, story) in stories() {
        let (mut encoder, mut decoder) = (Encoder::new(), Table::new(DEFAULT_TABLE));
        for fields in story {
            let mut block = Vec::new();
            encoder.begin(&mut block);
            for field in &fields {
                // The name may begin with a colon.
                let (field_name, value) = field[1..].split_once(": ").expect("a field");
                encoder.field(
                    &[&field.as_bytes()[..1], field_name.as_bytes()].concat(),
                    value.as_bytes(),
                    &mut block,
                );
            }
            assert_eq!(decoded(&mut decoder, &block), Ok(escaped(&fields)), "{name}");
        }
    }
}
