//! Limits of memory and pace: `[server.limits]`.

use brisk_config_file::{Findings, KeyPath, Size};
use brisk_http_server::HttpSettings;
use brisk_pressure::memory_limit;

use crate::raw::ServerLimits;

/// The share of the memory of the process that responses may take unless another limit is written.
const PART: u64 = 4;

/// Resolves the limits in `[server.limits]` of buffered responses and slow request bodies.
pub(super) fn memory_and_pace(
    raw: &ServerLimits,
    path: &KeyPath,
    findings: &mut Findings<'_>,
    settings: &mut HttpSettings,
) {
    let sizes = Size(64 << 10)..=Size(1 << 30);
    let usual = Size(settings.buffered as u64);
    settings.buffered = findings.within(&path.key("buffered"), raw.buffered, usual, &sizes).0 as usize;
    let sizes = Size(1 << 20)..=Size(1 << 50);
    // At least the lower end of the range, so that the default is valid on a small machine too.
    let usual = memory_limit().map_or(settings.buffered_total as u64, |memory| memory / PART).max(1 << 20);
    let total = path.key("buffered_total");
    settings.buffered_total = findings.within(&total, raw.buffered_total, Size(usual), &sizes).0 as usize;
    let (requests, usual) = (path.key("buffered_requests"), Size(settings.gathered_total));
    settings.gathered_total = findings.within(&requests, raw.buffered_requests, usual, &sizes).0;
    let (files, usual) = (path.key("compressed_files"), Size(settings.compressed_files as u64));
    let sizes = Size(0)..=Size(1 << 40);
    settings.compressed_files = findings.within(&files, raw.compressed_files, usual, &sizes).0 as usize;
    let (dictionaries, usual) = (path.key("dictionaries"), Size(settings.dictionaries as u64));
    settings.dictionaries = findings.within(&dictionaries, raw.dictionaries, usual, &sizes).0 as usize;
    let (path, usual) = (path.key("compression_memory"), Size(settings.compression_memory as u64));
    let sizes = Size(4 << 20)..=Size(1 << 40);
    settings.compression_memory = findings.within(&path, raw.compression_memory, usual, &sizes).0 as usize;
    // A rate of 0 is the absence of one.
    if let Some(rate) = raw.body_rate {
        settings.body_rate = rate.0.unwrap_or(0);
    }
    if let Some(rate) = raw.read_rate {
        settings.read_rate = rate.0.unwrap_or(0);
    }
}
