//! URIs of private keys (RFC 7512).

use std::{fmt, path::PathBuf, str::FromStr};

use brisk_wire::uri::without_scheme;

use crate::error::UriError;

/// Scheme of all these URIs.
const SCHEME: &str = "pkcs11:";

/// Attributes of the path, which name a token or an object; for messages.
const PATH_NAMES: &[&str] = &["token", "manufacturer", "serial", "model", "slot-id", "object", "id", "type"];

/// Attributes of the query.
const QUERY_NAMES: &[&str] = &["pin-source", "module-path"];

/// URI of a private key in a token, for example `pkcs11:token=web;object=site?pin-source=file:/etc/brisk/pin`.
///
/// Supported attributes of RFC 7512: `token`, `manufacturer`, `serial`, `model`, `slot-id`, `object`, `id`, `type`
/// (only `private`), and in the query `pin-source` and `module-path`. Other attributes are errors, because ignoring
/// them could select another key. `object` or `id` is required.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeyUri {
    /// Identification of the token.
    pub(crate) token: TokenName,
    /// `object`: label of the key.
    pub(crate) object: Option<String>,
    /// `id`: identifier that key and certificate share.
    pub(crate) id: Option<Vec<u8>>,
    pin_source: Option<PinSource>,
    module_path: Option<PathBuf>,
}

/// Required properties of a token; `None` matches any value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct TokenName {
    pub(crate) label: Option<String>,
    pub(crate) manufacturer: Option<String>,
    pub(crate) serial: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) slot: Option<u64>,
}

/// File that a PIN is read from. The configuration never contains the PIN itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PinSource(PathBuf);

impl PinSource {
    /// A file with a PIN, optionally followed by a line feed.
    pub const fn file(path: PathBuf) -> Self {
        Self(path)
    }

    /// Path of the file.
    pub const fn path(&self) -> &PathBuf {
        &self.0
    }
}

impl KeyUri {
    /// Returns whether a text has the scheme of these URIs, valid or not.
    pub fn is_meant(text: &str) -> bool {
        without_scheme(text, SCHEME).is_some()
    }

    /// The attribute `pin-source`. The caller resolves a relative path.
    pub const fn pin_source(&self) -> Option<&PinSource> {
        self.pin_source.as_ref()
    }

    /// The attribute `module-path`. The caller resolves a relative path.
    pub const fn module_path(&self) -> Option<&PathBuf> {
        self.module_path.as_ref()
    }

    fn set_path_attribute(&mut self, name: &str, value: Vec<u8>) -> Result<(), UriError> {
        let place = match name {
            "token" => &mut self.token.label,
            "manufacturer" => &mut self.token.manufacturer,
            "serial" => &mut self.token.serial,
            "model" => &mut self.token.model,
            "object" => &mut self.object,
            "id" => {
                let repeated = self.id.replace(value).is_some();
                return if repeated { Err(UriError::Repeated("id".into())) } else { Ok(()) };
            }
            "slot-id" => {
                let number = text("slot-id", value)?.parse().map_err(|_| UriError::SlotId)?;
                let repeated = self.token.slot.replace(number).is_some();
                return if repeated { Err(UriError::Repeated("slot-id".into())) } else { Ok(()) };
            }
            "type" if value == b"private" => return Ok(()),
            "type" => return Err(UriError::Type),
            _ => return Err(UriError::unknown(name, PATH_NAMES)),
        };
        set(place, name, text(name, value)?)
    }

    fn set_query_attribute(&mut self, name: &str, value: Vec<u8>) -> Result<(), UriError> {
        match name {
            "pin-source" => {
                let source = pin_source(&text(name, value)?)?;
                set(&mut self.pin_source, name, source)
            }
            "module-path" => set(&mut self.module_path, name, PathBuf::from(text(name, value)?)),
            "pin-value" => Err(UriError::PinValue),
            _ => Err(UriError::unknown(name, QUERY_NAMES)),
        }
    }
}

impl FromStr for KeyUri {
    type Err = UriError;

