//! Conversion of message versions to [`HttpVersion`], whose methods are the rules that depend on the version.

use brisk_wire::HttpVersion;
use http::Version;

/// Converts the version of a message. `http::Version` can only be matched with a wildcard, so the conversion is made only
/// here. HTTP/0.9, which no parser accepts, counts as HTTP/1.0.
pub fn of(version: Version) -> HttpVersion {
    match version {
        Version::HTTP_11 => HttpVersion::Http11,
        Version::HTTP_2 => HttpVersion::Http2,
        Version::HTTP_3 => HttpVersion::Http3,
        _ => HttpVersion::Http10,
    }
}

/// Whether interim responses may precede a response (RFC 9110 section 15.2).
pub fn has_interim_responses(version: Version) -> bool {
    match of(version) {
        HttpVersion::Http10 => false,
        HttpVersion::Http11 | HttpVersion::Http2 | HttpVersion::Http3 => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_1_0_has_no_interim_responses() {
        let versions = [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2, Version::HTTP_3];
        assert_eq!(versions.map(has_interim_responses), [false, true, true, true]);
    }

    #[test]
    fn no_version_is_taken_for_another() {
        for (version, expected) in [
            (Version::HTTP_10, HttpVersion::Http10),
            (Version::HTTP_11, HttpVersion::Http11),
            (Version::HTTP_2, HttpVersion::Http2),
            (Version::HTTP_3, HttpVersion::Http3),
        ] {
            assert_eq!(of(version), expected);
        }
    }
}
