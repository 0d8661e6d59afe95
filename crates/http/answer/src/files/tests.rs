mod formed;

use std::fs;
use std::os::unix::fs::symlink;

use brisk_http::message::Request;
use brisk_http_connection::testing;
use http::HeaderValue;
use tempfile::TempDir;

use super::*;

struct Site {
    folder: TempDir,
    files: StaticFiles,
}

fn files_route() -> RoutePath {
    RoutePath::Prefix("/files".to_owned())
}

fn site() -> Site {
    let folder = TempDir::new().expect("a folder");
    let root = folder.path().join("root");
    fs::create_dir_all(root.join("docs")).expect("docs");
    fs::create_dir_all(root.join(".well-known")).expect("well-known");
    fs::write(folder.path().join("secret"), "secret").expect("secret");
    for (name, text) in
        [("a.txt", "0123456789"), ("docs/index.html", "<p>"), (".env", "x"), (".well-known/k", "k")]
    {
        fs::write(root.join(name), text).expect(name);
    }
    let files = StaticFiles::new(
        &StaticSettings { precompressed: true, ..StaticSettings::new(root) },
        &files_route(),
    );
    Site { folder, files }
}

impl Site {
    fn root(&self) -> std::path::PathBuf {
        self.folder.path().join("root")
    }

