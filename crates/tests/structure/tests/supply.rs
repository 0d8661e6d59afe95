//! What brisk takes from others: the programs of `tools/programs` and the crates of `Cargo.lock`, pinned and of known
//! origin and licence.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use brisk_testkit::process::{TIMEOUT, command, run};
use toml::{Table, Value};

/// The licences that crates may have. All allow binaries to be passed on under brisk's own; MPL-2.0 asks that changes to
/// its files are published, CDLA-Permissive-2.0 is for data.
const LICENCES: &[&str] = &[
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Crates of which there may be more than one version, since crates that are needed do not agree on one.
const SEVERAL_VERSIONS: &[&str] = &[
    "base64",
    "core-foundation",
    "getrandom",
    "libloading",
    "phf",
    "phf_codegen",
    "phf_generator",
    "phf_shared",
    "rand",
    "rand_core",
    "r-efi",
    "syn",
    "synstructure",
    "thiserror",
    "thiserror-impl",
    "untrusted",
    "windows-sys",
];

const PURPOSES: &[&str] = &[
    "build",
    "test",
    "peers",
    "flood",
    "strangers",
    "page",
    "clients",
    "gitea",
    "sbom",
    "instructions",
    "kernels",
];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."))
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Lines of `tools/programs` in words: purposes, command, source, packages.
fn programs() -> Vec<Vec<String>> {
    let text = read(&root().join("tools/programs"));
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

/// Has an exact version: `package@v1.2.3` in Go, `package==1.2.3` in Python; a crate also has its checksum.
fn is_pinned(source: &str, package: &str) -> bool {
    let (separator, exact): (_, fn(char) -> bool) = match source.trim_end_matches('?') {
        "debian" => return !package.contains(['@', '=']),
        // A module of this repository, whose lock file pins its dependencies.
        "go" if package.starts_with("./") => return root().join(package).join("go.sum").exists(),
        "go" => ("@v", |c| c.is_ascii_alphanumeric() || ".-+".contains(c)),
        "npm" => ("@", |c| c.is_ascii_digit() || c == '.'),
        // Libraries but for that of TLS come from the distribution as it is.
        "testing" if !package.contains('=') => return !package.contains("ssl"),
        "testing" => ("=", |c| c.is_ascii_alphanumeric() || ".-+~:".contains(c)),
        "crate" => {
            let Some((package, checksum)) = package.split_once(':') else { return false };
            let is_checksum = checksum.len() == 64 && checksum.chars().all(|c| c.is_ascii_hexdigit());
            return is_checksum && package.split_once("==").is_some_and(|(_, version)| version.contains('.'));
        }
        "python" => ("==", |c| c.is_ascii_digit() || c == '.'),
        _ => return false,
    };
    package
        .split_once(separator)
        .is_some_and(|(_, version)| version.contains('.') && version.chars().all(exact))
}

#[test]
fn every_program_has_a_purpose_a_source_and_an_exact_version() {
    let programs = programs();
    assert!(programs.len() > 20, "{programs:?}");
    for words in programs {
        let [purposes, _, source, packages @ ..] = &words[..] else { panic!("too few columns: {words:?}") };
        assert!(purposes.split(',').all(|purpose| PURPOSES.contains(&purpose)), "purposes: {words:?}");
        assert!(!packages.is_empty(), "no package: {words:?}");
        assert!(packages.iter().all(|package| is_pinned(source, package)), "no exact version: {words:?}");
    }
    for (source, package) in [
        ("go", "example.com/program@latest"),
        ("python", "package==13.0.*"),
        ("testing?", "libssl3t64"),
        ("testing?", "nginx=1.*"),
        ("crate?", "nginx-src==1.28.5"),
    ] {
        assert!(!is_pinned(source, package), "{package}");
    }
}

/// Programs that each system has.
const EVERYWHERE: [&str; 5] = ["/bin/sh", "/bin/true", "env", "sh", "true"];

/// A test that started a program by its name could start one that `tools/setup` does not install.
#[test]
fn external_programs_are_started_by_the_testkit_alone() {
    let mut files = Vec::new();
    gather_sources(&root().join("crates"), &mut files);
    // What it starts is for tests and experiments, and on the list.
    files.retain(|file| !file.components().any(|part| part.as_os_str() == "link"));
    assert!(files.len() > 200, "only {} files found", files.len());
    let by_name = ["Command::new", "(\""].concat();
    let mut wrong = Vec::new();
    for file in files {
        let text = read(&file).split_whitespace().collect::<String>();
        let mut names = text.split(&by_name).skip(1).filter_map(|rest| rest.split('"').next());
        wrong.extend(names.any(|name| !EVERYWHERE.contains(&name)).then_some(file));
    }
    assert!(wrong.is_empty(), "use brisk_testkit::process::command in {wrong:#?}");
}

fn gather_sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            gather_sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The packages of a `Cargo.lock`.
fn locked_packages(file: &str) -> Vec<Table> {
    let lock: Table = read(&root().join(file)).parse().expect("TOML");
    let packages = lock["package"].as_array().expect("packages");
    packages.iter().filter_map(Value::as_table).cloned().collect()
}

/// `cargo check --locked` of the targets of libFuzzer, which are no part of the workspace, fails otherwise.
#[test]
fn the_lock_file_of_the_fuzz_targets_has_what_the_crates_need() {
    let entries =
        |folder: &Path| fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let crates: Vec<_> = entries(&root().join("crates")).flat_map(|folder| entries(&folder)).collect();
    let mut checked = 0;
    for package in locked_packages("fuzz/Cargo.lock") {
        let Some(name) = package["name"].as_str().and_then(|name| name.strip_prefix("brisk-")) else {
            continue;
        };
        let Some(folder) = crates.iter().find(|folder| folder.ends_with(name)) else { continue };
        let manifest = folder.join("Cargo.toml");
        let manifest: Table = read(&manifest).parse().expect("TOML");
        let locked = package.get("dependencies").and_then(Value::as_array).into_iter().flatten();
        let locked: Vec<_> = locked.filter_map(|one| one.as_str()?.split_whitespace().next()).collect();
        for (dependency, form) in manifest.get("dependencies").and_then(Value::as_table).into_iter().flatten()
        {
            let optional = form.get("optional").and_then(Value::as_bool) == Some(true);
            assert!(
                optional || locked.contains(&&**dependency),
                "{name} needs {dependency}: refresh fuzz/Cargo.lock"
            );
        }
        checked += 1;
    }
    assert!(checked > 5, "{checked} crates in fuzz/Cargo.lock");
}

#[test]
fn every_crate_is_of_this_repository_or_comes_with_a_checksum_from_crates_io() {
    for package in locked_packages("Cargo.lock") {
        let name = package["name"].as_str().expect("a name");
        let known = match package.get("source").and_then(Value::as_str) {
            None => name.starts_with("brisk-"),
            Some(source) => source == REGISTRY && package.contains_key("checksum"),
        };
        assert!(known, "{package:#?}");
    }
}

#[test]
fn crates_come_in_one_version_but_for_a_known_few() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in locked_packages("Cargo.lock") {
        let [name, version] = ["name", "version"].map(|key| package[key].as_str().expect("text").to_owned());
        versions.entry(name).or_default().insert(version);
    }
    versions.retain(|name, versions| versions.len() > 1 && !SEVERAL_VERSIONS.contains(&name.as_str()));
    assert!(versions.is_empty(), "avoid a second version, or add it to SEVERAL_VERSIONS: {versions:#?}");
}

/// Whether an SPDX expression of `OR`, `AND` and brackets (or the older `/` for `OR`) can be met with these licences.
fn is_allowed(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ").replace(" WITH LLVM-exception", "");
    let mut words = expression.replace('(', " ( ").replace(')', " ) ");
    while let Some(end) = words.find(')') {
        let start = words[..end].rfind('(').expect("an opening bracket");
        let word = if flat_is_allowed(&words[start + 1..end]) { LICENCES[0] } else { "refused" };
        words.replace_range(start..=end, word);
    }
    flat_is_allowed(&words)
}

fn flat_is_allowed(expression: &str) -> bool {
    let all = |part: &str| part.split(" AND ").all(|licence| LICENCES.contains(&licence.trim()));
    expression.split(" OR ").any(all)
}

/// Of what is compiled here; `Cargo.lock` has crates of other systems too, which need not be on this machine.
#[test]
fn licences_allow_binaries_to_be_passed_on() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into());
    let mut tree = Command::new(cargo);
    // The test harness may run with it.
    tree.env_remove("RUSTC_BOOTSTRAP");
    tree.args(["tree", "--offline", "--locked", "--workspace", "--edges", "normal,build,dev"]);
    let output = tree.args(["--prefix", "none", "--format", "{l};{p}"]).current_dir(root()).output();
    let output = output.expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let crates: BTreeSet<_> = text.lines().filter_map(|line| line.split_once(';')).collect();
    assert!(crates.len() > 100, "{text}");
    let wrong: Vec<_> = crates.iter().filter(|(licence, _)| !is_allowed(licence)).collect();
    assert!(wrong.is_empty(), "not in LICENCES: {wrong:#?}");
}

