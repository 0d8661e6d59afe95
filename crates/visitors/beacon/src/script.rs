//! The script with which pages measure visits.

use std::sync::LazyLock;

/// The script, `rum.js`. Sends a beacon when the page is first left or hidden, and only if the response had an id; stores
/// nothing in the browser, and reads nothing except times and sizes measured by the browser.
pub const SCRIPT: &str = include_str!("rum.js");

/// Version of [`SCRIPT`] for the query of its URL and its `ETag`: 16 hexadecimal digits.
pub fn script_version() -> &'static str {
    // A new version has a new URL, so that caches never deliver the old script for it.
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        // FNV-1a, because its result is the same in all builds, unlike `RandomState`.
        let hashed = SCRIPT.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        format!("{hashed:016x}")
    });
    &VERSION
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_short() {
        let config = zlib_rs::DeflateConfig::new(6);
        let mut compressed = vec![0; 2 * SCRIPT.len()];
        let (compressed, _) = zlib_rs::compress_slice(&mut compressed, SCRIPT.as_bytes(), config);
        assert!(compressed.len() < 2 << 10, "{}", compressed.len());
        assert_eq!(script_version().len(), 16);
        for word in ["cookie", "Storage", "userAgent", "fingerprint", "innerHTML", "eval"] {
            assert!(!SCRIPT.contains(word), "{word}");
        }
    }
}
