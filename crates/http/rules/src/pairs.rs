//! Parameters and cookies of a request, split once and within limits.

use std::borrow::Cow;
use std::cell::OnceCell;

use brisk_http::message::HeaderList;
use http::header;

/// Maximum number of parameters of a query, and of cookies, that are split for conditions.
const MOST: usize = 1_000;

/// Parameters and cookies of one request as they arrived, split when a condition needs them for the first time.
#[derive(Debug, Default)]
pub struct Pairs<'a> {
    parameters: OnceCell<Option<Box<[Parameter<'a>]>>>,
    cookies: OnceCell<Option<Box<[&'a [u8]]>>>,
}

/// A parameter of a query, encoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter<'a> {
    name: &'a [u8],
    /// Name and value.
    pair: &'a [u8],
}

impl<'a> Pairs<'a> {
    /// The parameters of `query`, which is the same in each call; `None` if there are more than 1,000.
    pub(crate) fn parameters(&self, query: Option<&'a str>) -> Option<&[Parameter<'a>]> {
        let split = || limited(split(query.unwrap_or_default().as_bytes(), b'&').map(Parameter::read));
        self.parameters.get_or_init(split).as_deref()
    }

    /// The cookies in `headers`, which are the same in each call; `None` if there are more than 1,000.
    pub(crate) fn cookies(&self, headers: &'a HeaderList) -> Option<&[&'a [u8]]> {
        self.cookies.get_or_init(|| limited(all_cookies(headers))).as_deref()
    }
}

/// All of `pieces`, if there are not too many.
fn limited<T>(pieces: impl Iterator<Item = T>) -> Option<Box<[T]>> {
    // One piece more than permitted shows the excess without splitting the rest.
    let all: Vec<_> = pieces.take(MOST + 1).collect();
    (all.len() <= MOST).then(|| all.into())
}

/// Splits `text` at each `separator`. Empty pieces count too, because each costs time.
fn split(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let end = memchr::memchr(separator, text);
        rest = end.map(|end| &text[end + 1..]);
        Some(&text[..end.unwrap_or(text.len())])
    })
}

impl<'a> Parameter<'a> {
    fn read(pair: &'a [u8]) -> Self {
        Self { name: &pair[..memchr::memchr(b'=', pair).unwrap_or(pair.len())], pair }
    }

    /// Whether the decoded name is `name`. Only names of a suitable length are decoded.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        // A byte has at most three characters (RFC 3986 section 2.1), so a longer
        // name cannot decode to this one.
        if self.pair.is_empty() || self.name.len() > 3 * name.len() {
            return false;
        }
        // The usual name has no escapes and needs no allocation.
        if memchr::memchr2(b'%', b'+', self.name).is_none() {
            return self.name == name.as_bytes();
        }
        form_urlencoded::parse(self.name).next().is_some_and(|(decoded, _)| decoded == name)
    }

    /// The encoded value, which has at least a third of the bytes of the decoded one.
    fn encoded(&self) -> &'a [u8] {
        self.pair.get(self.name.len() + 1..).unwrap_or_default()
    }

    /// The decoded value; `None` if it has more than `most` bytes.
    pub(crate) fn value_within(&self, most: usize) -> Option<Cow<'a, [u8]>> {
        if self.encoded().len() > 3 * most {
            return None;
        }
        let value = match form_urlencoded::parse(self.pair).next() {
            Some((_, Cow::Borrowed(value))) => Cow::Borrowed(value.as_bytes()),
            Some((_, Cow::Owned(value))) => Cow::Owned(value.into_bytes()),
            None => Cow::Borrowed(&b""[..]),
        };
        (value.len() <= most).then_some(value)
    }
}

/// Value of `cookie`, a pair of name and value, if it is called `name`.
pub(crate) fn value_of<'a>(cookie: &'a [u8], name: &str) -> Option<&'a [u8]> {
    cookie.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

