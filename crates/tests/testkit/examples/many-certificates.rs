//! Writes certificates for `make many-certificates`: for each of NAMES names a file NAME.pem with chain and key in
//! FOLDER/names, and for the first CHANGED of them a second one in FOLDER/changed.
//!
//! usage: many-certificates FOLDER NAMES CHANGED

use std::fs;
use std::path::Path;

use brisk_testkit::ca::TestCa;

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    let [_, folder, names, changed] = &arguments[..] else { panic!("usage: FOLDER NAMES CHANGED") };
    let count = |text: &String| text.parse::<usize>().expect("a number");
    for (kind, count) in [("names", count(names)), ("changed", count(changed))] {
        write(&Path::new(folder).join(kind), count);
    }
}

fn write(folder: &Path, count: usize) {
    fs::create_dir_all(folder).expect("a folder");
    let mut ca = TestCa::new();
    for number in 0..count {
        // A new CA, because a CA keeps its files until it is dropped.
        if number % 1000 == 999 {
            ca = TestCa::new();
        }
        let name = format!("{number}.test");
        let leaf = ca.server(&[&name]).issue();
        fs::write(folder.join(format!("{name}.pem")), leaf.chain_pem.clone() + &leaf.key_pem)
            .expect("a file");
    }
}
