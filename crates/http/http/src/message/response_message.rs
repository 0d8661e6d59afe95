//! [`Response`].

use http::{Extensions, StatusCode, Version};

use super::HeaderList;

/// Response with a body.
#[derive(Clone, Debug, Default)]
pub struct Response<B> {
    head: ResponseParts,
    body: B,
}

/// Head of a [`Response`]. The default is `200` of HTTP/1.1 without headers.
#[derive(Clone, Debug, Default)]
pub struct ResponseParts {
    /// Status code.
    pub status: StatusCode,
    /// Version of the connection.
    pub version: Version,
    /// Headers.
    pub headers: HeaderList,
    /// Facts beside the headers.
    pub extensions: Extensions,
}

impl<B> Response<B> {
    /// `200` of HTTP/1.1 without headers.
    pub fn new(body: B) -> Self {
        Self { head: ResponseParts::default(), body }
    }

    /// Joins a head and a body.
    pub fn from_parts(head: ResponseParts, body: B) -> Self {
        Self { head, body }
    }

    /// The head and the body.
    pub fn into_parts(self) -> (ResponseParts, B) {
        (self.head, self.body)
    }

    /// The status code.
    pub fn status(&self) -> StatusCode {
        self.head.status
    }

    /// The status code, to be changed.
    pub fn status_mut(&mut self) -> &mut StatusCode {
        &mut self.head.status
    }

    /// The version.
    pub fn version(&self) -> Version {
        self.head.version
    }

    /// The version, to be changed.
    pub fn version_mut(&mut self) -> &mut Version {
        &mut self.head.version
    }

    /// The headers.
    pub fn headers(&self) -> &HeaderList {
        &self.head.headers
    }

    /// The headers, to be changed.
    pub fn headers_mut(&mut self) -> &mut HeaderList {
        &mut self.head.headers
    }

    /// The facts beside the headers.
    pub fn extensions(&self) -> &Extensions {
        &self.head.extensions
    }

    /// The facts beside the headers, to be changed.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.head.extensions
    }

    /// The body.
    pub fn body(&self) -> &B {
        &self.body
    }

    /// The body, to be changed.
    pub fn body_mut(&mut self) -> &mut B {
        &mut self.body
    }

    /// The body alone.
    pub fn into_body(self) -> B {
        self.body
    }

    /// The same head with the body that `change` returns.
    pub fn map<C>(self, change: impl FnOnce(B) -> C) -> Response<C> {
        Response { head: self.head, body: change(self.body) }
    }
}

impl<B> From<http::Response<B>> for Response<B> {
    fn from(response: http::Response<B>) -> Self {
        let (head, body) = response.into_parts();
        let http::response::Parts { status, version, headers, extensions, .. } = head;
        Self { head: ResponseParts { status, version, headers: headers.into(), extensions }, body }
    }
}

impl<B> From<Response<B>> for http::Response<B> {
    fn from(response: Response<B>) -> Self {
        let Response { head, body } = response;
        // The parts of `http` have no public constructor.
        let mut response = Self::new(body);
        *response.status_mut() = head.status;
        *response.version_mut() = head.version;
        *response.headers_mut() = head.headers.into();
        *response.extensions_mut() = head.extensions;
        response
    }
}
