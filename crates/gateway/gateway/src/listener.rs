//! [`Socket`], the kinds of listeners of a gateway.

/// A listener of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Socket {
    /// HTTPS.
    Https,
    /// Plain HTTP.
    Http,
    /// A listener of `[[tcp]]`, by its number.
    Tcp(usize),
}
