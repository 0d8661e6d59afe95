//! The documentation names every key, and its examples are right.

use std::collections::HashSet;
use std::fs;

use super::*;

#[test]
fn the_examples_of_the_documentation_are_right() {
    for page in
        [include_str!("../../../../../docs/configuration.md"), include_str!("../../../../../README.md")]
    {
        let example =
            page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
        let message = checked(folder().path(), example).expect_err("its certificates are not here");
        for line in message.lines() {
            assert!(line.contains(".chain: cannot read "), "{line}");
        }
    }
}

#[test]
fn every_key_is_documented() {
    let pages = [
        include_str!("../../../../../docs/configuration.md"),
        include_str!("../../../../../docs/keyless.md"),
        include_str!("../../../../../docs/pages.md"),
    ];
    let words: HashSet<_> = pages.into_iter().flat_map(words_of).collect();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../config-schema/src");
    let files = fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("an entry").path());
    let sources = files.filter(|file| file.is_file()).map(|file| fs::read_to_string(file).expect("text"));
    let source = sources.collect::<String>();
    let fields = source.lines().filter_map(|line| line.strip_prefix("    pub ")?.split_once(':'));
    let keys: Vec<_> = fields.filter(|(name, _)| !name.starts_with("fn ")).collect();
    assert!(keys.len() > 250, "only {} keys found", keys.len());
    for (key, _) in keys {
        let key = match key {
            "directory" => "static",
            // Not a key: the form that one key may have.
            "or_any_port" => continue,
            key => key.trim_start_matches("r#"),
        };
        assert!(words.contains(key), "{key} is not documented");
    }
}

fn words_of(page: &str) -> impl Iterator<Item = &str> {
    page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}
