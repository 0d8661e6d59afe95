//! External programs that tests may start: those in `tools/programs`, from which `tools/setup` installs them.

use std::env;
use std::path::PathBuf;

const LIST: &str = include_str!("../../../tools/programs");

/// The path of an external program. Fails the test if `tools/programs` does not list it for `test`, since a machine
/// prepared by `tools/setup` might lack it, or if it is not installed.
pub fn program(name: &str) -> PathBuf {
    assert!(
        is_listed(name),
        "tests may not start {name}: tools/programs, from which it would be installed, does not list it for `test`"
    );
    find(name).unwrap_or_else(|| panic!("{name} is missing: run `make setup`"))
}

/// The path of a program that `tools/programs` marks as optional, if it is installed; otherwise the test is to be skipped.
pub(crate) fn optional(name: &str) -> Option<PathBuf> {
    assert!(is_listed(name), "tests may not start {name}: tools/programs does not list it for `test`");
    let found = find(name);
    if found.is_none() {
        eprintln!("skipped: {name} is not installed");
    }
    found
}

/// The folder of Python modules that `tools/programs` calls `name`. Fails the test like [`program`].
pub fn python_modules(name: &str) -> PathBuf {
    assert!(is_listed(name), "tests may not use {name}: tools/programs does not list it for `test`");
    let home = env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let folder = home.join(".cache/brisk").join(name);
    assert!(folder.is_dir(), "{name} is missing: run `make setup`");
    folder
}

fn find(name: &str) -> Option<PathBuf> {
    let cache = env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/brisk/bin"));
    let tools = env::var_os("BRISK_TOOLS").map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/bin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut folders = tools.into_iter().chain(cache).chain(env::split_paths(&path)).chain(system);
    folders.find_map(|folder| Some(folder.join(name)).filter(|file| file.is_file()))
}

fn is_listed(name: &str) -> bool {
    let lines = LIST.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|words| match words[..] {
        [purposes, command, ..] => command == name && purposes.split(',').any(|purpose| purpose == "test"),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_that_are_installed_for_tests_are_listed() {
        assert!(is_listed("nginx"), "for several purposes");
        assert!(is_listed("h2spec"), "with several packages");
        assert!(!is_listed("hitch"), "for measurements alone");
        assert!(!is_listed("debian"), "no command");
        assert!(!is_listed("#"), "a comment");
    }

    #[test]
    #[should_panic(expected = "tests may not start hitch: tools/programs")]
    fn a_program_that_setup_does_not_install_for_tests_fails_the_test() {
        program("hitch");
    }

    #[test]
    #[should_panic(expected = "run `make setup`")]
    fn a_program_that_is_missing_fails_the_test() {
        // Listed, but not an executable program.
        program("nvrtc");
    }
}
