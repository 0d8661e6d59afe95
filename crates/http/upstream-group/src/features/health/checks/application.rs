//! Health of application servers: a GET request over FastCGI, uwsgi or SCGI.

use brisk_http::cgi::fastcgi::Records;
use brisk_http::cgi::{CgiProtocol, Variables};
use brisk_http::http1::HeadLimits;
use brisk_http::http1::request::Output;
use brisk_http::http1::response::ResponseHead;
use bytes::BytesMut;
use http::{Method, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{ActiveChecks, CheckError};
use crate::features::cgi::CgiSettings;
use crate::io::UpstreamIo;

/// Limits for the head of the response.
const LIMITS: HeadLimits = HeadLimits { size: 64 << 10, lines: 100 };

/// Maximum length of a response that is read, in bytes.
const LENGTH: usize = 128 << 10;

/// Sends the request of `checks` with `authority` as its host, and returns the status of the response.
pub(super) async fn check(
    mut io: UpstreamIo,
    protocol: CgiProtocol,
    (checks, settings): (&ActiveChecks, &CgiSettings),
    authority: &str,
) -> Result<StatusCode, CheckError> {
    let mut output = Output::default();
    output.variables(protocol, &variables(checks, settings, authority, protocol), Some(0), false)?;
    io.write_all(output.only().unwrap_or_default()).await?;
    io.flush().await?;
    let (mut records, mut received, mut content) = (Records::default(), BytesMut::new(), BytesMut::new());
    records.begin();
    let (mut status, mut length) = (None, 0);
    // An application logs an error if its response is not read.
    while length < LENGTH {
        let read = io.read_buf(&mut received).await?;
        length += read;
        if protocol == CgiProtocol::FastCgi {
            records.decode(&mut received, &mut content)?;
        } else {
            content.unsplit(received.split());
        }
        if status.is_some() {
            content.clear();
        } else {
            status = ResponseHead::take_cgi(&mut content, &Method::GET, LIMITS)?.map(|head| head.status);
        }
        // Only FastCGI marks the end of a response; with the others it is the end of the connection.
        if read == 0 || (protocol == CgiProtocol::FastCgi && records.is_idle()) {
            break;
        }
    }
    status.ok_or_else(|| "no head of a response".into())
}

fn variables(
    checks: &ActiveChecks,
    settings: &CgiSettings,
    authority: &str,
    protocol: CgiProtocol,
) -> Variables {
    let (path, query) = (checks.path.path(), checks.path.query().unwrap_or_default());
    let mut all = Variables::default();
    for (name, value) in [
        ("REQUEST_METHOD", "GET"),
        ("REQUEST_URI", checks.path.as_str()),
        ("QUERY_STRING", query),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_SOFTWARE", "brisk"),
        ("SERVER_NAME", authority),
        ("HTTP_HOST", authority),
        ("HTTP_USER_AGENT", "brisk-health-check"),
        ("REMOTE_ADDR", "127.0.0.1"),
        // PHP that is built with `force_redirect` refuses requests without this variable.
        ("REDIRECT_STATUS", "200"),
        ("CONTENT_TYPE", ""),
    ] {
        all.add(name, value);
    }
    // SCGI requires `CONTENT_LENGTH` as the first variable, which `Output` writes.
    if protocol != CgiProtocol::Scgi {
        all.add("CONTENT_LENGTH", "");
    }
    match &settings.root {
        None => {
            all.add("SCRIPT_NAME", "");
            all.add("PATH_INFO", path);
        }
        Some(root) => {
            // `ping.path` and `pm.status_path` of PHP-FPM are compared with `SCRIPT_NAME`, and need no file.
            let named =
                settings.named_script(path.as_bytes()).or_else(|| settings.index_script(path.as_bytes()));
            let name = named.map_or_else(|| path.as_bytes().to_vec(), |script| script.name);
            all.add("SCRIPT_FILENAME", [root.as_bytes(), &name].concat());
            all.add("SCRIPT_NAME", name);
            all.add("DOCUMENT_ROOT", &**root);
        }
    }
    all
}
