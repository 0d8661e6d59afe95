//! Location of a private key: a file, a token or a key server.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use brisk_keys_pkcs11::KeyUri;
use serde::Deserialize;
use serde::de::Deserializer;

use brisk_config_file::{Text, Written};
use brisk_wire::uri::without_scheme;

/// `key`: a path, the URI of a key in a token, or key servers that have the key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum KeyPlace {
    File(PathBuf),
    Token(Box<KeyUri>),
    /// The set of this name.
    KeyServer(String),
}

/// Prefix of the location of keys on key servers.
const KEY_SERVER: &str = "keyserver:";

impl fmt::Display for KeyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.display().fmt(f),
            Self::Token(uri) => uri.fmt(f),
            Self::KeyServer(name) => write!(f, "{KEY_SERVER}{name}"),
        }
    }
}

impl Written for KeyPlace {
    const EXPECTED: &'static str = "a path in quotes";
}

impl FromStr for KeyPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Before the path: `keyserver:` is a valid name of a file too, which has to be written as
        // `./keyserver:NAME`.
        if let Some(name) = without_scheme(text, KEY_SERVER) {
            return Ok(Self::KeyServer(name.to_owned()));
        }
        // A wrong URI is reported as such. Taken for a path, it would be a file that does not exist.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_of_keys_may_be_in_capitals() {
        assert_eq!("PKCS11:object=a".parse::<KeyPlace>().expect("a URI").to_string(), "pkcs11:object=a");
        assert_eq!("KeyServer:Main".parse::<KeyPlace>(), Ok(KeyPlace::KeyServer("Main".to_owned())));
        assert_eq!("pkcs11.key".parse::<KeyPlace>(), Ok(KeyPlace::File("pkcs11.key".into())));
    }
}
