//! Fixed responses: `deny`, `return`, and files with whole responses as `errorfile` has them.

use crate::haproxy::context::Context;
use crate::haproxy::template::{self, Place, Use};
use crate::toml::{self, Keys};

/// Size of a body in the configuration at most.
const LARGEST: usize = 64 << 10;

/// A fixed response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: Option<String>,
    /// Whether the body is a log format.
    pub(crate) has_variables: bool,
    pub(crate) content_type: Option<String>,
    /// Headers with log formats.
    pub(crate) headers: Vec<(String, String)>,
}

impl Response {
    /// A response without a body of its own.
    pub(crate) fn status(status: u16) -> Self {
        Self { status, body: None, has_variables: false, content_type: None, headers: Vec::new() }
    }

    /// Whether it is an error.
    pub(crate) fn is_refusal(&self) -> bool {
        self.status >= 400
    }

    /// The keys `respond` and `response_headers` of a route: `return status 200 string ok` becomes
    /// `respond = { status = 200, body = "ok" }`.
    pub(crate) fn keys(&self, place: &Place<'_>) -> Result<Keys, String> {
        let mut respond = Keys::of("status", self.status.to_string());
        if let Some(body) = &self.body {
            let body = if self.has_variables {
                template::text(body, Use::Body, place)?
            } else {
                template::escaped(body, Use::Body)
            };
            respond.set("body", toml::raw(&body));
        }
        if let Some(kind) = &self.content_type {
            respond.set("content_type", toml::text(kind));
        }
        let mut keys = Keys::of("respond", respond.inline());
        let mut set = Keys::default();
        for (name, format) in &self.headers {
            set.set(name, toml::text(&template::text(format, Use::Value, place)?));
        }
        if !set.is_empty() {
            keys.set("response_headers", format!("{{ set = {}, always = true }}", set.inline()));
        }
        Ok(keys)
    }
}

/// Reads the words of `deny`, `tarpit`, `reject`, `silent-drop` and `return`.
pub(crate) fn read(context: &Context<'_>, words: &[String]) -> Result<Response, String> {
    let kind = words.first().map_or("", String::as_str);
    let mut response = Response::status(match kind {
        "return" => 200,
        "tarpit" => 500,
        _ => 403,
    });
    let mut rest = words.iter().skip(1);
    while let Some(word) = rest.next() {
        let mut value = || rest.next().cloned().ok_or_else(|| format!("{word} has no value"));
        match word.as_str() {
            "deny_status" | "status" => {
                let status = value()?.parse().map_err(|_| "the status is not a number".to_owned())?;
                response.status = Some(status)
                    .filter(|status| (200..600).contains(status))
                    .ok_or("brisk responds with a status from 200 to 599")?;
            }
            "content-type" => response.content_type = Some(value()?),
            "string" => response.body = Some(value()?),
            "lf-string" => (response.body, response.has_variables) = (Some(value()?), true),
            "file" => response.body = Some(content(context, &value()?)?),
            "lf-file" => (response.body, response.has_variables) = (Some(content(context, &value()?)?), true),
            "errorfile" => {
                let file = file(context, &value()?)?;
                (response.body, response.content_type) = (file.body, file.content_type);
                // `deny` keeps its own status.
                if kind == "return" {
                    response.status = file.status;
                }
            }
            "hdr" => {
                let name = value()?;
                response.headers.push((name, rest.next().cloned().unwrap_or_default()));
            }
            "default-errorfiles" => {}
            word => return Err(format!("the response has the unknown word {word}")),
        }
    }
    Ok(response)
}

fn content(context: &Context<'_>, name: &str) -> Result<String, String> {
    let text = context.files.borrow_mut().text(name)?;
    if text.len() > LARGEST { Err("the file is larger than 64 KiB".to_owned()) } else { Ok(text.to_string()) }
}

/// A file with a whole response: status line, headers and body.
pub(crate) fn file(context: &Context<'_>, name: &str) -> Result<Response, String> {
    let text = content(context, name)?.replace("\r\n", "\n");
    let (head, body) = text.split_once("\n\n").ok_or("the file has no head of a response")?;
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let mut response = Response::status(
        status.filter(|status| (200..600).contains(status)).ok_or("the file has no status")?,
    );
    response.body = Some(body.to_owned()).filter(|body| !body.is_empty());
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { continue };
        match name.trim().to_ascii_lowercase().as_str() {
            "content-type" => response.content_type = Some(value.trim().to_owned()),
            // brisk frames each message itself.
            "connection" | "content-length" | "transfer-encoding" | "cache-control" => {}
            _ => response.headers.push((name.trim().to_owned(), value.trim().replace('%', "%%"))),
        }
    }
    Ok(response)
}
