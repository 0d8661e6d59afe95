//! Boundaries of the code that no compiler keeps: the order of the folders, the reach of rustls, the length of files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::tree::{FOLDERS, crate_named, crates, folder, is_in, name, product, read, root, sources};

/// The crate of parts for tests. Other crates may depend on it only to test.
const TESTKIT: &str = "testkit";

/// Crates that consist of tests and parts for tests.
const TESTS_ONLY: &[&str] = &[TESTKIT, "behaviour", "chaos", "structure"];

/// The folders that crates of `tools` may use. Tools measure a gateway from outside, and the daily build compiles none.
const BELOW_TOOLS: &[&str] = &["base", "keys", "tls", "tools"];

/// The only crate that uses `tools`: the program.
const PROGRAM: &str = "cli";

/// The crates that may name the types of rustls; the tests' client is made of them.
const RUSTLS: &[&str] = &["tls", "tls-base", "tls-client", TESTKIT];

/// The crates that may have private keys in the clear: `keys`, and engines on hardware of their own.
const DEVICES: &[&str] = &["keys", "keys-cuda"];

/// Lines of a file at most, without its tests and with them.
const LONGEST: usize = 400;
const LONGEST_WITH_TESTS: usize = 600;

/// Lines of product code above which a crate may be two concepts.
const LARGE: usize = 8_000;

/// Crates with more lines, and the reason why each is one concept.
const LARGE_CRATES: &[(&str, &str)] = &[
    (
        "answer",
        "features of hosts and routes with their keys, resolution and stages: the stages need the exchange, and the service needs the stages",
    ),
    (
        "import",
        "languages of other servers, each in a folder: they share directives, report, tables and the translation of expressions",
    ),
];

/// The dependencies of a crate, and whether only its tests have them.
fn dependencies(path: &Path) -> BTreeMap<String, bool> {
    let manifest = read(&path.join("Cargo.toml"));
    let manifest: Table = manifest.parse().expect("TOML");
    let mut found = BTreeMap::new();
    let mut gather = |table: &Table, kind: &str| {
        let names = table.get(kind).and_then(Value::as_table).into_iter().flat_map(Table::keys);
        for name in names {
            let only_tests = found.entry(name.clone()).or_insert(true);
            *only_tests &= kind == "dev-dependencies";
        }
    };
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    for table in targets.filter_map(Value::as_table).chain([&manifest]) {
        for kind in ["dependencies", "build-dependencies", "dev-dependencies"] {
            gather(table, kind);
        }
    }
    found
}

fn all_sources(path: &Path) -> Vec<PathBuf> {
    ["src", "tests", "benches"].iter().flat_map(|folder| sources(&path.join(folder))).collect()
}

/// Pairs of a crate and a crate of brisk on which its product code depends.
fn uses() -> Vec<(PathBuf, PathBuf)> {
    let users = crates().into_iter().filter(|path| !TESTS_ONLY.contains(&name(path)));
    let uses = users.flat_map(|user| {
        let used = dependencies(&user).into_iter().filter(|(_, only_tests)| !only_tests);
        let used = used.filter_map(|(name, _)| name.strip_prefix("brisk-").map(crate_named));
        used.map(|used| (user.clone(), used)).collect::<Vec<_>>()
    });
    uses.collect()
}

