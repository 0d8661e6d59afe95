//! The program starts. Cargo builds a program for the tests of its own package, and the behaviour tests start the same file.

use std::process::Command;

#[test]
fn the_program_prints_its_version() {
    let program = env!("CARGO_BIN_EXE_brisk");
    let output = Command::new(program).arg("--version").output().expect("brisk starts");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(text.trim_end(), concat!("brisk ", env!("CARGO_PKG_VERSION")));
}
