//! A file of requests with weights.
//!
//! One request per line: a weight (default 1), a method (default GET), a path or a URL of the same server, and `@file`
//! for a body, relative to the list. Empty lines and lines that begin with `#` are ignored.
//!
//! ```text
//! 70 /
//! 25 /search?q=tls
//!  5 POST /orders @order.json
//! ```

use std::fs;
use std::path::Path;

use bytes::Bytes;
use http::Method;
use http::uri::{PathAndQuery, Uri};

use crate::choice::Weighted;
use crate::error::BenchError;
use crate::workload::{self, Common, Request};

/// Reads the list at `path`. All URLs must have the server of `common`.
pub fn read(path: &Path, common: &Common) -> Result<Weighted<Request>, BenchError> {
    let text = fs::read_to_string(path).map_err(|error| BenchError::file(path, error))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut requests = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = |error: BenchError| match error {
            BenchError::Settings(why) => {
                BenchError::Settings(format!("{}:{}: {why}", path.display(), number + 1))
            }
            other => other,
        };
        requests.push(request(line, folder, common).map_err(at)?);
    }
    let empty = || BenchError::settings(format!("{}: no request with a weight above 0", path.display()));
    Weighted::new(requests).ok_or_else(empty)
}

fn request(line: &str, folder: &Path, common: &Common) -> Result<(u32, Request), BenchError> {
    let mut words: Vec<_> = line.split_whitespace().collect();
    // Neither methods nor paths are numbers.
    let weight = match words[0].parse() {
        Ok(weight) => {
            words.remove(0);
            weight
        }
        Err(_) => 1,
    };
    let body = match words.last().and_then(|word| word.strip_prefix('@')) {
        Some(file) => {
            words.pop();
            workload::body(&folder.join(file))?
        }
        None => Bytes::new(),
    };
    let (method, target) = match words[..] {
        [target] => (Method::GET, target),
        [method, target] => (workload::method(method)?, target),
        _ => {
            let form = "[WEIGHT] [METHOD] PATH [@FILE]";
            return Err(BenchError::settings(format!(
                "{line:?} is not {form}, as \"5 POST /orders @order.json\""
            )));
        }
    };
    Ok((weight, Request::new(method, &path_of(target, common)?, body, common)?))
}

fn path_of(target: &str, common: &Common) -> Result<PathAndQuery, BenchError> {
    let scheme = &common.scheme;
    let wrong = || {
        BenchError::settings(format!("{target:?} is neither a path, as /search, nor a URL with {scheme}://"))
    };
    let uri: Uri = target.parse().map_err(|_| wrong())?;
    match uri.authority() {
        // A path needs no comparison with the server of the run.
        _ if target.starts_with('/') => {}
        _ if uri.scheme() != Some(scheme) => return Err(wrong()),
        None => return Err(wrong()),
        Some(authority) if *authority == common.authority => {}
        Some(_) => {
            let own = &common.authority;
            return Err(BenchError::settings(format!("{target}: all requests go to one server, here {own}")));
        }
    }
    Ok(uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/")))
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use http::uri::Scheme;

    use super::*;

    fn read_text(text: &str) -> Result<Weighted<Request>, BenchError> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::write(folder.path().join("order.json"), "{}").expect("a file");
        let file = folder.path().join("urls");
        fs::write(&file, text).expect("a file");
        let authority = "site.test".parse().expect("an authority");
        read(&file, &Common { scheme: Scheme::HTTPS, authority, headers: HeaderMap::new() })
    }

    #[test]
    fn weights_methods_and_bodies_are_read() {
        let list = read_text("# all\n\n70 /\n https://site.test/a?b\n5 POST /orders @order.json\n0 /never\n");
        let list = list.expect("a list");
        let shown: Vec<_> = list
            .weights()
            .map(|(weight, request)| format!("{weight} {} {}", request.method(), request.uri()))
            .collect();
        let wanted =
            ["70 GET https://site.test/", "1 GET https://site.test/a?b", "5 POST https://site.test/orders"];
        assert_eq!(shown, wanted);
        assert_eq!(list.values().last().expect("a request").body(), "{}");
    }

    #[test]
    fn errors_have_their_line() {
        for (text, hint) in [
            ("", "no request"),
            ("0 /", "no request"),
            ("/\nhttps://other.test/", "urls:2: https://other.test/: all requests go to one server"),
            ("/\n\n3 GET / more", "urls:3: "),
            ("search", "neither a path"),
            ("http://site.test/", "nor a URL with https://"),
            ("G(T /", "not a method"),
            ("POST / @missing", "missing"),
        ] {
            let error = read_text(text).expect_err(text).to_string();
            assert!(error.contains(hint), "{text:?}: {error}");
        }
    }
}
