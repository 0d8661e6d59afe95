//! The crates, files and product code of the repository.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The folders of `crates/`, lowest first.
pub(crate) const FOLDERS: &[&str] =
    &["base", "keys", "tls", "services", "visitors", "http", "tools", "gateway", "tests"];

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let parents = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    parents.into_iter().nth(3).expect("this package is in crates/tests/structure").to_owned()
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.expect("an entry").path())
}

/// The folders of all crates.
pub(crate) fn crates() -> Vec<PathBuf> {
    let mut crates: Vec<_> =
        FOLDERS.iter().flat_map(|name| entries(&root().join("crates").join(name))).collect();
    crates.retain(|path| path.join("Cargo.toml").is_file());
    crates.sort();
    assert!(crates.len() > 40, "only {crates:?} found");
    crates
}

/// The folder of the crate with this name.
pub(crate) fn crate_named(wanted: &str) -> PathBuf {
    crates().into_iter().find(|path| name(path) == wanted).unwrap_or_else(|| panic!("no crate {wanted}"))
}

/// The position in [`FOLDERS`] of the folder of a crate.
pub(crate) fn folder(path: &Path) -> usize {
    let parent = path.parent().map(name).expect("a crate is in a folder");
    FOLDERS.iter().position(|folder| *folder == parent).expect("`crates` reads these folders only")
}

#[test]
fn every_crate_is_in_a_listed_folder() {
    let found = entries(&root().join("crates")).map(|path| name(&path).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(found, FOLDERS.iter().map(|name| (*name).to_owned()).collect());
}

/// The name of a crate by its folder.
pub(crate) fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).expect("a crate has a name")
}

/// The Rust files in `folder` and below; none if the folder does not exist.
pub(crate) fn sources(folder: &Path) -> Vec<PathBuf> {
    files(folder, &["rs"])
}

/// The files in `folder` and below with one of these extensions; none if the folder does not exist.
pub(crate) fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let found = paths.flat_map(|path| if path.is_dir() { files(&path, extensions) } else { vec![path] });
    let has_one = |path: &PathBuf| {
        path.extension().is_some_and(|own| extensions.iter().any(|extension| own == *extension))
    };
    found.filter(has_one).collect()
}

/// The documents of the repository: the Markdown files of the root and of `docs`, without the results of measurements.
pub(crate) fn documents() -> Vec<PathBuf> {
    let folders = [root(), root().join("docs")];
    let files = folders.iter().flat_map(|folder| entries(folder));
    files.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// The text of a source file.
pub(crate) fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Whether one of the folders of `file`, or its own name, is one of `names`.
pub(crate) fn is_in(file: &Path, names: &[&str]) -> bool {
    let parts = file.components().filter_map(|part| part.as_os_str().to_str());
    parts.map(|part| part.trim_end_matches(".rs")).any(|part| names.contains(&part))
}

/// The lines of a source file without those of its `#[cfg(test)]` modules.
pub(crate) fn product(text: &str) -> Vec<&str> {
    let (mut product, mut lines) = (Vec::new(), text.lines().peekable());
    while let Some(line) = lines.next() {
        let indent = &line[..line.len() - line.trim_start().len()];
        if line.trim() == "#[cfg(test)]" {
            while lines.next_if(|next| next.trim_start().starts_with("#[")).is_some() {}
            let module = lines.next_if(|next| next.trim_start().contains("mod ")).unwrap_or_default();
            if module.ends_with('{') {
                lines.by_ref().find(|end| end.strip_prefix(indent) == Some("}"));
            }
        } else {
            product.push(line);
        }
    }
    product
}

#[test]
fn lines_of_test_modules_are_no_product() {
    let text = "//! A crate.\n\nfn f() {}\n\n#[cfg(test)]\npub(crate) mod testing;\n#[cfg(test)]\n#[expect(dead_code)]\nmod tests {\n    \
                fn g() {\n    }\n}\n    #[cfg(test)]\n    fn h() {}\n/// A late comment.\n";
    assert_eq!(product(text), ["//! A crate.", "", "fn f() {}", "", "    fn h() {}", "/// A late comment."]);
}
