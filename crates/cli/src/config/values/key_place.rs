//! Where a private key is: in a file, or in a token.

use std::path::PathBuf;
use std::str::FromStr;

use brisk_keys_pkcs11::KeyUri;
use serde::Deserialize;
use serde::de::Deserializer;

use super::{Text, Written};

/// `key`: a path, or the URI of a key in a token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum KeyPlace {
    File(PathBuf),
    Token(Box<KeyUri>),
}

impl Written for KeyPlace {
    const EXPECTED: &'static str = "a path in quotes";
}

impl FromStr for KeyPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !KeyUri::is_meant(text) {
            return Ok(Self::File(text.into()));
        }
        text.parse().map(|uri| Self::Token(Box::new(uri))).map_err(|error| error.to_string())
    }
}

impl<'de> Deserialize<'de> for KeyPlace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text::new())
    }
}