fn all_cookies(headers: &HeaderList) -> impl Iterator<Item = &[u8]> {
    let lines = headers.get_all(header::COOKIE);
    lines.flat_map(|line| split(line.as_bytes(), b';')).map(<[u8]>::trim_ascii)
}

/// Values of the cookies called `name` (RFC 6265 section 5.4). HTTP/2 clients may send several `Cookie` lines.
pub fn cookies<'a>(headers: &'a HeaderList, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    all_cookies(headers).filter_map(move |cookie| value_of(cookie, name))
}

/// The first value of a cookie called `name`.
pub fn first_cookie<'a>(headers: &'a HeaderList, name: &str) -> Option<&'a [u8]> {
    all_cookies(headers).find_map(|cookie| value_of(cookie, name))
}

/// The first decoded value of a query parameter called `name`.
pub fn first_parameter<'a>(query: Option<&'a str>, name: &str) -> Option<Cow<'a, [u8]>> {
    let mut parameters = split(query?.as_bytes(), b'&').map(Parameter::read);
    // Divided, because `value_within` multiplies the limit by three.
    parameters.find(|parameter| parameter.has_name(name))?.value_within(usize::MAX / 3)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn parameter(query: &str, name: &str) -> Option<String> {
        let value = first_parameter(Some(query), name)?;
        Some(String::from_utf8(value.into_owned()).expect("text"))
    }

    #[test]
    fn the_first_value_of_a_parameter_is_decoded() {
        for (query, expected) in [
            ("a=1", Some("1")),
            ("&&b=2&a=1&a=3", Some("1")),
            ("%61=x+y%20z", Some("x y z")),
            ("a", Some("")),
            ("a=", Some("")),
            ("a=b=c", Some("b=c")),
            ("a=%FF", Some("\u{fffd}")),
            ("ab=1&=a&A=2", None),
            ("", None),
        ] {
            assert_eq!(parameter(query, "a").as_deref(), expected, "{query}");
        }
        assert_eq!(parameter("x+y=1", "x y").as_deref(), Some("1"));
    }

    #[test]
    fn parameters_are_those_that_a_form_decoder_finds() {
        for query in ["a=1&b=2", "a&&b=%41&", "=x&a=%zz", "a+b=c+d&%61%20b=e", "%FF=1&a=%ff"] {
            for name in ["a", "b", "a b", "\u{fffd}", ""] {
                let expected = form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name);
                let expected = expected.map(|(_, value)| value.into_owned());
                assert!(parameter(query, name) == expected || name.is_empty(), "{query} {name}");
            }
        }
    }

    #[test]
    fn pairs_have_a_limit() {
        let query = "a&".repeat(MOST - 1);
        let pairs = Pairs::default();
        assert_eq!(pairs.parameters(Some(&query)).map(<[_]>::len), Some(MOST));
        for query in ["a&".repeat(MOST), "&".repeat(60_000)] {
            assert!(Pairs::default().parameters(Some(&query)).is_none());
        }
        // A variable reads all pairs: an empty value would evade the limit of its key.
        assert_eq!(parameter(&("&".repeat(2 * MOST) + "a=1"), "a").as_deref(), Some("1"));
        let cookies = |number: usize| -> HeaderList {
            let line = HeaderValue::try_from(";".repeat(number) + "a=1").expect("a value");
            [(header::COOKIE, line)].into_iter().collect()
        };
        let (few, many) = (cookies(MOST - 1), cookies(MOST));
        assert!(Pairs::default().cookies(&few).is_some() && Pairs::default().cookies(&many).is_none());
        assert_eq!([first_cookie(&few, "a"), first_cookie(&many, "a")], [Some(&b"1"[..]); 2]);
    }

    #[test]
    fn a_value_beyond_a_length_is_not_decoded() {
        let long = format!("a={}", "%41".repeat(11));
        let parameter = Parameter::read(long.as_bytes());
        assert!(parameter.value_within(10).is_none());
        assert_eq!(parameter.value_within(11).as_deref(), Some(&b"AAAAAAAAAAA"[..]));
    }
}
