//! Findings about a page load: compression, caching, fonts, origins, priorities, failures.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde_json::Value;

use super::PageRequest;
use crate::delivery::{SHORT, content_type, freshness, is_resource, is_text, is_uncoded};
use crate::findings::Finding;

/// Facts of the page that the events do not contain: paints, shifts, the largest element, fonts, preloads.
///
/// A busy browser paints after the load event, and reports this later: the script waits for two frames, and for at most three seconds
/// for the first report of each kind that every visible page has.
pub(super) const FACTS: &str = "(async () => {
  const pause = time => new Promise(resolve => setTimeout(resolve, time));
  const frame = () => Promise.race([new Promise(requestAnimationFrame), pause(1000)]);
  await frame();
  await frame();
  const entries = async type => {
    const found = [], end = performance.now() + (type == 'layout-shift' ? 0 : 3000);
    try {
      new PerformanceObserver(list => found.push(...list.getEntries())).observe({ type, buffered: true });
    } catch { return found; }
    do await pause(50); while (!found.length && performance.now() < end);
    return found;
  };
  const [paints, largest, shifts] =
    await Promise.all(['paint', 'largest-contentful-paint', 'layout-shift'].map(entries));
  const last = largest.at(-1), element = last && last.element;
  const of = element && element.tagName == 'IMG' ? element : null;
  const links = rel => [...document.querySelectorAll(`link[rel~=${rel}]`)];
  return {
    fcp: (paints.find(paint => paint.name == 'first-contentful-paint') || {}).startTime,
    lcp: last ? { time: last.startTime, url: last.url, tag: element ? element.tagName : '',
      priority: of ? of.fetchPriority : '', loading: of ? of.loading : '' } : null,
    cls: shifts.filter(shift => !shift.hadRecentInput).reduce((sum, shift) => sum + shift.value, 0),
    fonts: [...document.fonts].filter(font => font.status == 'loaded')
      .map(font => ({ family: font.family, display: font.display })),
    preloads: links('preload').map(link => ({ url: link.href, as: link.as, priority: link.fetchPriority })),
  };
})()";

/// Length of a text in bytes from which on compression is worth its cost: shorter texts fit into one segment.
const LEAST: f64 = 1400.0;

/// Maximum number of paths in [`Finding::text`].
const NAMED: usize = 3;

/// All findings about the requests of the page at `url`.
pub(super) fn findings(requests: &[PageRequest], url: &str, facts: &Value) -> Vec<Finding> {
    let document = PageRequest { url: url.to_owned(), ..PageRequest::default() };
    let own = document.origin();
    // The operator can change compression and caching of the own origin only.
    let is_own = |request: &&PageRequest| request.origin() == own && !request.is_cached;
    let own_requests: Vec<_> = requests.iter().filter(is_own).collect();
    let found = [
        uncompressed(&own_requests),
        uncached(&own_requests),
        blocking_fonts(requests, facts),
        missing_priority(requests, facts),
        failed(requests),
    ];
    found.into_iter().flatten().chain(other_origins(requests, own)).collect()
}

/// Paths of `requests` for a message.
fn named(requests: &[&PageRequest]) -> String {
    let first: Vec<_> = requests.iter().take(NAMED).map(|request| request.path()).collect();
    match requests.len().checked_sub(NAMED) {
        Some(more @ 1..) => format!("{} and {more} more", first.join(", ")),
        _ => first.join(", "),
    }
}

fn uncompressed(requests: &[&PageRequest]) -> Option<Finding> {
    let is_plain = |request: &&&PageRequest| {
        request.status == 200
            && is_text(&content_type(&request.headers))
            && is_uncoded(&request.headers)
            && request.body_bytes > LEAST
    };
    let found: Vec<_> = requests.iter().filter(is_plain).copied().collect();
    let bytes = found.iter().map(|request| request.body_bytes).sum::<f64>() as u64;
    let text = format!("{} texts with {bytes} bytes are not compressed: {}", found.len(), named(&found));
    (!found.is_empty()).then(|| {
        Finding::new("not-compressed", text).costs(0, bytes / 4 * 3).change(
            "compression = true",
            "gzip on; gzip_types text/css application/javascript application/json image/svg+xml;",
        )
    })
}