/// Asserts that no use of one crate by another is `wrong`.
fn assert_no_use(wrong: impl Fn(&Path, &Path) -> bool) {
    let uses = uses();
    assert!(uses.len() > 200, "only {} uses found", uses.len());
    let wrong = uses.iter().filter(|(user, used)| wrong(user, used));
    let wrong: Vec<_> =
        wrong.map(|(user, used)| format!("{} uses {}", user.display(), used.display())).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_crate_uses_one_of_a_higher_folder() {
    assert_no_use(|user, used| folder(used) > folder(user));
}

#[test]
fn tools_and_gateway_do_not_know_each_other() {
    let parent = |path: &Path| FOLDERS[folder(path)];
    assert_no_use(|user, used| match (parent(user), parent(used)) {
        ("tools", used) => !BELOW_TOOLS.contains(&used),
        (_, "tools") => name(user) != PROGRAM,
        _ => false,
    });
}

#[test]
fn packages_are_named_after_their_folders() {
    for path in crates() {
        let manifest = read(&path.join("Cargo.toml"));
        let line = format!("name = \"brisk-{}\"", name(&path));
        assert!(manifest.lines().any(|found| found == line), "{} has no line {line}", path.display());
    }
}

#[test]
fn rustls_is_named_in_the_tls_crates_alone() {
    let mut wrong = Vec::new();
    for path in
        crates().iter().filter(|path| !RUSTLS.contains(&name(path)) && !TESTS_ONLY.contains(&name(path)))
    {
        for file in sources(&path.join("src")) {
            let text = read(&file);
            let named = text.lines().enumerate().filter(|(_, line)| names_rustls(line));
            wrong.extend(named.map(|(number, _)| format!("{}:{}", file.display(), number + 1)));
        }
    }
    assert!(wrong.is_empty(), "rustls is named in {wrong:#?}");
}

#[test]
fn private_keys_leave_their_crate_for_engines_alone() {
    let mut wrong = Vec::new();
    for path in crates().iter().filter(|path| !DEVICES.contains(&name(path))) {
        for file in sources(&path.join("src")) {
            let text = read(&file);
            wrong.extend(names_device(&text).then_some(file));
        }
    }
    assert!(wrong.is_empty(), "brisk_keys::device is named in {wrong:#?}");
}

/// `brisk_keys::device`, or `device` in a group of imports from `brisk_keys`.
fn names_device(text: &str) -> bool {
    let code: String = text.lines().filter_map(|line| line.split("//").next()).collect();
    code.contains("brisk_keys::device")
        || code.split("brisk_keys::{").skip(1).any(|rest| {
            let group = rest.split(';').next().unwrap_or_default();
            group.split(|sign: char| !sign.is_alphanumeric() && sign != '_').any(|word| word == "device")
        })
}

#[test]
fn device_is_found_in_every_form_of_import() {
    for text in [
        "use brisk_keys::device;",
        "use brisk_keys::{BatchEngine, device};",
        "use brisk_keys::{\n    BatchEngine,\n    device::{key, Numbers},\n};",
        "let key = brisk_keys::device::key(1);",
    ] {
        assert!(names_device(text), "{text}");
    }
    assert!(!names_device("use brisk_keys::{BatchEngine, Engines}; // device"));
}

/// `rustls::`, and neither `tokio_rustls::` nor the like.
fn names_rustls(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    code.match_indices("rustls::")
        .any(|(start, _)| !code[..start].ends_with(|before: char| before.is_alphanumeric() || before == '_'))
}

/// Lines of product code of a crate.
fn product_lines(path: &Path) -> usize {
    let files = sources(&path.join("src")).into_iter().filter(|file| !is_in(file, &["tests", "fuzz"]));
    files.map(|file| product(&read(&file)).iter().filter(|line| !line.trim().is_empty()).count()).sum()
}

#[test]
fn large_crates_have_a_reason() {
    let large = crates().into_iter().filter(|path| product_lines(path) > LARGE);
    let large: BTreeSet<_> = large.map(|path| name(&path).to_owned()).collect();
    let listed = LARGE_CRATES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(large, listed, "left: crates above {LARGE} lines, right: LARGE_CRATES");
}

#[test]
fn files_can_be_read_in_one_go() {
    let mut wrong = Vec::new();
    for file in crates().iter().flat_map(|path| all_sources(path)) {
        let text = read(&file);
        let all = text.lines().count();
        let code = product(&text).len();
        if all > LONGEST_WITH_TESTS || (code > LONGEST && !is_in(&file, &["tests"])) {
            wrong.push(format!("{}: {code} lines, {all} with tests", file.display()));
        }
    }
    assert!(wrong.is_empty(), "too long, each is two files: {wrong:#?}");
}

#[test]
fn contributing_lists_the_files_with_unsafe_code() {
    let root = root();
    let contributing = read(&root.join("CONTRIBUTING.md"));
    let listed = contributing.lines().filter_map(|line| line.strip_prefix("- `crates/")?.split('`').next());
    let listed: BTreeSet<_> = listed.map(|path| format!("crates/{path}")).collect();
    // A file that may contain unsafe code names the lint. The compiler denies unsafe code everywhere else.
    let names_lint = |file: &PathBuf| {
        let text = read(file);
        text.split_once("#![expect(").is_some_and(|(_, rest)| rest.trim_start().starts_with("unsafe_code"))
    };
    let found = crates().into_iter().flat_map(|path| all_sources(&path)).filter(names_lint);
    let found =
        found.map(|file| file.strip_prefix(&root).expect("a file below the root").display().to_string());
    assert_eq!(listed, found.collect(), "left: CONTRIBUTING.md, right: files that allow unsafe code");
}