    async fn get(&self, target: &str, headers: &[(&'static str, &str)]) -> Response<Body> {
        let mut request = Request::get(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        let path = RequestPath::read(parts.uri.path()).expect("a path");
        self.files.answer(&parts, &path, &mut Room::new(&testing::connection())).await
    }

    async fn status(&self, target: &str) -> u16 {
        self.get(target, &[]).await.status().as_u16()
    }
}

async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[tokio::test]
async fn a_file_has_its_type_length_and_tag() {
    let response = site().get("/files/a.txt", &[]).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/plain");
    assert_eq!(response.headers()["content-length"], "10");
    assert!(response.headers().contains_key("etag") && response.headers().contains_key("last-modified"));
    assert_eq!(text(response).await, "0123456789");
}

#[tokio::test]
async fn ranges_and_conditions_are_obeyed() {
    let site = site();
    let part = site.get("/files/a.txt", &[("range", "bytes=2-4")]).await;
    assert_eq!(part.status(), 206);
    assert_eq!(part.headers()["content-range"], "bytes 2-4/10");
    let tag = part.headers()["etag"].to_str().expect("text").to_owned();
    assert_eq!(text(part).await, "234");
    assert_eq!(site.get("/files/a.txt", &[("range", "bytes=20-")]).await.status(), 416);
    assert_eq!(site.get("/files/a.txt", &[("if-none-match", &tag)]).await.status(), 304);
    assert_eq!(site.get("/files/a.txt", &[("if-match", "\"other\"")]).await.status(), 412);
}

async fn part(site: &Site, headers: &[(&'static str, &str)]) -> (u16, Option<String>, String) {
    let response = site.get("/files/a.txt", headers).await;
    let range = response.headers().get("content-range").map(|range| range.to_str().expect("text").to_owned());
    (response.status().as_u16(), range, text(response).await)
}

#[tokio::test]
async fn invalid_sets_and_other_units_get_the_whole_file() {
    let site = site();
    for range in ["lines=1-2", "bytes=4-2", "bytes=x", "bytes=0-1,x"] {
        let whole = (200, None, "0123456789".to_owned());
        assert_eq!(part(&site, &[("range", range)]).await, whole, "{range}");
    }
}

/// The boundary and the text of a response with several parts.
async fn parts(response: Response<Body>) -> (String, String) {
    let value = |name| response.headers()[name].to_str().expect("text").to_owned();
    let (kind, length) = (value("content-type"), value("content-length"));
    assert_eq!(response.status(), 206);
    assert!(!response.headers().contains_key("content-range"));
    assert_eq!(http_body::Body::size_hint(response.body()).exact(), length.parse().ok());
    let boundary = kind.strip_prefix("multipart/byteranges; boundary=").expect("several parts").to_owned();
    let text = text(response).await;
    assert_eq!(text.len().to_string(), length);
    (boundary, text)
}

#[tokio::test]
async fn several_ranges_get_several_parts() {
    let mut site = site();
    let (boundary, body) = parts(site.get("/files/a.txt", &[("range", "bytes=0-1, -2")]).await).await;
    let part = |kind: &str, range: &str, text: &str| {
        format!("--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: bytes {range}/10\r\n\r\n{text}\r\n")
    };
    assert_eq!(
        body,
        part("text/plain", "0-1", "01") + &part("text/plain", "8-9", "89") + &format!("--{boundary}--\r\n")
    );
    let tag = site.get("/files/a.txt", &[]).await.headers()["etag"].to_str().expect("text").to_owned();
    let range = |condition| [("range", "bytes=0-0,2-2"), ("if-range", condition)];
    let same = site.get("/files/a.txt", &range(&tag)).await;
    assert_eq!(
        (same.status().as_u16(), &same.headers()["etag"]),
        (206, &HeaderValue::try_from(&tag).expect("a tag"))
    );
    assert_eq!(site.get("/files/a.txt", &range("\"other\"")).await.status(), 200);
    // A copy has a coding, which parts do not have.
    with_copy(&site, "a.txt", "br", 0);
    let copy = site.get("/files/a.txt", &[("accept-encoding", "br"), ("range", "bytes=0-0,2-2")]).await;
    assert_eq!((copy.status().as_u16(), text(copy).await.as_str()), (200, "as br"));
    let types = MediaTypes {
        by_extension: [("txt".to_owned(), HeaderValue::from_static("text/x-own"))].into(),
        default: None,
    };
    site.files = site.files.with_types(Some(Arc::new(types)));
    let (_, body) = parts(site.get("/files/a.txt", &[("range", "bytes=0-0,2-2")]).await).await;
    assert_eq!(body.matches("Content-Type: text/x-own\r\n").count(), 2, "{body}");
}

#[tokio::test]
async fn parts_of_a_large_file_are_read_one_after_another() {
    let site = site();
    let bytes: Vec<u8> = (0..1_000_003_u32).map(|index| b'a' + (index % 23) as u8).collect();
    fs::write(site.root().join("large"), &bytes).expect("large");
    let ranges = [("range", "bytes=900000-,100-200099,300000-300000")];
    let (_, body) = parts(site.get("/files/large", &ranges).await).await;
    for range in [900_000..1_000_003, 100..200_100, 300_000..300_001] {
        assert!(body.contains(&format!("\r\n\r\n{}\r\n--", str::from_utf8(&bytes[range]).expect("text"))));
    }
}

#[tokio::test]
async fn parts_of_a_file_that_changes_are_not_mixed() {
    let site = site();
    let mut body = site.get("/files/a.txt", &[("range", "bytes=0-1,4-5")]).await.into_body();
    body.frame().await.expect("a frame").expect("the head of a part");
    fs::write(site.root().join("new"), "other text").expect("a file");
    fs::rename(site.root().join("new"), site.root().join("a.txt")).expect("a file");
    set_modified(&site, std::time::SystemTime::UNIX_EPOCH);
    let error = loop {
        match body.frame().await.expect("no end") {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error, BodyError::File(_)), "{error:?}");
}

#[tokio::test]
async fn a_range_ends_at_the_end_of_the_file_whatever_its_numbers() {
    let site = site();
    for (range, expected) in [
        ("bytes=-10", "0-9"),
        ("bytes=-11", "0-9"),
        ("bytes=-99999999999999999999999", "0-9"),
        ("bytes=0-18446744073709551616", "0-9"),
        ("bytes=8-18446744073709551615", "8-9"),
        ("bytes=08-", "8-9"),
        ("Bytes=-2", "8-9"),
        ("bytes=5-6,2-5", "2-6"),
    ] {
        let (status, content_range, body) = part(&site, &[("range", range)]).await;
        let content_range = content_range.expect("Content-Range");
        assert_eq!((status, content_range), (206, format!("bytes {expected}/10")), "{range}");
        let (first, last) = expected.split_once('-').expect("a range");
        let positions = first.parse::<usize>().expect("digits")..=last.parse::<usize>().expect("digits");
        assert_eq!(body, "0123456789"[positions], "{range}");
    }
    for range in ["bytes=10-", "bytes=-0", "bytes=99999999999999999999-"] {
        let outside = (416, Some("bytes */10".to_owned()), String::new());
        assert_eq!(part(&site, &[("range", range)]).await, outside, "{range}");
    }
}

#[tokio::test]
async fn an_empty_file_has_no_part() {
    let site = site();
    fs::write(site.root().join("a.txt"), "").expect("a file");
    for (range, status) in [("bytes=0-", 416), ("bytes=0-0", 416), ("bytes=-0", 416), ("bytes=-1", 200)] {
        let content_range = (status == 416).then(|| "bytes */0".to_owned());
        assert_eq!(part(&site, &[("range", range)]).await, (status, content_range, String::new()), "{range}");
    }
}

#[tokio::test]
async fn a_range_counts_with_get_only() {
    let site = site();
    let request = Request::head("/files/a.txt").header("range", "bytes=2-4").body(()).expect("a request");
    let path = RequestPath::read("/files/a.txt").expect("a path");
    let response =
        site.files.answer(&request.into_parts().0, &path, &mut Room::new(&testing::connection())).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["content-length"]),
        (200, &HeaderValue::from_static("10"))
    );
}

#[tokio::test]
async fn conditions_may_have_several_lines_and_precede_ranges() {
    let site = site();
    let tag = site.get("/files/a.txt", &[]).await.headers()["etag"].to_str().expect("text").to_owned();
    let status =
        async |lines: &[(&'static str, &str)]| site.get("/files/a.txt", lines).await.status().as_u16();
    assert_eq!(status(&[("if-none-match", "\"x\""), ("if-none-match", &tag)]).await, 304);
    assert_eq!(status(&[("if-match", "\"x\""), ("if-match", &tag)]).await, 200);
    let past = "Sat, 01 Jan 2000 00:00:00 GMT";
    assert_eq!(status(&[("if-modified-since", past), ("if-modified-since", past)]).await, 200);
    assert_eq!(status(&[("if-unmodified-since", past), ("range", "bytes=0-1")]).await, 412);
    assert_eq!(status(&[("if-none-match", "*"), ("range", "bytes=90-")]).await, 304);
    assert_eq!(status(&[("if-match", &tag), ("if-range", "\"x\""), ("range", "bytes=90-")]).await, 200);
    let confirmed = site.get("/files/a.txt", &[("if-none-match", &tag)]).await;
    let names: Vec<_> = confirmed.headers().names().map(header::HeaderName::as_str).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(["etag", "last-modified", "vary"].iter().all(|name| names.contains(name)), "{names:?}");
}

fn set_modified(site: &Site, time: std::time::SystemTime) {
    let file = fs::File::options().append(true).open(site.root().join("a.txt")).expect("a file");
    file.set_modified(time).expect("a time");
}

#[tokio::test]
async fn if_range_may_be_the_date_of_a_file_that_has_not_changed() {
    let site = site();
    set_modified(&site, std::time::UNIX_EPOCH + std::time::Duration::from_millis(1_700_000_000_500));
    let date =
        site.get("/files/a.txt", &[]).await.headers()["last-modified"].to_str().expect("text").to_owned();
    let status = async |date: &str| part(&site, &[("range", "bytes=2-4"), ("if-range", date)]).await.0;
    assert_eq!(status(&date).await, 206);
    assert_eq!(status("Tuesday, 14-Nov-23 22:13:20 GMT").await, 206);
    for other in ["Tue, 14 Nov 2023 22:13:21 GMT", "Mon, 01 Jan 2001 00:00:00 GMT", "2023-11-14"] {
        assert_eq!(status(other).await, 200, "{other}");
    }
}

#[tokio::test]
async fn a_file_from_the_future_is_dated_now_and_one_before_1970_has_no_date() {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};
    let site = site();
    set_modified(&site, SystemTime::now() + Duration::from_hours(24));
    let response = site.get("/files/a.txt", &[]).await;
    let date = response.headers()["last-modified"].to_str().expect("text");
    assert!(httpdate::parse_http_date(date).expect("a date") <= SystemTime::now());
    set_modified(&site, UNIX_EPOCH - Duration::from_secs(1));
    let response = site.get("/files/a.txt", &[("if-match", "*"), ("if-modified-since", date)]).await;
    assert_eq!((response.status().as_u16(), response.headers().get("last-modified")), (200, None));
}

#[tokio::test]
async fn parts_and_confirmations_vary_as_the_whole_file_does() {
    let site = site();
    let whole = site.get("/files/a.txt", &[]).await;
    assert_eq!(whole.headers()["vary"], "accept-encoding");
    let tag = whole.headers()["etag"].to_str().expect("text");
    for (status, header) in [(304, ("if-none-match", tag)), (206, ("range", "bytes=2-4"))] {
        let response = site.get("/files/a.txt", &[header]).await;
        assert_eq!(response.status(), status);
        assert_eq!(response.headers()["vary"], "accept-encoding", "{status}");
    }
    fs::write(site.root().join("b.txt.br"), "x").expect("a file");
    let copy = site.get("/files/b.txt.br", &[("range", "bytes=0-0")]).await;
    assert_eq!((copy.status().as_u16(), copy.headers().get("vary")), (206, None));
}

#[tokio::test]
async fn a_part_is_sent_only_of_the_file_that_if_range_means() {
    let site = site();
    let tag = site.get("/files/a.txt", &[]).await.headers()["etag"].to_str().expect("text").to_owned();
    let range = |condition| [("range", "bytes=2-4"), ("if-range", condition)];
    assert_eq!(site.get("/files/a.txt", &range(&tag)).await.status(), 206);
    for other in ["\"other\"", "W/\"weak\"", "Sat, 01 Jan 2000 00:00:00 GMT"] {
        let response = site.get("/files/a.txt", &range(other)).await;
        assert_eq!(response.headers()["vary"], "accept-encoding");
        assert_eq!(
            (response.status().as_u16(), text(response).await),
            (200, "0123456789".to_owned()),
            "{other}"
        );
    }
}

#[tokio::test]
async fn folders_lead_to_their_index() {
    let site = site();
    let redirect = site.get("/files/docs?q=1", &[]).await;
    assert_eq!(
        (redirect.status().as_u16(), &redirect.headers()["location"]),
        (307, &"/files/docs/?q=1".parse().expect("a value"))
    );
    assert_eq!(text(site.get("/files/docs/", &[]).await).await, "<p>");
    assert_eq!(site.status("/files/").await, 404, "no index there");
    assert_eq!(site.status("/files/a.txt/").await, 404);
}

#[tokio::test]
async fn the_folder_of_a_route_has_a_slash_at_its_end() {
    let mut site = site();
    fs::write(site.root().join("index.html"), "<p>").expect("a file");
    let location = async |site: &Site, target: &str| {
        let response = site.get(target, &[]).await;
        let location = response.headers().get("location").and_then(|value| value.to_str().ok());
        (response.status().as_u16(), location.map(str::to_owned))
    };
    for (target, expected) in [
        ("/files", "/files/"),
        ("/files?a=/b", "/files/?a=/b"),
        ("//files", "/files/"),
        ("/x/../files;y", "/files/"),
    ] {
        assert_eq!(location(&site, target).await, (301, Some(expected.to_owned())), "{target}");
    }
    assert_eq!(site.status("/files/").await, 200);
    let settings = || StaticSettings::new(site.root());
    let encoded = StaticFiles::new(&settings(), &RoutePath::Prefix("/a b\"\u{fc}".to_owned()));
    let exact = StaticFiles::new(&settings(), &RoutePath::Exact("/files".to_owned()));
    site.files = encoded;
    assert_eq!(location(&site, "/a%20b%22%c3%bc").await, (301, Some("/a%20b%22%C3%BC/".to_owned())));
    site.files = exact;
    assert_eq!(location(&site, "/files").await, (200, None), "no path below it is of the route");
}

#[tokio::test]
async fn a_redirect_never_leads_to_another_host() {
    let site = site();
    let location = site.get("/files//docs", &[]).await.headers()["location"].clone();
    assert_eq!(location, "/files/docs/");
    let at_root = StaticFiles::new(&StaticSettings::new(site.root()), &RoutePath::Prefix("/".to_owned()));
    let (parts, ()) = Request::get("//docs").body(()).expect("a request").into_parts();
    let path = RequestPath::read("//docs").expect("a path");
    let response = at_root.answer(&parts, &path, &mut Room::new(&testing::connection())).await;
    assert_eq!(response.headers()["location"], "/docs/");
}

#[tokio::test]
async fn hidden_names_are_not_found_except_well_known() {
    let site = site();
    assert_eq!(site.status("/files/.env").await, 404);
    assert_eq!(site.status("/files/%2eenv").await, 404);
    assert_eq!(site.status("/files/.well-known/k").await, 200);
}

#[tokio::test]
async fn links_lead_nowhere_outside() {
    let site = site();
    symlink("../secret", site.root().join("up")).expect("link");
    symlink(site.folder.path().join("secret"), site.root().join("absolute")).expect("link");
    symlink("a.txt", site.root().join("inside")).expect("link");
    assert_eq!(site.status("/files/up").await, 404);
    assert_eq!(site.status("/files/absolute").await, 404);
    assert_eq!(site.status("/files/inside").await, 200);
}

#[tokio::test]
async fn what_is_no_file_does_not_hold_the_worker_up() {
    let site = site();
    let pipe = site.root().join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
    assert_eq!(site.status("/files/pipe").await, 404);
}

#[tokio::test]
async fn only_reading_is_allowed() {
    let site = site();
    let (parts, ()) = Request::post("/files/a.txt").body(()).expect("a request").into_parts();
    let path = RequestPath::read("/files/a.txt").expect("a path");
    let response = site.files.answer(&parts, &path, &mut Room::new(&testing::connection())).await;
    assert_eq!(response.status(), 405);
    assert!(response.headers().contains_key("allow"));
}

#[tokio::test]
async fn a_large_file_arrives_whole() {
    let site = site();
    let bytes: Vec<u8> = (0..1_000_003_u32).map(|index| (index % 251) as u8).collect();
    fs::write(site.root().join("large"), &bytes).expect("large");
    let body = site.get("/files/large", &[]).await.into_body().collect().await.expect("a body").to_bytes();
    assert!(body == bytes, "{} bytes", body.len());
}

/// A file and a copy of it whose time differs by `seconds`.
fn with_copy(site: &Site, name: &str, ending: &str, seconds: i64) {
    let (file, copy) = (site.root().join(name), site.root().join(format!("{name}.{ending}")));
    fs::write(&copy, format!("as {ending}")).expect("a copy");
    let time = fs::metadata(&file).expect("a file").modified().expect("a time");
    let shift = std::time::Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 { time - shift } else { time + shift };
    fs::File::options().append(true).open(&copy).expect("a copy").set_modified(time).expect("a time");
}

#[tokio::test]
async fn a_current_copy_is_sent_to_clients_that_take_it() {
    let site = site();
    with_copy(&site, "a.txt", "gz", 0);
    with_copy(&site, "a.txt", "br", 5);
    with_copy(&site, "docs/index.html", "zst", 0);
    let accept = |codings| [("accept-encoding", codings)];
    let all = site.get("/files/a.txt", &accept("gzip, deflate, br, zstd")).await;
    assert_eq!(
        (&all.headers()["content-encoding"], &all.headers()["content-type"]),
        (&"br".parse().expect("a value"), &"text/plain".parse().expect("a value"))
    );
    assert_eq!(all.headers()["vary"], "accept-encoding");
    let tag = all.headers()["etag"].to_str().expect("text").to_owned();
    assert_eq!(text(all).await, "as br");
    assert_eq!(text(site.get("/files/a.txt", &accept("gzip")).await).await, "as gz");
    assert_eq!(text(site.get("/files/docs/", &accept("zstd")).await).await, "as zst");
    let plain = site.get("/files/a.txt", &accept("br;q=0")).await;
    assert_eq!(plain.headers()["vary"], "accept-encoding");
    assert_ne!(plain.headers()["etag"].to_str().expect("text"), tag);
    assert_eq!(text(plain).await, "0123456789");
    let known = [("accept-encoding", "br"), ("if-none-match", tag.as_str())];
    assert_eq!(site.get("/files/a.txt", &known).await.status(), 304);
    // Conditions and ranges apply to the copy.
    let part = [("accept-encoding", "br"), ("range", "bytes=3-4")];
    let response = site.get("/files/a.txt", &[&part[..], &[("if-match", &tag)]].concat()).await;
    assert_eq!(
        (response.status(), &response.headers()["content-encoding"]),
        (StatusCode::PARTIAL_CONTENT, &HeaderValue::from_static("br"))
    );
    assert_eq!(text(response).await, "br");
    let known = [&part[..], &[("if-none-match", &tag)]].concat();
    assert_eq!(site.get("/files/a.txt", &known).await.status(), 304);
    let other = [("range", "bytes=2-4"), ("if-range", &tag)];
    assert_eq!(text(site.get("/files/a.txt", &other).await).await, "0123456789");
}

#[tokio::test]
async fn copies_of_the_same_length_and_time_have_different_tags() {
    let site = site();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    for name in ["a.txt", "a.txt.br", "a.txt.gz"] {
        let file = site.root().join(name);
        fs::write(&file, "0123456789").expect("a file");
        fs::File::options().append(true).open(file).expect("a file").set_modified(time).expect("a time");
    }
    let mut tags = Vec::new();
    for coding in ["br", "gzip", "identity"] {
        let response = site.get("/files/a.txt", &[("accept-encoding", coding)]).await;
        tags.push(response.headers()["etag"].to_str().expect("text").to_owned());
    }
    for (index, tag) in tags.iter().enumerate() {
        assert!(tag.starts_with('"') && tag.ends_with('"'), "{tag}");
        assert!(!tags[index + 1..].contains(tag), "{tags:?}");
        let known = [("accept-encoding", "br"), ("if-none-match", tag)];
        assert_eq!(site.get("/files/a.txt", &known).await.status() == 304, index == 0, "{tag}");
    }
}

#[tokio::test]
async fn a_copy_that_is_older_than_its_file_or_has_none_is_no_copy() {
    let site = site();
    with_copy(&site, "a.txt", "br", -1);
    with_copy(&site, "a.txt", "gz", 0);
    let answer = site.get("/files/a.txt", &[("accept-encoding", "br, gzip")]).await;
    assert_eq!(answer.headers()["content-encoding"], "gzip");
    fs::write(site.root().join("gone.txt.br"), "x").expect("a file");
    assert_eq!(site.get("/files/gone.txt", &[("accept-encoding", "br")]).await.status(), 404);
    // Asked for by its own name it is a file as any other.
    let own = site.get("/files/gone.txt.br", &[("accept-encoding", "br")]).await;
    assert_eq!((own.status().as_u16(), own.headers().get("content-encoding")), (200, None));
    let old = site.get("/files/a.txt.br", &[("accept-encoding", "br")]).await;
    assert_eq!(text(old).await, "as br");
    symlink("/etc/hostname", site.root().join("a.txt.zst")).expect("a link");
    let answer = site.get("/files/a.txt", &[("accept-encoding", "zstd")]).await;
    assert_eq!(text(answer).await, "0123456789", "a copy that leads outside");
}

fn with_fallback(site: &Site) -> StaticFiles {
    let fallback = Some("/docs/index.html".parse().expect("a path"));
    StaticFiles::new(
        &StaticSettings { precompressed: true, fallback, ..StaticSettings::new(site.root()) },
        &files_route(),
    )
}

#[tokio::test]
async fn a_folder_has_the_first_of_its_pages_that_exists() {
    let mut site = site();
    fs::write(site.root().join("docs/start page.htm"), "start").expect("a file");
    let index = ["/home.htm", "/start%20page.htm", "/index.html"].map(|page| page.parse().expect("a path"));
    let settings = StaticSettings { index: index.to_vec(), ..StaticSettings::new(site.root()) };
    site.files = StaticFiles::new(&settings, &files_route());
    let response = site.get("/files/docs/?q", &[]).await;
    assert_eq!(response.headers()["content-type"], "text/html");
    assert_eq!(text(response).await, "start");
    assert_eq!(site.status("/files/docs").await, 307);
    assert_eq!(site.status("/files/").await, 404);
    fs::write(site.root().join("docs/home.htm"), "home").expect("a file");
    assert_eq!(text(site.get("/files/docs/", &[]).await).await, "home");
    let only = StaticSettings { index: index[..1].to_vec(), ..StaticSettings::new(site.root()) };
    site.files = StaticFiles::new(&only, &files_route());
    fs::remove_file(site.root().join("docs/home.htm")).expect("a file");
    // `index.html` is no page here.
    assert_eq!(site.status("/files/docs/").await, 404);
}

#[tokio::test]
async fn a_path_without_a_file_gets_the_fallback_with_its_own_tag_and_ranges() {
    let mut site = site();
    site.files = with_fallback(&site);
    let response = site.get("/files/no/such?q", &[]).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["content-type"]),
        (200, &HeaderValue::from_static("text/html"))
    );
    let tag = response.headers()["etag"].to_str().expect("text").to_owned();
    assert_eq!(text(response).await, "<p>");
    assert_eq!(site.get("/files/other", &[("if-none-match", &tag)]).await.status(), 304);
    let part = site.get("/files/other", &[("range", "bytes=1-1"), ("if-range", &tag)]).await;
    assert_eq!((part.status().as_u16(), text(part).await.as_str()), (206, "p"));
    assert_eq!(text(site.get("/files/a.txt", &[]).await).await, "0123456789");
    assert_eq!(site.status("/files/docs").await, 307, "a folder with an index");
    for hidden in ["/files/.env", "/files/x/.git/config"] {
        assert_eq!(site.status(hidden).await, 404, "{hidden}");
    }
    fs::write(site.root().join("docs/index.html.gz"), "compressed").expect("a copy");
    let copy = site.get("/files/other", &[("accept-encoding", "gzip")]).await;
    assert_eq!(copy.headers()["content-encoding"], "gzip");
    assert_eq!(text(copy).await, "compressed");
}

#[tokio::test]
async fn only_get_and_head_get_the_fallback_and_none_without_its_file() {
    let site = site();
    let files = with_fallback(&site);
    let answer = async |method: &str| {
        let request = Request::builder().method(method).uri("/files/no").body(()).expect("a request");
        let (parts, ()) = request.into_parts();
        let path = RequestPath::read("/files/no").expect("a path");
        files.answer(&parts, &path, &mut Room::new(&testing::connection())).await
    };
    for (method, status, length) in [("GET", 200, 3), ("HEAD", 200, 0), ("POST", 405, 0)] {
        let response = answer(method).await;
        assert_eq!(response.status(), status, "{method}");
        assert_eq!(text(response).await.len(), length, "{method}");
    }
    fs::remove_file(site.root().join("docs/index.html")).expect("a file");
    assert_eq!(answer("GET").await.status(), 404);
}
