//! `compression`: settings of compressed responses.

use std::sync::Arc;

use brisk_coding::Coding;
use brisk_config_file::{KeyPath, Size};
use brisk_transform::compress::{BreachGuard, CompressionSettings};

use super::RouteCompression;
use super::keys::{self, CodingName, Compression, CompressionKeys, CompressionTable};
use crate::features::{Context, RouteScope};

/// The highest levels for responses that are compressed while they are sent. Above them a megabyte takes a second.
pub const HIGHEST_ZSTD: u8 = 12;
/// The highest quality of Brotli.
pub const HIGHEST_BROTLI: u8 = 7;
/// The highest level of gzip.
pub const HIGHEST_GZIP: u8 = 9;

/// The highest number of padded pages per session and hour. See the bound in docs/pages.md.
const MOST_ARRIVALS: u32 = 128;

/// The compression of a route: its own, or that of its host.
pub(super) fn of_route(
    keys: &CompressionKeys,
    route: &RouteScope<'_>,
    context: &mut Context<'_>,
) -> RouteCompression {
    let Some(written) = &keys.compression else { return route.host.settings.compression.clone() };
    let path = route.key("compression");
    if matches!(written, Compression::On(_)) && route.keys.action.redirect.is_some() {
        context.findings.wrong(&path, "has no effect with `redirect`: it has no body");
    }
    compression(written, &path, context)
}

/// The compression that is written at `path`.
pub(super) fn compression(
    written: &Compression,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> RouteCompression {
    RouteCompression {
        settings: settings(written, path, context),
        is_off: matches!(written, Compression::Off),
    }
}

fn settings(
    written: &Compression,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Arc<CompressionSettings>> {
    let Compression::On(table) = written else { return None };
    let mut settings = CompressionSettings::default();
    codings(table, path, context, &mut settings);
    types(table, path, context, &mut settings);
    let sizes = Size(1)..=Size(1 << 30);
    settings.least = context.findings.within(&path.key("least"), table.least, Size(settings.least), &sizes).0;
    settings.guard = match table.breach_guard {
        Some(keys::BreachGuard::SameSite) => BreachGuard::SameSite,
        Some(keys::BreachGuard::Off) => BreachGuard::Off,
        Some(keys::BreachGuard::CrossSite) | None => BreachGuard::CrossSite,
    };
    settings.arrivals = context.findings.within(
        &path.key("arrivals"),
        table.arrivals,
        settings.arrivals,
        &(0..=MOST_ARRIVALS),
    );
    if table.arrivals.is_some() && settings.guard == BreachGuard::Off {
        context.findings.wrong(
            &path.key("arrivals"),
            "has no effect with `breach_guard = \"off\"`: all pages are compressed without padding",
        );
    }
    // Padded pages have the coding gzip only.
    if table.arrivals.is_some_and(|pages| pages > 0) && !settings.codings.contains(&Coding::Gzip) {
        context.findings.wrong(&path.key("arrivals"), "has no effect: `codings` has no \"gzip\"");
    }
    settings.dictionaries = table.dictionaries.unwrap_or(false);
    Some(Arc::new(settings))
}

fn codings(
    table: &CompressionTable,
    path: &KeyPath,
    context: &mut Context<'_>,
    settings: &mut CompressionSettings,
) {
    if let Some(names) = &table.codings {
        let coding = |name: &CodingName| match name {
            CodingName::Zstd => Coding::Zstd,
            CodingName::Br => Coding::Brotli,
            CodingName::Gzip => Coding::Gzip,
        };
        settings.codings = names.iter().map(coding).collect();
        let path = path.key("codings");
        // A name that could not be read is missing in the list, and was reported already.
        if names.is_empty() && !context.findings.written(&path.index(0)) {
            context.findings.wrong(
                &path,
                "no coding: write some of \"zstd\", \"br\" and \"gzip\", or compression = false",
            );
        }
        for (index, name) in names.iter().enumerate() {
            if names[..index].contains(name) {
                context.findings.wrong(&path.index(index), "is in the list already");
            }
        }
    }
    for (key, coding, written, highest) in [
        ("zstd_level", Coding::Zstd, table.zstd_level, HIGHEST_ZSTD),
        ("br_quality", Coding::Brotli, table.br_quality, HIGHEST_BROTLI),
        ("gzip_level", Coding::Gzip, table.gzip_level, HIGHEST_GZIP),
    ] {
        let path = path.key(key);
        let level = &mut settings.levels[coding.index()];
        *level = context.findings.within(&path, written, *level, &(*coding.levels().start()..=highest));
        if written.is_some() && !settings.codings.contains(&coding) {
            let message = format!("has no effect: `codings` has no \"{}\"", coding.name());
            context.findings.wrong(&path, message);
        }
    }
}

fn types(
    table: &CompressionTable,
    path: &KeyPath,
    context: &mut Context<'_>,
    settings: &mut CompressionSettings,
) {
    let Some(types) = &table.types else { return };
    let path = path.key("types");
    if types.is_empty() && !context.findings.written(&path.index(0)) {
        context.findings.wrong(&path, "no type: write at least one, as \"text/*\", or compression = false");
    }
    settings.types.clear();
    for (index, text) in types.iter().enumerate() {
        match text.parse() {
            Ok(pattern) => settings.types.push(pattern),
            Err(error) => {
                context.findings.wrong(&path.index(index), format!("{text:?} is not a media type: {error}"));
            }
        }
    }
}
