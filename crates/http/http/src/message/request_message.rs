//! [`Request`].

use http::{Extensions, HeaderName, HeaderValue, Method, Uri, Version};

use super::HeaderList;

/// Request with a body.
#[derive(Clone, Debug, Default)]
pub struct Request<B> {
    head: RequestParts,
    body: B,
}

/// Head of a [`Request`]. The default is `GET /` of HTTP/1.1 without headers.
#[derive(Clone, Debug, Default)]
pub struct RequestParts {
    /// Method.
    pub method: Method,
    /// Target.
    pub uri: Uri,
    /// Version of the client's connection.
    pub version: Version,
    /// Headers.
    pub headers: HeaderList,
    /// Facts beside the headers, such as the protocol of an extended `CONNECT`.
    pub extensions: Extensions,
}

impl<B> Request<B> {
    /// `GET /` of HTTP/1.1 without headers.
    pub fn new(body: B) -> Self {
        Self { head: RequestParts::default(), body }
    }

    /// Joins a head and a body.
    pub fn from_parts(head: RequestParts, body: B) -> Self {
        Self { head, body }
    }

    /// The head and the body.
    pub fn into_parts(self) -> (RequestParts, B) {
        (self.head, self.body)
    }

    /// The method.
    pub fn method(&self) -> &Method {
        &self.head.method
    }

    /// The method, to be changed.
    pub fn method_mut(&mut self) -> &mut Method {
        &mut self.head.method
    }

    /// The target.
    pub fn uri(&self) -> &Uri {
        &self.head.uri
    }

    /// The target, to be changed.
    pub fn uri_mut(&mut self) -> &mut Uri {
        &mut self.head.uri
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
    pub fn map<C>(self, change: impl FnOnce(B) -> C) -> Request<C> {
        Request { head: self.head, body: change(self.body) }
    }
}

impl From<http::request::Parts> for RequestParts {
    fn from(head: http::request::Parts) -> Self {
        let http::request::Parts { method, uri, version, headers, extensions, .. } = head;
        Self { method, uri, version, headers: headers.into(), extensions }
    }
}

impl<B> From<http::Request<B>> for Request<B> {
    fn from(request: http::Request<B>) -> Self {
        let (head, body) = request.into_parts();
        Self { head: head.into(), body }
    }
}

impl Request<()> {
    /// Builds a request from texts, for tests.
    pub fn builder() -> RequestBuilder {
        RequestBuilder(http::Request::builder())
    }

    /// Builds a `GET` request for `uri`.
    pub fn get(uri: &str) -> RequestBuilder {
        Self::builder().method("GET").uri(uri)
    }

    /// Builds a `HEAD` request for `uri`.
    pub fn head(uri: &str) -> RequestBuilder {
        Self::builder().method("HEAD").uri(uri)
    }

    /// Builds a `POST` request for `uri`.
    pub fn post(uri: &str) -> RequestBuilder {
        Self::builder().method("POST").uri(uri)
    }
}

/// Builder of a [`Request`] from texts. The first mistake is the error of [`Self::body`].
#[derive(Debug)]
pub struct RequestBuilder(http::request::Builder);

impl RequestBuilder {
    /// Sets the method.
    #[must_use]
    pub fn method<M: TryInto<Method, Error: Into<http::Error>>>(self, method: M) -> Self {
        Self(self.0.method(method))
    }

    /// Sets the target.
    #[must_use]
    pub fn uri<U: TryInto<Uri, Error: Into<http::Error>>>(self, uri: U) -> Self {
        Self(self.0.uri(uri))
    }

    /// Sets the version.
    #[must_use]
    pub fn version(self, version: Version) -> Self {
        Self(self.0.version(version))
    }

    /// Adds a header line.
    #[must_use]
    pub fn header<N, V>(self, name: N, value: V) -> Self
    where
        N: TryInto<HeaderName, Error: Into<http::Error>>,
        V: TryInto<HeaderValue, Error: Into<http::Error>>,
    {
        Self(self.0.header(name, value))
    }

    /// The request with this body.
    ///
    /// # Errors
    ///
    /// The first mistake of method, target, version or headers.
    pub fn body<B>(self, body: B) -> Result<Request<B>, http::Error> {
        // `http` checks the texts; a conversion costs nothing that matters in tests.
        self.0.body(body).map(Request::from)
    }
}