fn uncached(requests: &[&PageRequest]) -> Option<Finding> {
    let now = SystemTime::now();
    let is_short = |request: &&&PageRequest| {
        request.status == 200
            && is_resource(&content_type(&request.headers))
            && freshness(&request.headers, now).is_none_or(|age| age < SHORT)
    };
    let found: Vec<_> = requests.iter().filter(is_short).copied().collect();
    let bytes = found.iter().map(|request| request.bytes).sum::<f64>() as u64;
    let text = format!(
        "{} resources are requested again at the next visit, a day later: {}",
        found.len(),
        named(&found)
    );
    (!found.is_empty()).then(|| {
        Finding::new("not-cached", text)
            .costs(0, bytes)
            .change(
                "response_headers = { set = { Cache-Control = \"public, max-age=31536000, immutable\" } }",
                "add_header Cache-Control \"public, max-age=31536000, immutable\";",
            )
            .advise("put a hash into the names of the files, so that a new version is another URL")
    })
}

fn blocking_fonts(requests: &[PageRequest], facts: &Value) -> Option<Finding> {
    let fonts = facts["fonts"].as_array()?;
    // `auto` leaves the choice to the browser, and Chromium hides the text as with `block`.
    let blocks = |font: &&Value| matches!(font["display"].as_str(), Some("auto" | "block"));
    let mut families: Vec<_> =
        fonts.iter().filter(blocks).filter_map(|font| font["family"].as_str()).collect();
    families.sort_unstable();
    families.dedup();
    let loaded: Vec<_> = requests.iter().filter(|request| request.kind == "Font").collect();
    if families.is_empty() || loaded.is_empty() {
        return None;
    }
    let end = loaded.iter().map(|font| font.start_ms + font.time_ms.unwrap_or_default()).fold(0.0, f64::max);
    let names = brisk_report::text::printable(&families.join(", "));
    let text = format!(
        "text in {names} is invisible until its font has arrived, here for {end:.0} ms: {}",
        named(&loaded)
    );
    let finding = Finding::new("blocking-font", text)
        .takes(end)
        .advise("font-display: swap (or optional) in @font-face, and <link rel=preload as=font crossorigin> for the file");
    Some(finding)
}

fn missing_priority(requests: &[PageRequest], facts: &Value) -> Option<Finding> {
    let largest = &facts["lcp"];
    // Text has no URL, and a picture in a `data:` URL needs no request.
    let url = largest["url"].as_str().filter(|url| url.starts_with("http"))?;
    let request = requests.iter().find(|request| request.url == url)?;
    let preloads = facts["preloads"].as_array();
    let is_first = |preload: &Value| preload["url"] == url && preload["priority"] == "high";
    if largest["priority"] == "high" || preloads.is_some_and(|all| all.iter().any(is_first)) {
        return None;
    }
    let lazy = if largest["loading"] == "lazy" { ", and waits for the layout with loading=lazy" } else { "" };
    let text = format!(
        "the largest picture, {}, begins with priority {} at {:.0} ms{lazy}: it has no fetchpriority",
        request.path(),
        request.priority,
        request.start_ms
    );
    let finding = Finding::new("missing-priority", text)
        .takes(request.start_ms)
        .advise("fetchpriority=\"high\" and no loading=\"lazy\" on this <img>; early_hints of brisk names it before the page");
    Some(finding)
}

fn failed(requests: &[PageRequest]) -> Option<Finding> {
    let is_failed = |request: &&PageRequest| {
        // Aborted requests were cancelled by the page itself, and are no fault of a server.
        request.status >= 400 || request.failure.as_deref().is_some_and(|why| why != "net::ERR_ABORTED")
    };
    let found: Vec<_> = requests.iter().filter(is_failed).collect();
    let first = found.first()?;
    let why = first.failure.clone().unwrap_or_else(|| format!("status {}", first.status));
    let text = format!("{} requests fail: {} ({why})", found.len(), named(&found));
    Some(Finding::new("failed-request", text).advise("remove the reference, or serve the file"))
}

