//! `error_pages` of hosts and routes: files that are read with the configuration.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use brisk_config_file::KeyPath;
use http::StatusCode;

use super::keys::{self, ErrorPagesKeys};
use super::pages::{ErrorPage, ErrorPages};
use crate::features::{Context, HostScope, RouteScope};

/// Maximum size of a page in bytes. Pages are in memory.
const LARGEST: u64 = 1 << 20;

/// The pages of a host.
pub(super) fn of_host(
    keys: &ErrorPagesKeys,
    host: &HostScope<'_>,
    context: &mut Context<'_>,
) -> Option<Arc<ErrorPages>> {
    let pages = keys.error_pages.as_ref()?;
    Some(Arc::new(pages_of(pages, ErrorPages::default(), &host.key("error_pages"), context)))
}

/// The pages of a route: its own, and those of its host for other statuses. An empty table switches the pages of the host off.
pub(super) fn of_route(
    keys: &ErrorPagesKeys,
    route: &RouteScope<'_>,
    context: &mut Context<'_>,
) -> Option<Arc<ErrorPages>> {
    let inherited = route.host.settings.error_pages.as_ref();
    let Some(pages) = &keys.error_pages else { return inherited.cloned() };
    if pages.files.is_empty() && pages.intercept.is_none() {
        return None;
    }
    let path = route.key("error_pages");
    if pages.intercept.is_some() && !route.has_upstream() {
        context.findings.wrong(&path.key("intercept"), "has no effect without `upstream`");
    }
    let inherited = inherited.map(|pages| ErrorPages::clone(pages)).unwrap_or_default();
    Some(Arc::new(pages_of(pages, inherited, &path, context)))
}

fn pages_of(
    raw: &keys::ErrorPages,
    mut pages: ErrorPages,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> ErrorPages {
    // An own page for a class precedes inherited pages for its statuses.
    for (class, statuses) in [("4xx", 400..=499), ("5xx", 500..=599)] {
        if raw.files.contains_key(class) {
            pages.by_status.retain(|status, _| !statuses.contains(&status.as_u16()));
        }
    }
    for (key, file) in &raw.files {
        let path = path.key(key);
        let status = key.parse().ok().filter(|status| (400..600).contains(status));
        let status = status.and_then(|status: u16| StatusCode::from_u16(status).ok());
        if status.is_none() && !matches!(key.as_str(), "4xx" | "5xx") {
            context.findings.wrong(
                &path,
                "is not the status of an error: write one from 400 to 599, \"4xx\" or \"5xx\" for all of a class, or `intercept`",
            );
            continue;
        }
        let Some(page) = page(file, &path, context) else { continue };
        match status {
            Some(status) => drop(pages.by_status.insert(status, page)),
            None if key == "4xx" => pages.client_errors = Some(page),
            None => pages.server_errors = Some(page),
        }
    }
    pages.intercept = raw.intercept.unwrap_or(pages.intercept);
    pages
}

/// The page in `file`.
pub(crate) fn page(file: &Path, path: &KeyPath, context: &mut Context<'_>) -> Option<ErrorPage> {
    let file = context.file(file);
    match read(&file) {
        Ok(content) if content.len() as u64 > LARGEST => {
            let message =
                format!("{} is larger than 1 MiB, and error pages are kept in memory", file.display());
            context.findings.wrong(path, message);
            None
        }
        Ok(content) => Some(ErrorPage::new(&file, content)),
        Err(error) => {
            context.findings.wrong(path, format!("cannot read {}: {error}", file.display()));
            None
        }
    }
}

/// The content of a file, up to one byte more than a page may have.
fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(file)?.take(LARGEST + 1).read_to_end(&mut content)?;
    Ok(content)
}