    fn from_str(written: &str) -> Result<Self, UriError> {
        let rest = without_scheme(written, SCHEME).ok_or(UriError::Scheme)?;
        let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
        let mut uri = Self::default();
        // RFC 7512 section 2.3: the path may be empty.
        for attribute in path.split(';').filter(|attribute| !attribute.is_empty()) {
            let (name, value) = pair(attribute)?;
            uri.set_path_attribute(name, value)?;
        }
        for attribute in query.into_iter().flat_map(|query| query.split('&')) {
            let (name, value) = pair(attribute)?;
            uri.set_query_attribute(name, value)?;
        }
        if uri.object.is_none() && uri.id.is_none() {
            return Err(UriError::NoObject);
        }
        Ok(uri)
    }
}

impl fmt::Display for KeyUri {
    /// Formats the path, without the query.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        let slot = self.token.slot.map(|slot| slot.to_string());
        let texts = [
            ("token", &self.token.label),
            ("manufacturer", &self.token.manufacturer),
            ("serial", &self.token.serial),
            ("model", &self.token.model),
            ("slot-id", &slot),
            ("object", &self.object),
        ];
        let written = texts.into_iter().filter_map(|(name, value)| Some((name, encoded(value.as_ref()?))));
        let id = self.id.as_ref().map(|id| ("id", hexadecimal(id)));
        for (number, (name, value)) in written.chain(id).enumerate() {
            write!(f, "{}{name}={value}", if number == 0 { "" } else { ";" })?;
        }
        Ok(())
    }
}

fn set<T>(place: &mut Option<T>, name: &str, value: T) -> Result<(), UriError> {
    if place.replace(value).is_some() { Err(UriError::Repeated(name.to_owned())) } else { Ok(()) }
}

/// Splits `name=value` and decodes the value.
fn pair(attribute: &str) -> Result<(&str, Vec<u8>), UriError> {
    let (name, value) = attribute.split_once('=').ok_or_else(|| UriError::NoValue(attribute.to_owned()))?;
    let decoded = decoded(value).ok_or_else(|| UriError::Encoding(name.to_owned()))?;
    Ok((name, decoded))
}

/// Decodes percent-encoding (RFC 3986 section 2.1).
fn decoded(value: &str) -> Option<Vec<u8>> {
    let mut bytes = value.bytes();
    let mut decoded = Vec::with_capacity(value.len());
    while let Some(byte) = bytes.next() {
        decoded.push(if byte == b'%' { hex(bytes.next()?)? << 4 | hex(bytes.next()?)? } else { byte });
    }
    Some(decoded)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// The two hexadecimal digits of a byte.
fn digits(byte: u8) -> impl Iterator<Item = char> {
    [byte >> 4, byte & 15].into_iter().filter_map(|digit| char::from_digit(digit.into(), 16))
}

/// Percent-encodes every byte.
fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| ['%'].into_iter().chain(digits(*byte))).collect()
}

/// Percent-encodes reserved and invisible characters.
fn encoded(value: &str) -> String {
    let mut encoded = String::new();
    for byte in value.bytes() {
        // RFC 7512 section 2.3: `pk11-res-avail` and the unreserved characters of RFC 3986.
        if byte.is_ascii_alphanumeric() || b"-._~:[]@!$'()*+,&".contains(&byte) {
            encoded.push(byte.into());
        } else {
            encoded.push('%');
            encoded.extend(digits(byte));
        }
    }
    encoded
}

fn text(name: &str, value: Vec<u8>) -> Result<String, UriError> {
    String::from_utf8(value).map_err(|_| UriError::Encoding(name.to_owned()))
}

