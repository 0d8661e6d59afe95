//! Keys of forward authentication.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor, value};

/// Forward authentication of a route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ForwardAuthKeys {
    /// [server that decides about requests](#access-control).
    pub forward_auth: Option<ForwardAuth>,
}

/// `forward_auth`: another server that decides about requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForwardAuth {
    /// URL of the server that decides. Either this or `upstream`.
    pub url: Option<String>,
    /// Name of the upstream that decides.
    pub upstream: Option<String>,
    /// Path and query of the requests to `upstream`. Default: `/`.
    pub path: Option<String>,
    /// With `upstream` of the route: headers of a permission that the upstream gets. The client's own headers with these names
    /// are removed, in every spelling that CGI does not distinguish. As a table, names for the upstream with the names in the
    /// permission.
    #[serde(default)]
    pub copy_headers: CopiedNames,
    /// Headers of a permission that are added to the response to the client, for example `"Set-Cookie"` for a server that
    /// renews sessions.
    #[serde(default)]
    pub copy_to_response: Vec<String>,
}

/// `copy_headers`: names of headers, or names for the upstream with the names in the permission.
#[derive(Clone, Debug)]
pub enum CopiedNames {
    /// Headers with the same name for the upstream.
    Same(Vec<String>),
    /// Names in a permission by the names for the upstream.
    Renamed(BTreeMap<String, String>),
}

impl Default for CopiedNames {
    fn default() -> Self {
        Self::Same(Vec::new())
    }
}

impl CopiedNames {
    /// Whether no header is copied.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Same(names) => names.is_empty(),
            Self::Renamed(names) => names.is_empty(),
        }
    }
}

impl<'de> Deserialize<'de> for CopiedNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = CopiedNames;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of names, or a table as { Remote-User = \"X-User\" }")
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, names: A) -> Result<CopiedNames, A::Error> {
                Vec::deserialize(value::SeqAccessDeserializer::new(names)).map(CopiedNames::Same)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, names: A) -> Result<CopiedNames, A::Error> {
                BTreeMap::deserialize(value::MapAccessDeserializer::new(names)).map(CopiedNames::Renamed)
            }
        }
        deserializer.deserialize_any(Either)
    }
}
