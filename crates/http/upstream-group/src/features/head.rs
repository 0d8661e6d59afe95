//! `head_size` and `headers`: limits for the heads of responses.

mod keys;

use brisk_config_file::Size;
use brisk_http::http1::HeadLimits;

use super::{Context, GroupFeature, GroupScope};
pub use keys::HeadKeys;

/// Default maximum number of headers of a response.
const HEADERS: u16 = 100;

/// Default maximum size of a response's head in bytes.
const HEAD_SIZE: usize = 64 * 1024;

/// Limits for the head of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadSettings {
    /// Maximum size in bytes: status line and headers together; beyond it `502`. Default: 64 KiB.
    pub size: usize,
    /// Maximum number of headers; beyond it `502`. Default: 100.
    pub headers: usize,
}

impl Default for HeadSettings {
    fn default() -> Self {
        Self { size: HEAD_SIZE, headers: HEADERS.into() }
    }
}

impl HeadSettings {
    /// The limits as the parsers of responses take them.
    pub fn limits(self) -> HeadLimits {
        HeadLimits { size: self.size, lines: self.headers }
    }
}

/// `head_size` and `headers` of groups.
#[derive(Debug)]
pub struct HeadFeature;

impl GroupFeature for HeadFeature {
    type Keys = HeadKeys;
    type Settings = HeadSettings;

    fn resolve(keys: &HeadKeys, group: &GroupScope<'_>, context: &mut Context<'_, '_>) -> HeadSettings {
        let range = Size(8 << 10)..=Size(1 << 20);
        let size =
            context.findings.within(&group.key("head_size"), keys.head_size, Size(HEAD_SIZE as u64), &range);
        let headers = context.findings.within(&group.key("headers"), keys.headers, HEADERS, &(10..=1000));
        HeadSettings { size: usize::try_from(size.0).unwrap_or(HEAD_SIZE), headers: headers.into() }
    }
}
