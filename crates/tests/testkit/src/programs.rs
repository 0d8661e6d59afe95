//! External programs that tests may start: those in `tools/programs`, from which `tools/setup` installs them.

use std::env;
use std::path::PathBuf;

const LIST: &str = include_str!("../../../../tools/programs");

/// The path of an external program. Fails the test if `tools/programs` does not list it for `test`, since a machine
/// prepared by `tools/setup` might lack it, or if it is not installed.
pub fn program(name: &str) -> PathBuf {
    assert!(
        is_listed(name, "test"),
        "tests may not start {name}: tools/programs, from which it would be installed, does not list it for `test`"
    );
    find(name).unwrap_or_else(|| panic!("{name} is missing: run `make setup`"))
}

/// The path of the program that `tools/programs` lists for the target `name` of the Makefile, and the folder with its data. Only
/// ignored tests, which the target runs, start it.
pub fn of_target(name: &str) -> (PathBuf, PathBuf) {
    assert!(is_listed(name, name), "tools/programs does not list {name} for the target of this name");
    let missing = || panic!("{name} is missing: run `make {name}`");
    (find(name).unwrap_or_else(missing), cache().join(name))
}

/// The path of a program that `tools/programs` marks as optional, if it is installed; otherwise the test is to be skipped.
pub(crate) fn optional(name: &str) -> Option<PathBuf> {
    assert!(
        is_listed(name, "test"),
        "tests may not start {name}: tools/programs does not list it for `test`"
    );
    let found = find(name);
    if found.is_none() {
        eprintln!("skipped: {name} is not installed");
    }
    found
}

/// The folder of Python modules that `tools/programs` calls `name`. Fails the test like [`program`].
pub fn python_modules(name: &str) -> PathBuf {
    assert!(is_listed(name, "test"), "tests may not use {name}: tools/programs does not list it for `test`");
    let folder = cache().join(name);
    assert!(folder.is_dir(), "{name} is missing: run `make setup`");
    folder
}

fn cache() -> PathBuf {
    PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cache/brisk")
}

fn find(name: &str) -> Option<PathBuf> {
    let cache = cache().join("bin");
    let tools = env::var_os("BRISK_TOOLS").map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    // Servers are in `sbin`, which is not in the path of every user.
    let system = ["/usr/bin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut folders = tools.into_iter().chain([cache]).chain(env::split_paths(&path)).chain(system);
    folders.find_map(|folder| Some(folder.join(name)).filter(|file| file.is_file()))
}

fn is_listed(name: &str, purpose: &str) -> bool {
    let lines = LIST.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|words| match words[..] {
        [purposes, command, ..] => command == name && purposes.split(',').any(|own| own == purpose),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_that_are_installed_for_tests_are_listed() {
        assert!(is_listed("nginx", "test"), "for several purposes");
        assert!(is_listed("h2spec", "test"), "with several packages");
        assert!(!is_listed("hitch", "test"), "for measurements alone");
        assert!(!is_listed("debian", "test"), "no command");
        assert!(!is_listed("#", "test"), "a comment");
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
