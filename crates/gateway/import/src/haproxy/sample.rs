//! Samples: a fetch with its arguments and converters, as `hdr(host),lower`.

/// A fetch or a converter with its arguments: `hdr(host)` has the `name` `hdr` and the `args` `["host"]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) args: Vec<String>,
}

impl Call {
    /// The argument at `index`; empty if it is missing.
    pub(crate) fn arg(&self, index: usize) -> &str {
        self.args.get(index).map_or("", String::as_str)
    }
}

/// A fetch and the converters behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) fetch: Call,
    pub(crate) converters: Vec<Call>,
}

impl Sample {
    /// Reads a sample. `None` if its parentheses or quotes are not closed, as in `a(b`.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut calls = split(text)?.into_iter().map(|part| call(&part));
        let fetch = calls.next()??;
        Some(Self { fetch, converters: calls.collect::<Option<_>>()? })
    }

    /// The name of the fetch without the prefix of requests: `hdr` for `req.hdr` and `req_hdr`.
    pub(crate) fn name(&self) -> &str {
        let name = self.fetch.name.as_str();
        let name = name.strip_prefix("req.").or_else(|| name.strip_prefix("req_")).unwrap_or(name);
        match name {
            "fhdr" => "hdr",
            "urlp" => "url_param",
            "cookie" => "cook",
            "ssl_hello_sni" => "ssl_sni",
            name => name,
        }
    }

    /// Whether the sample is the host of the request, perhaps in lower case and without its port: `hdr(host),lower,field(1,:)`,
    /// or `ssl_fc_sni`.
    pub(crate) fn is_host(&self) -> bool {
        let is_host = (self.name() == "hdr" && self.fetch.arg(0).eq_ignore_ascii_case("host"))
            || (self.name() == "ssl_fc_sni" && self.fetch.args.is_empty());
        is_host && self.converters.iter().all(is_of_host)
    }
}

/// Whether a converter leaves the name of a host as brisk compares it: `lower`, `host_only`, `field(1,:)` and `word(1,:)`.
pub(crate) fn is_of_host(call: &Call) -> bool {
    let is_port = matches!(&*call.name, "field" | "word") && call.arg(0) == "1" && call.arg(1) == ":";
    matches!(&*call.name, "lower" | "host_only") || is_port
}

/// Parts between commas outside of parentheses and quotes.
fn split(text: &str) -> Option<Vec<String>> {
    let (mut parts, mut depth, mut quote, mut is_escaped) = (vec![String::new()], 0_usize, None, false);
    for next in text.chars() {
        if next == ',' && depth == 0 && quote.is_none() {
            parts.push(String::new());
            continue;
        }
        match next {
            _ if is_escaped => is_escaped = false,
            '\\' if quote != Some('\'') => is_escaped = true,
            '"' | '\'' if depth > 0 && quote.is_none() => quote = Some(next),
            _ if quote == Some(next) => quote = None,
            '(' if quote.is_none() => depth += 1,
            ')' if quote.is_none() => depth = depth.checked_sub(1)?,
            _ => {}
        }
        parts.last_mut()?.push(next);
    }
    (depth == 0 && quote.is_none()).then_some(parts)
}

fn call(text: &str) -> Option<Call> {
    let text = text.trim();
    let Some((name, rest)) = text.split_once('(') else {
        return Some(Call { name: text.to_owned(), args: Vec::new() });
    };
    let inner = rest.strip_suffix(')')?;
    // Parentheses in an argument need quotes in HAProxy; without quotes, they still end here.
    let args = if inner.is_empty() { Vec::new() } else { arguments(inner) };
    Some(Call { name: name.to_owned(), args })
}

fn arguments(text: &str) -> Vec<String> {
    let (mut args, mut quote) = (vec![String::new()], None);
    let mut rest = text.chars().peekable();
    while let Some(next) = rest.next() {
        let last = args.last_mut().expect("an argument");
        match next {
            '"' | '\'' if quote.is_none() => quote = Some(next),
            _ if quote == Some(next) => quote = None,
            '\\' if quote != Some('\'') && matches!(rest.peek(), Some('\\' | '"' | '\'' | ' ' | ',')) => {
                last.extend(rest.next());
            }
            ',' if quote.is_none() => args.push(String::new()),
            next => last.push(next),
        }
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_arguments_and_converters() {
        let sample = Sample::read("req.hdr(Host),lower,regsub(\"(a|b),\",x,g)").expect("right");
        assert_eq!((sample.name(), sample.fetch.arg(0)), ("hdr", "Host"));
        assert_eq!(sample.converters[1].args, ["(a|b),", "x", "g"]);
        assert!(Sample::read("hdr(host),lower,field(1,:)").expect("right").is_host());
        assert!(!Sample::read("hdr(host),upper").expect("right").is_host());
        for text in ["a(b", "a)b", "a(\"b)"] {
            assert_eq!(Sample::read(text), None, "{text}");
        }
    }
}