/// A finding for each other origin that needed a connection.
fn other_origins(requests: &[PageRequest], own: &str) -> Vec<Finding> {
    let mut origins: BTreeMap<&str, (usize, f64, u32)> = BTreeMap::new();
    for request in requests.iter().filter(|request| request.origin() != own && request.kind != "Document") {
        let origin = origins.entry(request.origin()).or_default();
        origin.0 += 1;
        origin.1 += request.dns_ms + request.connect_ms;
        // A shorter resolution is one from a cache nearby, which costs no round trip.
        origin.2 += u32::from(request.dns_ms > 1.0)
            + u32::from(request.connect_ms > 0.0)
            + u32::from(request.tls_ms > 0.0);
    }
    // An origin without a round trip shared a connection, e.g. by HTTP/2 coalescing, and costs nothing.
    let needs = origins.into_iter().filter(|(_, (_, _, trips))| *trips > 0);
    let finding = |(origin, (count, time, trips)): (&str, (usize, f64, u32))| {
        let text = format!(
            "{count} requests go to {origin}, which needs a connection of its own: {time:.1} ms here"
        );
        let mut finding = Finding::new("other-origin", text)
            .change("consolidate = { origins = { NAME = \"ORIGIN\" } } of the host", "")
            .advise("serve these files from the page's own origin, or <link rel=preconnect>; brisk check --har shows the gain");
        finding.round_trips = trips;
        finding.takes(time)
    };
    needs.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(path: &str, kind: &str, headers: &[(&str, &str)]) -> PageRequest {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        PageRequest {
            url: format!("https://a.test{path}"),
            kind: kind.to_owned(),
            status: 200,
            body_bytes: 5000.0,
            headers,
            ..PageRequest::default()
        }
    }

    fn ids(requests: &[PageRequest], facts: &Value) -> Vec<&'static str> {
        findings(requests, "https://a.test/", facts).into_iter().map(|finding| finding.id).collect()
    }

    #[test]
    fn each_fault_is_found_and_no_other() {
        let kept = ("cache-control", "max-age=31536000");
        let page = request("/", "Document", &[("content-type", "text/html"), ("content-encoding", "br")]);
        let css = |headers: &[(&str, &str)]| {
            request("/a.css", "Stylesheet", &[&[("content-type", "text/css")], headers].concat())
        };
        let right = css(&[("content-encoding", "gzip"), kept]);
        let none = json!({ "fonts": [], "preloads": [] });
        assert!(ids(&[page.clone(), right.clone()], &none).is_empty());
        assert_eq!(ids(&[page.clone(), css(&[kept])], &none), ["not-compressed"]);
        assert_eq!(ids(&[page.clone(), css(&[("content-encoding", "br")])], &none), ["not-cached"]);
        let font = request("/a.woff2", "Font", &[("content-type", "font/woff2"), kept]);
        let fonts = |display: &str| json!({ "fonts": [{ "family": "A", "display": display }] });
        assert_eq!(ids(&[page.clone(), font.clone()], &fonts("auto")), ["blocking-font"]);
        assert!(ids(&[page.clone(), font], &fonts("swap")).is_empty());
        let picture = request("/a.png", "Image", &[("content-type", "image/png"), kept]);
        let largest =
            |priority: &str| json!({ "lcp": { "url": "https://a.test/a.png", "priority": priority } });
        assert_eq!(ids(&[page.clone(), picture.clone()], &largest("auto")), ["missing-priority"]);
        assert!(ids(&[page.clone(), picture.clone()], &largest("high")).is_empty());
        let mut other = picture.clone();
        (other.url, other.connect_ms) = ("https://b.test/a.png".to_owned(), 30.0);
        assert_eq!(ids(&[page.clone(), other], &none), ["other-origin"]);
        let mut missing = picture;
        missing.status = 404;
        assert_eq!(ids(&[page, missing], &none), ["failed-request"]);
    }
}
