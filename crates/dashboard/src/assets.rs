//! The files of the page, in the program; compressed once, when they are asked for first.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;

use brisk_coding::{Coding, Encoder};
use bytes::Bytes;

/// The level of gzip: the files are compressed once.
const LEVEL: u8 = 9;

/// A file of the page.
#[derive(Debug)]
pub(crate) struct Asset {
    pub(crate) path: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) bytes: &'static [u8],
    gzip: OnceLock<Option<Bytes>>,
    tag: OnceLock<String>,
}

impl Asset {
    const fn new(path: &'static str, content_type: &'static str, bytes: &'static [u8]) -> Self {
        Self { path, content_type, bytes, gzip: OnceLock::new(), tag: OnceLock::new() }
    }

    /// Compressed.
    pub(crate) fn gzip(&self) -> Option<Bytes> {
        let compress = || {
            let mut compressed = Vec::with_capacity(self.bytes.len() / 2);
            Encoder::new(Coding::Gzip, LEVEL).write_whole(self.bytes, &mut compressed).ok()?;
            Some(Bytes::from(compressed))
        };
        self.gzip.get_or_init(compress).clone()
    }

    /// Names its contents.
    pub(crate) fn tag(&self) -> &str {
        let name = || {
            let mut hasher = DefaultHasher::new();
            self.bytes.hash(&mut hasher);
            format!("\"{:016x}\"", hasher.finish())
        };
        self.tag.get_or_init(name)
    }
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// The page itself.
pub(crate) static PAGE: Asset = Asset::new("/", HTML, include_bytes!("assets/page.html"));

/// What asks for the token.
pub(crate) static LOGIN: Asset = Asset::new("/", HTML, include_bytes!("assets/login.html"));

/// What anyone may have: it is in every copy of the program.
static PUBLIC: [Asset; 9] = [
    Asset::new("/app.js", SCRIPT, include_bytes!("assets/app.js")),
    Asset::new("/parts.js", SCRIPT, include_bytes!("assets/parts.js")),
    Asset::new("/charts.js", SCRIPT, include_bytes!("assets/charts.js")),
    Asset::new("/tables.js", SCRIPT, include_bytes!("assets/tables.js")),
    Asset::new("/visitors.js", SCRIPT, include_bytes!("assets/visitors.js")),
    Asset::new("/page.css", STYLE, include_bytes!("assets/page.css")),
    Asset::new("/uplot.js", SCRIPT, include_bytes!("assets/uplot/uplot.js")),
    Asset::new("/uplot.css", STYLE, include_bytes!("assets/uplot/uplot.css")),
    Asset::new("/icon.svg", "image/svg+xml", include_bytes!("assets/icon.svg")),
];

/// The public file at `path`.
pub(crate) fn public(path: &str) -> Option<&'static Asset> {
    PUBLIC.iter().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a browser loads before there is anything to see.
    #[test]
    fn the_page_and_all_that_it_loads_is_at_most_100_kb() {
        let plain: usize = PUBLIC.iter().chain([&PAGE]).map(|asset| asset.bytes.len()).sum();
        assert!(plain < 100_000, "{plain} bytes");
        let compressed = PUBLIC.iter().chain([&PAGE]).map(|asset| asset.gzip().expect("gzip").len());
        assert!(compressed.sum::<usize>() < 50_000);
    }

    /// The policy of the page refuses all of these; without them there is nothing to refuse.
    #[test]
    fn nothing_makes_markup_or_code_of_text() {
        for asset in PUBLIC.iter().chain([&PAGE, &LOGIN]).filter(|asset| !asset.path.starts_with("/uplot")) {
            let text = str::from_utf8(asset.bytes).expect("text");
            for wrong in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                " style=\"",
                " onclick",
            ] {
                assert!(!text.contains(wrong), "{wrong} in {}", asset.path);
            }
            assert!(
                !text.contains("http://") || asset.content_type.starts_with("image/svg"),
                "{} loads from elsewhere",
                asset.path
            );
            assert!(!text.contains("https://"), "{} loads from elsewhere", asset.path);
        }
    }
}
