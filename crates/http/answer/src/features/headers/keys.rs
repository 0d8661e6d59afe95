//! Keys of header rules, and of the security headers of hosts, HSTS among them.

use std::collections::BTreeMap;
use std::fmt;

use brisk_config_file::Period;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor, value};

/// Header rules of a route, or those of the server for all routes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeaderRulesKeys {
    /// With `upstream`: [changes](pages.md#header-rules) of the request headers for the upstream, also with
    /// [variables](pages.md#variables), in addition to those of host and server.
    pub request_headers: Option<HeaderRules>,
    /// [changes](pages.md#header-rules) of the response headers, also with [variables](pages.md#variables), in addition to those
    /// of host and server.
    pub response_headers: Option<HeaderRules>,
}

/// Headers of all responses of a host.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostHeadersKeys {
    /// `Strict-Transport-Security`. `max_age`: duration, required; the others are `false` by default. `preload` requires
    /// `include_subdomains` and at least `"365d"`.
    pub hsts: Option<Hsts>,
    /// [security headers](pages.md#security-headers) of all responses: `hsts`, `content_type_options`, `referrer_policy`,
    /// `frame_options`, `opener_policy`, `permissions_policy`.
    pub security_headers: Option<SecurityHeaders>,
    /// [changes](pages.md#header-rules) of the request headers for the upstreams of all routes.
    pub request_headers: Option<HeaderRules>,
    /// [changes](pages.md#header-rules) of the response headers of all routes, and of responses without a route.
    pub response_headers: Option<HeaderRules>,
}

/// `request_headers` and `response_headers`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeaderRules {
    /// Fields that get a value in place of all present values.
    pub set: BTreeMap<String, String>,
    /// Fields that get a value in addition to present values.
    pub add: BTreeMap<String, String>,
    /// Names of fields that are removed.
    pub remove: Vec<String>,
    /// Whether responses with a status of 4xx or 5xx get the values too. Default: `false`.
    pub always: Option<bool>,
    /// Whether the rules of host and server with other names apply too. Default: `true`.
    pub inherit: Option<bool>,
}

/// `security_headers`: `"modern"`, or that with exceptions.
#[derive(Clone, Debug, Default)]
pub struct SecurityHeaders(pub SecurityTable);

/// `hsts`: RFC 6797.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hsts {
    /// Time for which clients use HTTPS only.
    pub max_age: Period,
    /// Whether the policy includes all subdomains.
    #[serde(default)]
    pub include_subdomains: bool,
    /// Whether browsers may add the host to their preload lists.
    #[serde(default)]
    pub preload: bool,
}

/// Exceptions: a value for each header, or `false` to omit it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SecurityTable {
    /// Whether HSTS of 180 days is included. Default: `true`.
    pub hsts: Option<bool>,
    /// Whether `X-Content-Type-Options: nosniff` is included. Default: `true`.
    pub content_type_options: Option<bool>,
    /// Value of `Referrer-Policy`.
    pub referrer_policy: Option<TextOrOff>,
    /// Value of `X-Frame-Options`.
    pub frame_options: Option<TextOrOff>,
    /// Value of `Cross-Origin-Opener-Policy`.
    pub opener_policy: Option<TextOrOff>,
    /// Value of `Permissions-Policy`.
    pub permissions_policy: Option<TextOrOff>,
}

/// A text, or `false`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextOrOff {
    /// The header is omitted.
    Off,
    /// This text.
    Text(String),
}

impl<'de> Deserialize<'de> for TextOrOff {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = TextOrOff;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the value of the header in quotes, or `false`")
            }

            fn visit_bool<E: de::Error>(self, on: bool) -> Result<TextOrOff, E> {
                // `true` has no value that could be sent.
                if on { Err(E::invalid_type(de::Unexpected::Bool(on), &self)) } else { Ok(TextOrOff::Off) }
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<TextOrOff, E> {
                Ok(TextOrOff::Text(text.to_owned()))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl<'de> Deserialize<'de> for SecurityHeaders {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = SecurityHeaders;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"modern\", or a table of exceptions as { frame_options = \"DENY\" }")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<SecurityHeaders, E> {
                match word {
                    "modern" => Ok(SecurityHeaders::default()),
                    other => Err(E::unknown_variant(other, &["modern"])),
                }
            }

            fn visit_map<A: de::MapAccess<'de>>(self, table: A) -> Result<SecurityHeaders, A::Error> {
                SecurityTable::deserialize(value::MapAccessDeserializer::new(table)).map(SecurityHeaders)
            }
        }
        deserializer.deserialize_any(Either)
    }
}
