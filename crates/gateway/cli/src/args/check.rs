//! Definition of the options of `brisk check`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use brisk_config::Period;
use clap::Args;
use http::uri::Scheme;
use http::{HeaderName, HeaderValue, Request};

/// Arguments of `brisk check`.
#[derive(Args, Debug)]
pub(crate) struct Check {
    /// Configuration file (TOML)
    #[arg(value_name = "FILE", required_unless_present = "har", conflicts_with = "har")]
    pub(crate) file: Option<PathBuf>,
    /// Also ask key servers and tokens for the keys of all certificates, and load all names of certificate folders
    #[arg(long, requires = "file")]
    pub(crate) online: bool,
    /// Explain the decision about a request, given by its method and its whole URL
    #[arg(long, value_name = "'METHOD URL'", requires = "file", value_parser = request)]
    pub(crate) explain: Option<Request<()>>,
    /// Header of the request, e.g. 'X-Version: 2'; can be repeated
    #[arg(long = "header", value_name = "HEADER", requires = "explain", value_parser = header)]
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Address of the client of the request
    #[arg(long, value_name = "ADDRESS", requires = "explain", default_value = "127.0.0.1")]
    pub(crate) client: IpAddr,
    /// Recording of a page by a browser (HAR): list its origins and the savings of `consolidate` for each
    #[arg(long, value_name = "FILE")]
    pub(crate) har: Option<PathBuf>,
    /// Round trip time of visitors, e.g. 100ms [default: times of the recording]
    #[arg(long, value_name = "TIME", conflicts_with = "file", value_parser = rtt)]
    pub(crate) rtt: Option<Duration>,
    /// Print the result as JSON
    #[arg(long, conflicts_with = "file")]
    pub(crate) json: bool,
}

fn request(text: &str) -> Result<Request<()>, String> {
    let (method, url) = text.split_once(' ').unwrap_or(("GET", text));
    let wrong = || format!("{text:?} is no request: write method and URL, as 'GET https://example.com/path'");
    let request = Request::builder().method(method).uri(url.trim()).body(()).map_err(|_| wrong())?;
    if request.uri().scheme() == Some(&Scheme::HTTPS) { Ok(request) } else { Err(wrong()) }
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let parsed = text.split_once(':').and_then(|(name, value)| {
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_str(value.trim()).ok()?))
    });
    parsed.ok_or_else(|| format!("{text:?} is no header: write name and value, as 'X-Version: 2'"))
}

/// Maximum of `--rtt`; a longer time is most likely a mistake.
const LONGEST: Duration = Duration::from_secs(10);

fn rtt(text: &str) -> Result<Duration, String> {
    let Period(time) = text.parse()?;
    let is_right = time > Duration::ZERO && time <= LONGEST;
    if is_right { Ok(time) } else { Err("write a round trip time from 1ms to 10s".to_owned()) }
}
