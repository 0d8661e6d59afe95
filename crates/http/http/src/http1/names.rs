//! Names of header lines.

use http::HeaderName;
use http::header::{self, InvalidHeaderName};

/// The name that `written` spells.
///
/// Usual names in their usual spellings cost a comparison. Others cost a conversion to lower case and a search in a table, and an
/// allocation unless they are in this table.
pub(super) fn parse(written: &[u8]) -> Result<HeaderName, InvalidHeaderName> {
    usual(written).map_or_else(|| HeaderName::from_bytes(written), Ok)
}

fn usual(written: &[u8]) -> Option<HeaderName> {
    // By length first, so that a name is compared with few others, each time by one or two loads.
    // No hash: `HeaderName::from_bytes` hashes a name and searches a table, which a comparison avoids.
    Some(match written.len() {
        4 => match written {
            b"Date" | b"date" => header::DATE,
            b"ETag" | b"etag" => header::ETAG,
            b"Host" | b"host" => header::HOST,
            b"Vary" | b"vary" => header::VARY,
            _ => return None,
        },
        6 => match written {
            b"Accept" | b"accept" => header::ACCEPT,
            b"Cookie" | b"cookie" => header::COOKIE,
            b"Server" | b"server" => header::SERVER,
            _ => return None,
        },
        7 => match written {
            b"Expires" | b"expires" => header::EXPIRES,
            b"Referer" | b"referer" => header::REFERER,
            _ => return None,
        },
        10 => match written {
            b"Connection" | b"connection" => header::CONNECTION,
            b"Set-Cookie" | b"set-cookie" => header::SET_COOKIE,
            b"User-Agent" | b"user-agent" => header::USER_AGENT,
            _ => return None,
        },
        12 => match written {
            b"Content-Type" | b"content-type" => header::CONTENT_TYPE,
            _ => return None,
        },
        13 => match written {
            b"Accept-Ranges" | b"accept-ranges" => header::ACCEPT_RANGES,
            b"Cache-Control" | b"cache-control" => header::CACHE_CONTROL,
            b"Last-Modified" | b"last-modified" => header::LAST_MODIFIED,
            _ => return None,
        },
        14 => match written {
            b"Content-Length" | b"content-length" => header::CONTENT_LENGTH,
            _ => return None,
        },
        15 => match written {
            b"Accept-Encoding" | b"accept-encoding" => header::ACCEPT_ENCODING,
            b"Accept-Language" | b"accept-language" => header::ACCEPT_LANGUAGE,
            _ => return None,
        },
        16 => match written {
            b"Content-Encoding" | b"content-encoding" => header::CONTENT_ENCODING,
            _ => return None,
        },
        17 => match written {
            b"Transfer-Encoding" | b"transfer-encoding" => header::TRANSFER_ENCODING,
            _ => return None,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_the_same_name() {
        let names = [
            "Accept",
            "Accept-Encoding",
            "Accept-Language",
            "Accept-Ranges",
            "Cache-Control",
            "Connection",
            "Content-Encoding",
            "Content-Length",
            "Content-Type",
            "Cookie",
            "Date",
            "ETag",
            "Expires",
            "Host",
            "Last-Modified",
            "Referer",
            "Server",
            "Set-Cookie",
            "Transfer-Encoding",
            "User-Agent",
            "Vary",
        ];
        for name in names {
            let expected = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            for spelling in [name.to_owned(), name.to_ascii_lowercase()] {
                assert_eq!(usual(spelling.as_bytes()), Some(expected.clone()), "{spelling}");
            }
            assert_eq!(parse(name.to_ascii_uppercase().as_bytes()).expect("a name"), expected);
        }
        assert_eq!(parse(b"X-Own").expect("a name"), "x-own");
        assert!(parse(b"").is_err() && parse(b"Dat ").is_err());
    }
}
