//! The crates, files and product code of the repository.

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates are in a folder");
    crates.parent().expect("the folder is in the repository").to_owned()
}

/// The folders of all crates.
pub(crate) fn crates() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("crates")).expect("the folder of all crates");
    let mut crates: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    crates.retain(|path| path.join("Cargo.toml").is_file());
    crates.sort();
    assert!(crates.len() > 40, "only {crates:?} found");
    crates
}

/// The name of a crate by its folder.
pub(crate) fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).expect("a crate has a name")
}

/// The Rust files in `folder` and below; none if the folder does not exist.
pub(crate) fn sources(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let found = paths.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    found.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
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
