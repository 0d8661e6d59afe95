//! [`Place`]: the part of a URL in which a piece of a target stands, which decides about the treatment of a variable.

use super::{PathPart, Piece, beginning, is_scheme};
use crate::variable::Variable;

/// Place in a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Start,
    /// After a table, whose value can be a scheme and host, or a path.
    AfterMap,
    AfterScheme,
    /// After `//`.
    AuthorityStart,
    Authority,
    /// After a scheme without a host, as in `app:///`. Browsers skip slashes there.
    NoAuthority,
    Path,
    /// In a query; at the start of a parameter or behind it.
    Query {
        begins: bool,
    },
    Fragment,
}

impl Place {
    /// The place after `text`. `None` if a URL cannot begin so.
    pub(super) fn after(self, text: &str) -> Option<Self> {
        let (place, rest) = match self {
            Self::Start if text.starts_with("//") => (Self::AuthorityStart, &text[2..]),
            Self::Start if text.starts_with('/') => (Self::Path, text),
            Self::Start => {
                let (scheme, rest) = text.split_once("://")?;
                if !is_scheme(scheme) {
                    return None;
                }
                (Self::AuthorityStart, rest)
            }
            Self::AfterScheme => (Self::AuthorityStart, text.strip_prefix("://")?),
            // The value of the table may be empty or end with a scheme, so a host follows.
            Self::AfterMap if text.starts_with("://") => (Self::AuthorityStart, &text[3..]),
            Self::AfterMap if text.starts_with("//") => (Self::AuthorityStart, &text[2..]),
            place => (place, text),
        };
        Some(rest.bytes().fold(place, |place, byte| match (place, byte) {
            (Self::AuthorityStart, b'/' | b'\\' | b'?' | b'#') | (Self::NoAuthority, _) => Self::NoAuthority,
            (Self::AuthorityStart, _) => Self::Authority,
            (Self::Fragment, _) | (_, b'#') => Self::Fragment,
            (Self::Query { .. }, byte) => Self::Query { begins: byte == b'&' },
            (_, b'?') => Self::Query { begins: true },
            // Browsers treat a backslash as a slash, so the host ends there too.
            (Self::Authority | Self::AfterMap, b'/' | b'\\') => Self::Path,
            (place, _) => place,
        }))
    }

    pub(super) fn after_map(self) -> Self {
        match self {
            Self::Start | Self::AfterMap => Self::AfterMap,
            Self::AfterScheme | Self::AuthorityStart | Self::Authority => Self::Authority,
            Self::Query { .. } => Self::Query { begins: false },
            Self::NoAuthority | Self::Path | Self::Fragment => self,
        }
    }

    /// The treatment of a variable here, and the place after it.
    pub(super) fn variable(self, variable: Variable) -> Result<(Piece, Self), String> {
        use Variable as V;
        let is_path = matches!(variable, V::Path | V::Target);
        Ok(match self {
            _ if variable.is_of_response() => {
                return Err(
                    "variables of the response are known with the response of an upstream only".to_owned()
                );
            }
            Self::Start if variable == V::Scheme => (Piece::Verbatim(variable), Self::AfterScheme),
            Self::Start | Self::AfterMap | Self::Authority if is_path => (Piece::Path(variable), Self::Path),
            Self::Start | Self::AfterMap | Self::Authority if matches!(variable, V::Group(_)) => {
                (Piece::Segments(variable, PathPart::Begin), Self::Path)
            }
            Self::Path if matches!(variable, V::Group(_)) => {
                (Piece::Segments(variable, PathPart::Rest), self)
            }
            // Not encoded again: the path of a request has the form of this part of a URL already.
            Self::Path if is_path => (Piece::Verbatim(variable), self),
            Self::AuthorityStart | Self::Authority
                if matches!(variable, V::Host | V::TlsServerName | V::ServerAddress | V::ServerPort) =>
            {
                (Piece::Host(variable), Self::Authority)
            }
            Self::Path if variable == V::QueryPart => {
                (Piece::Verbatim(variable), Self::Query { begins: false })
            }
            _ if variable == V::QueryPart => {
                return Err(
                    "{request.query_part} stands behind a path; write {request.query} for the query alone"
                        .to_owned(),
                );
            }
            // Only as a whole parameter: an `&` of the client within a parameter would begin another.
            Self::Query { begins: true } if variable == V::Query => {
                (Piece::Verbatim(variable), Self::Query { begins: false })
            }
            Self::Start | Self::AfterScheme => return Err(beginning()),
            Self::AfterMap | Self::AuthorityStart | Self::Authority | Self::NoAuthority => {
                return Err(
                    "a client could choose the host by a variable in this place: write a slash before it, or \
                     a [map.NAME] with the permitted hosts"
                        .to_owned(),
                );
            }
            Self::Query { .. } => (Piece::Component(variable), Self::Query { begins: false }),
            Self::Path | Self::Fragment => (Piece::Component(variable), self),
        })
    }
}
