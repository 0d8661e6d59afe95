//! Embedded files of the page, compressed at their first request.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;

use brisk_coding::{Coding, Encoder};
use bytes::Bytes;

/// Level of gzip. High, because each file is compressed only once.
const LEVEL: u8 = 9;

/// An embedded file.
#[derive(Debug)]
pub(crate) struct Asset {
    pub(crate) path: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) bytes: &'static [u8],
    gzip: OnceLock<Option<Bytes>>,
    tag: OnceLock<String>,
}

impl Asset {
    pub(crate) const fn new(path: &'static str, content_type: &'static str, bytes: &'static [u8]) -> Self {
        Self { path, content_type, bytes, gzip: OnceLock::new(), tag: OnceLock::new() }
    }

    /// The compressed content. `None` if compression failed.
    pub(crate) fn gzip(&self) -> Option<Bytes> {
        let compress = || {
            let mut compressed = Vec::with_capacity(self.bytes.len() / 2);
            Encoder::new(Coding::Gzip, LEVEL).write_whole(self.bytes, &mut compressed).ok()?;
            Some(Bytes::from(compressed))
        };
        self.gzip.get_or_init(compress).clone()
    }

    /// `ETag`: a hash of the content. Weak (`W/`), because the `gzip` form has it too (RFC 9110 section 8.8.3.3).
    pub(crate) fn tag(&self) -> &str {
        let name = || {
            // Only another version of the program has other content, so a hash of 64 bits without a secret
            // suffices.
            let mut hasher = DefaultHasher::new();
            self.bytes.hash(&mut hasher);
            format!("W/\"{:016x}\"", hasher.finish())
        };
        self.tag.get_or_init(name)
    }
}

pub(crate) const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// The page itself.
pub(crate) static PAGE: Asset = Asset::new("/", HTML, include_bytes!("assets/page.html"));

/// The login page, shown to clients without authorization.
pub(crate) static LOGIN: Asset = Asset::new("/", HTML, include_bytes!("assets/login.html"));

/// Files that need no authorization: they contain no data of the gateway.
static PUBLIC: [Asset; 8] = [
    Asset::new("/app.js", SCRIPT, include_bytes!("assets/app.js")),
    Asset::new("/parts.js", SCRIPT, include_bytes!("assets/parts.js")),
    Asset::new("/charts.js", SCRIPT, include_bytes!("assets/charts.js")),
    Asset::new("/tables.js", SCRIPT, include_bytes!("assets/tables.js")),
    Asset::new("/page.css", STYLE, include_bytes!("assets/page.css")),
    Asset::new("/uplot.js", SCRIPT, include_bytes!("assets/uplot/uplot.js")),
    Asset::new("/uplot.css", STYLE, include_bytes!("assets/uplot/uplot.css")),
    Asset::new("/icon.svg", "image/svg+xml", include_bytes!("assets/icon.svg")),
];

/// Files that [`PAGE`] loads when visits are stored, and the style of the documentation. They need no authorization either.
static LATER: [Asset; 4] = [
    Asset::new("/visitors.js", SCRIPT, include_bytes!("assets/visitors.js")),
    Asset::new("/lines.js", SCRIPT, include_bytes!("assets/lines.js")),
    Asset::new("/pages.js", SCRIPT, include_bytes!("assets/pages.js")),
    Asset::new("/docs.css", STYLE, include_bytes!("assets/docs.css")),
];

/// The public file at `path`.
pub(crate) fn public(path: &str) -> Option<&'static Asset> {
    PUBLIC.iter().chain(&LATER).find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All files that a browser loads before it shows the page.
    #[test]
    fn the_page_and_all_that_it_loads_is_at_most_100_kb() {
        let plain: usize = PUBLIC.iter().chain([&PAGE]).map(|asset| asset.bytes.len()).sum();
        assert!(plain < 100_000, "{plain} bytes");
        let compressed = PUBLIC.iter().chain([&PAGE]).map(|asset| asset.gzip().expect("gzip").len());
        assert!(compressed.sum::<usize>() < 50_000);
    }

    /// Trusted Types would block each of these at run time. Their absence means that the page never depends on that.
    #[test]
    fn nothing_makes_markup_or_code_of_text() {
        for asset in PUBLIC
            .iter()
            .chain(&LATER)
            .chain([&PAGE, &LOGIN])
            .filter(|asset| !asset.path.starts_with("/uplot"))
        {
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
