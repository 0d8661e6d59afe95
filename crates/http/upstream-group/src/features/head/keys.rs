//! Keys of the limits for heads.

use brisk_config_file::Size;
use serde::Deserialize;

/// Keys of a group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeadKeys {
    /// Size of status line and headers of a response; beyond it 502. Between `"8KiB"` and `"1MiB"`.
    pub head_size: Option<Size>,
    /// Number of headers of a response, and over HTTP/2 of its trailers; beyond it 502, and a warning in the log, at most one in ten
    /// seconds for each server. Between 10 and 1000.
    pub headers: Option<u16>,
}
