//! Digests of a content, which contradict it once it is changed.

use http::HeaderMap;
use http::header::HeaderName;

/// Digests of the content: RFC 9530 and its predecessors. A changed content would contradict them.
pub const DIGESTS: [HeaderName; 4] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];

/// The trailers of a changed body: `trailers` of the original without its [`DIGESTS`].
pub fn without_digests(mut trailers: HeaderMap) -> HeaderMap {
    for name in &DIGESTS {
        trailers.remove(name);
    }
    trailers
}