#[test]
fn the_bill_of_materials_has_what_is_in_the_program_and_not_what_tests_use() {
    let mut python = command("python3");
    let bill = run(python.arg(root().join("tools/sbom")).arg("--offline"), b"", TIMEOUT).success();
    let bill: serde_json::Value = serde_json::from_str(&bill).expect("JSON");
    let components = bill["components"].as_array().expect("a list");
    let find = |name: &str| components.iter().find(|component| component["name"] == name);
    let rustls = find("rustls").expect("rustls is in the program");
    assert_eq!(rustls["hashes"][0]["content"].as_str().map(str::len), Some(64), "{rustls}");
    assert!(rustls["licenses"][0]["expression"].is_string() && rustls["purl"].is_string(), "{rustls}");
    assert!(
        find("brisk-gateway").is_some() && find("criterion").is_none() && find("brisk-testkit").is_none()
    );
    assert_eq!(bill["dependencies"].as_array().map(Vec::len), Some(components.len() + 1));
}

#[test]
fn expressions_of_licences_are_read() {
    for allowed in
        ["MIT", "GPL-3.0 OR MIT", "Unlicense/MIT", "(MIT OR GPL-3.0) AND ISC", "MIT AND (ISC AND Zlib)"]
    {
        assert!(is_allowed(allowed), "{allowed}");
    }
    for refused in ["", "GPL-3.0", "MIT AND GPL-3.0", "MIT AND (GPL-3.0 OR AGPL-3.0)", "(GPL-3.0)/AGPL-3.0"] {
        assert!(!is_allowed(refused), "{refused}");
    }
}