/// Parses `file:PATH`, `file:///PATH` or a path (RFC 7512 section 2.4). Commands (`|PROGRAM`) are refused.
fn pin_source(value: &str) -> Result<PinSource, UriError> {
    let path = match without_scheme(value, "file:") {
        Some(path) => path.strip_prefix("//localhost").or(path.strip_prefix("//")).unwrap_or(path),
        None if value.starts_with('/') => value,
        // Including `|PROGRAM` of RFC 7512 section 2.4: no program is started to read a configuration.
        None => return Err(UriError::PinSource),
    };
    if path.is_empty() { Err(UriError::PinSource) } else { Ok(PinSource(path.into())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> KeyUri {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn refused(text: &str) -> String {
        text.parse::<KeyUri>().expect_err(text).to_string()
    }

    #[test]
    fn every_attribute_is_read_and_written_again() {
        let all = "pkcs11:token=my%20token;manufacturer=Example;serial=0123;model=v1;slot-id=7;object=site;id=%01%ab";
        let read = uri(&format!("{all};type=private?pin-source=file:/etc/pin&module-path=/usr/lib/m.so"));
        assert_eq!(read.to_string(), all);
        assert_eq!(read.token.label.as_deref(), Some("my token"));
        assert_eq!((read.token.slot, read.id.as_deref()), (Some(7), Some(&[1, 0xab][..])));
        assert_eq!(read.pin_source(), Some(&PinSource::file("/etc/pin".into())));
        assert_eq!(read.module_path(), Some(&"/usr/lib/m.so".into()));
        assert_eq!(uri(all).to_string(), all);
    }

    #[test]
    fn a_pin_is_in_a_file_that_is_named_in_one_of_three_ways() {
        for (written, path) in [
            ("file:/etc/pin", "/etc/pin"),
            ("file:///etc/pin", "/etc/pin"),
            ("file://localhost/etc/pin", "/etc/pin"),
            ("/etc/pin", "/etc/pin"),
            ("file:pin", "pin"),
            ("file:/a%20b", "/a b"),
            ("FILE:/etc/pin", "/etc/pin"),
        ] {
            let read = uri(&format!("pkcs11:object=a?pin-source={written}"));
            assert_eq!(read.pin_source().unwrap().path(), &PathBuf::from(path), "{written}");
        }
        for written in ["%7Cprogram", "|program", "file:", "http://a/", ""] {
            assert!(refused(&format!("pkcs11:object=a?pin-source={written}")).contains("pin-source=file:/"));
        }
        assert!(refused("pkcs11:object=a?pin-value=1234").contains("pin-source=file:/"));
        assert!(!refused("pkcs11:object=a?pin-value=1234").contains("1234"));
    }

    #[test]
    fn the_scheme_may_be_in_capitals() {
        assert!(KeyUri::is_meant("PKCS11:object=a") && !KeyUri::is_meant("pkcs11"));
        assert_eq!(uri("Pkcs11:object=a"), uri("pkcs11:object=a"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (written, part) in [
            ("file:a", "begins with pkcs11:"),
            ("pkcs11:", "object=LABEL or id="),
            ("pkcs11:token=a", "object=LABEL or id="),
            ("pkcs11:token=a;objct=b", "`objct` is not known here; known: `token`"),
            ("pkcs11:object=b?pinsource=b", "`pinsource` is not known here; known: `pin-source`"),
            ("pkcs11:object=b;object=c", "`object` is written twice"),
            ("pkcs11:id=%01;id=%02", "`id` is written twice"),
            ("pkcs11:object=b;slot-id=x", "`slot-id` is a number"),
            ("pkcs11:object=b;type=cert", "type=private"),
            ("pkcs11:object", "`object` has no value"),
            ("pkcs11:object=%4", "`object` is not encoded"),
            ("pkcs11:object=%ff", "`object` is not encoded"),
            ("pkcs11:object=a?", "`` has no value"),
        ] {
            let message = refused(written);
            assert!(message.contains(part), "{written}: {message}");
        }
    }

    #[test]
    fn no_text_makes_the_reader_panic_and_what_it_wrote_it_reads_again() {
        let mut state = 7_u64;
        let mut random = |end: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % end
        };
        let words = [
            "pkcs11:",
            "object=",
            "id=",
            "token=",
            ";",
            "?",
            "&",
            "%",
            "%41",
            "%c3%a4",
            "pin-source=",
            "é",
            "=",
        ];
        for _ in 0..20_000 {
            let text: String = (0..random(9)).map(|_| words[random(words.len())]).collect();
            if let Ok(read) = text.parse::<KeyUri>() {
                let again = uri(&read.to_string());
                assert_eq!(
                    (again.token, again.object, again.id),
                    (read.token, read.object, read.id),
                    "{text}"
                );
            }
        }
    }
}
