//! Redirects: `location`, `prefix` and `scheme`.

use crate::haproxy::template::{self, Place, Use};

/// Target of a `redirect`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    /// The whole target, a log format.
    Location(String),
    /// A beginning of the URL before path and query.
    Prefix(String),
    Scheme(String),
}

/// A redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    target: Target,
    pub(crate) status: u16,
    drop_query: bool,
    append_slash: bool,
}

/// Reads the words of a `redirect`, such as `scheme https code 301`; without `code`, the status is 302. The second part is a
/// difference, such as the loss of `set-cookie`.
pub(crate) fn read(words: &[String]) -> Result<(Redirect, Option<String>), String> {
    let (mut target, mut status, mut drop_query, mut append_slash, mut lost) =
        (None, 302, false, false, None);
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().cloned().ok_or_else(|| format!("{word} has no value"));
        match word.as_str() {
            "location" => target = Some(Target::Location(value()?)),
            "prefix" => target = Some(Target::Prefix(value()?)),
            "scheme" => target = Some(Target::Scheme(value()?)),
            "code" => status = value()?.parse().map_err(|_| "the code is not a number".to_owned())?,
            "drop-query" => drop_query = true,
            "append-slash" => append_slash = true,
            "ignore-empty" => {}
            "set-cookie" | "clear-cookie" => {
                lost = Some(format!("redirects of brisk set no cookies: {} is missing", value()?));
            }
            word => return Err(format!("the redirect has the unknown word {word}")),
        }
    }
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return Err(format!("{status} is no status of redirects"));
    }
    let target = target.ok_or("the redirect has no target")?;
    Ok((Redirect { target, status, drop_query, append_slash }, lost))
}

impl Redirect {
    /// Whether it leads to HTTPS with the same host and path, as brisk does by itself.
    pub(crate) fn is_to_https(&self) -> bool {
        match &self.target {
            Target::Scheme(scheme) => scheme == "https" && !self.drop_query,
            Target::Location(text) => {
                let rest = text.strip_prefix("https://").unwrap_or("");
                let hosts = [
                    "%[hdr(host)]",
                    "%[req.hdr(host)]",
                    "%[hdr(Host)]",
                    "%[req.hdr(Host)]",
                    "%[hdr(host),field(1,:)]",
                    "%[req.hdr(host),field(1,:)]",
                ];
                let paths = ["%[capture.req.uri]", "%[pathq]", "%[url]"];
                hosts.iter().any(|host| rest.strip_prefix(host).is_some_and(|path| paths.contains(&path)))
            }
            Target::Prefix(text) => {
                matches!(text.as_str(), "https://%[hdr(host)]" | "https://%[req.hdr(host)]")
            }
        }
    }

    /// The key `redirect` of a route: `location /new` becomes `{ to = "/new", status = 302 }`.
    pub(crate) fn toml(&self, place: &Place<'_>) -> Result<String, String> {
        let path = if self.drop_query { "{request.path}" } else { "{request.target}" };
        if self.append_slash {
            return Err("brisk appends no slash to redirects".to_owned());
        }
        let to = match &self.target {
            Target::Location(text) => template::text(text, Use::Redirect, place)?,
            // Slashes at the beginning become one.
            Target::Prefix(text) if text == "/" => format!("/{path}"),
            Target::Prefix(text) => {
                format!("{}{path}", template::text(text, Use::Redirect, place)?.trim_end_matches('/'))
            }
            Target::Scheme(text) => {
                let host = place.host.text().filter(|name| !name.contains('*'));
                format!("{text}://{}{path}", host.as_deref().unwrap_or("{request.host}"))
            }
        };
        if !to.starts_with('/') && !to.contains("://") {
            return Err("the target is neither a path nor a URL".to_owned());
        }
        let to = crate::toml::text(&to);
        // A text alone stands for the status 308.
        Ok(if self.status == 308 { to } else { format!("{{ to = {to}, status = {} }}", self.status) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::haproxy::host_name::HostName;

    #[test]
    fn redirects_have_the_targets_of_haproxy() {
        let place = Place {
            host: &HostName::Other,
            secure: false,
            frontend: "",
            backend: "",
            resolve: &|sample| Ok(sample),
        };
        for (words, expected) in [
            (
                "scheme https code 301",
                Ok("{ to = \"https://{request.host}{request.target}\", status = 301 }"),
            ),
            ("prefix https://www.a.example code 308", Ok("\"https://www.a.example{request.target}\"")),
            (
                "prefix http://a.example drop-query",
                Ok("{ to = \"http://a.example{request.path}\", status = 302 }"),
            ),
            ("location /new", Ok("{ to = \"/new\", status = 302 }")),
            ("location", Err("location has no value")),
            ("prefix / append-slash", Err("brisk appends no slash to redirects")),
            ("location /x code 200", Err("200 is no status of redirects")),
        ] {
            let words: Vec<_> = words.split(' ').map(str::to_owned).collect();
            let own = read(&words).and_then(|(redirect, _)| redirect.toml(&place));
            assert_eq!(own.as_deref().map_err(String::as_str), expected, "{words:?}");
        }
    }

    #[test]
    fn redirects_to_https_are_found() {
        for (words, expected) in [
            ("scheme https", true),
            ("location https://%[hdr(host)]%[capture.req.uri]", true),
            ("prefix https://www.a.example", false),
        ] {
            let words: Vec<_> = words.split(' ').map(str::to_owned).collect();
            assert_eq!(read(&words).expect("right").0.is_to_https(), expected, "{words:?}");
        }
    }
}
