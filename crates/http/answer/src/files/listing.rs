//! Pages with the files of a folder.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::LazyLock;

use brisk_budget::Full;
use brisk_folder::{Beneath, Entry, Listing};
use brisk_http::message::Response;
use brisk_http::path::RequestPath;
use brisk_transform::body::Body;
use http::{HeaderValue, Method, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::readers::Readers;
use super::room::Room;
use super::{CHUNK, is_hidden_name};
use crate::redirect;

/// Maximum length of a page in bytes. Further files are left out.
const LONGEST: usize = 1 << 20;

/// Folders that the process reads at the same time, and requests that wait for it. Further requests get `503`.
static READERS: LazyLock<Readers> = LazyLock::new(|| Readers::new(4, 256));

/// End of a page, and of one without all files.
const END: &str = "</table>\n";
const CUT: &str = "<p>Further files are not listed.\n";

/// Bytes of names that are encoded in URLs (RFC 3986 section 2.3).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Pages for the folders below one folder.
#[derive(Debug)]
pub(super) struct Listings(Beneath);

impl Listings {
    pub(super) fn new(beneath: Beneath) -> Self {
        Self(beneath)
    }

    /// The page for a folder. `below` is its decoded path below the route. `None` if there is no such folder, and for methods
    /// other than `GET` and `HEAD`. The page is formed by the thread that reads the folder, after its memory is reserved in
    /// `room`.
    pub(super) async fn answer(
        &self,
        method: &Method,
        below: &[u8],
        path: &RequestPath<'_>,
        room: &mut Room,
    ) -> Option<Response<Body>> {
        if method != Method::GET && method != Method::HEAD {
            return None;
        }
        let folder = Path::new(OsStr::from_bytes(below.strip_prefix(b"/").unwrap_or(below))).to_owned();
        let whole = &path.decoded;
        let client = room.client();
        if !whole.ends_with(b"/") {
            let Some(reader) = READERS.acquire(client).await else { return Some(unavailable()) };
            // Only the existence of the folder matters, so nothing is formed.
            self.0.list(folder, is_hidden_name, |_| drop(reader)).await.ok()?;
            // The links of the page are relative to the folder.
            // Without further slashes at its beginning, which would name another host.
            let location = format!("/{}/", path.forwarded.trim_matches('/'));
            return Some(redirect::to(StatusCode::TEMPORARY_REDIRECT, HeaderValue::try_from(location).ok()?));
        }
        let reader = loop {
            // Without a reader: a client that reads nothing would keep it from others.
            room.wait(LONGEST).await;
            let Some(reader) = READERS.acquire(client).await else { return Some(unavailable()) };
            match room.take(LONGEST) {
                Ok(true) => break reader,
                // Another response has taken the memory. The reader is released, and the wait begins again.
                Ok(false) => {}
                Err(Full) => return Some(unavailable()),
            }
        };
        let title = String::from_utf8_lossy(whole).into_owned();
        let form = move |listing: &Listing| {
            // The thread continues after the request has been cancelled: the slot is that of the thread.
            let _reader = reader;
            page(&title, listing)
        };
        let page = self.0.list(folder, is_hidden_name, form).await;
        room.shrink(page.as_ref().map_or(CHUNK, String::len));
        let mut response = Response::new(Body::full(page.ok()?));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        // Names of files may come from uploads, so the page permits no script at all.
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        Some(response)
    }
}

/// The response without memory, or with too many requests before it.
fn unavailable() -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}

fn page(path: &str, listing: &Listing) -> String {
    let title = escaped(path);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Index of {title}</title>\n<h1>Index of {title}</h1>\n<table>\n<tr><th>Name<th>Bytes<th>Changed\n"
    );
    if path != "/" {
        page.push_str("<tr><td><a href=\"../\">../</a><td><td>\n");
    }
    let mut is_cut = listing.is_cut;
    for entry in &listing.entries {
        let before = page.len();
        row(entry, &mut page);
        // Space for the end is kept, so that the page never exceeds the reserved memory.
        if page.len() > LONGEST - END.len() - CUT.len() {
            page.truncate(before);
            is_cut = true;
            break;
        }
    }
    page.push_str(END);
    if is_cut {
        page.push_str(CUT);
    }
    page.shrink_to_fit();
    page
}

fn row(Entry { name, is_dir, length, modified }: &Entry, page: &mut String) {
    let slash = if *is_dir { "/" } else { "" };
    let length = if *is_dir { String::new() } else { length.to_string() };
    let modified = modified.map(httpdate::fmt_http_date).unwrap_or_default();
    let (url, text) = (utf8_percent_encode(name, ENCODED), escaped(name));
    // A string takes all text. The text of a name in another direction does not reach the columns beside it.
    let _ = writeln!(
        page,
        "<tr><td><a href=\"./{url}{slash}\"><bdi>{text}</bdi>{slash}</a><td>{length}<td>{modified}"
    );
}

fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut escaped, part| {
        match part {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> Entry {
        Entry { name: name.to_owned(), is_dir: false, length: 5, modified: None }
    }

    #[test]
    fn names_are_text_and_urls() {
        let names =
            ["<script>alert(1)</script>", "\" onclick=\"x", "javascript:x", "a?b#c%41&d", "\u{fc} \u{202e}x"];
        let folder = Entry { is_dir: true, ..entry("folder") };
        let entries = [vec![folder], names.map(entry).to_vec()].concat();
        let page = page("/<b>/", &Listing { entries, is_cut: false });
        for expected in [
            "<h1>Index of /&lt;b&gt;/</h1>",
            "<a href=\"../\">",
            "<a href=\"./folder/\"><bdi>folder</bdi>/</a><td><td>",
            "<a href=\"./%3Cscript%3Ealert%281%29%3C%2Fscript%3E\"><bdi>&lt;script&gt;alert(1)&lt;/script&gt;</bdi></a><td>5<td>",
            "<a href=\"./%22%20onclick%3D%22x\"><bdi>&quot; onclick=&quot;x</bdi>",
            "<a href=\"./javascript%3Ax\">",
            "<a href=\"./a%3Fb%23c%2541%26d\"><bdi>a?b#c%41&amp;d</bdi>",
            "<a href=\"./%C3%BC%20%E2%80%AEx\">",
        ] {
            assert!(page.contains(expected), "{expected} in {page}");
        }
        assert!(!page.contains("not listed"));
    }

    #[test]
    fn a_page_is_bounded() {
        let listing = Listing { entries: vec![entry(&"\u{fc}".repeat(120)); 5_000], is_cut: false };
        let page = page("/", &listing);
        assert!((LONGEST - 4_000..=LONGEST).contains(&page.len()) && page.ends_with(CUT), "{}", page.len());
        assert!(!page.contains("../"));
    }
}
