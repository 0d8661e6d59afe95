//! The scripts of `bench`, which have no tests of their own: they are imported, listed and narrow enough to read.

use std::fs;
use std::path::{Path, PathBuf};

use brisk_testkit::process::{TIMEOUT, command, run};

use crate::tree::{read, root};

/// Characters of a line at most.
const WIDTH: usize = 130;

/// The names that `bench/measure --check` prints after it has imported every measurement.
fn measurements() -> Vec<String> {
    let script = root().join("bench/measure");
    let names = run(command("python3").arg(script).arg("--check"), b"", TIMEOUT).success();
    names.split_whitespace().map(str::to_owned).collect()
}

fn gather(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            gather(&path, files);
        } else if path.extension().is_some_and(|end| end == "py") {
            files.push(path);
        }
    }
}

#[test]
fn every_measurement_is_imported_and_listed_in_the_makefile() {
    let makefile = read(&root().join("Makefile"));
    let names = measurements();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert!(
            makefile.contains(&format!("# make {name} ")),
            "the head of the Makefile does not list {name}"
        );
    }
}

#[test]
fn lines_of_scripts_have_at_most_130_characters() {
    let mut files = vec![root().join("bench/measure")];
    gather(&root().join("bench"), &mut files);
    assert!(files.len() > 40, "only {} files found", files.len());
    let long = files.iter().flat_map(|file| {
        let text = read(file);
        let lines: Vec<_> = text.lines().map(|line| line.chars().count()).collect();
        let wide = lines.into_iter().enumerate().filter(|(_, width)| *width > WIDTH);
        wide.map(|(index, width)| format!("{}:{}: {width}", file.display(), index + 1)).collect::<Vec<_>>()
    });
    let long: Vec<_> = long.collect();
    assert!(long.is_empty(), "{long:#?}");
}
