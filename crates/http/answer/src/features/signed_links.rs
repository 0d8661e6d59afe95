//! Links with a signature and an expiry, which an application forms for its users.

mod keys;
mod resolve;
pub(crate) mod stage;

use std::sync::Arc;

use brisk_access::LinkKeys;
use brisk_rules::{BodyTemplate, Values, Variable};

use super::{Context, RouteFeature, RouteScope};
pub use keys::SignedLinksKeys;

/// The signature that the links of a route need.
#[derive(Debug)]
pub struct LinkRule {
    keys: LinkKeys,
    /// The signed text.
    text: BodyTemplate,
    /// The signature of a request.
    signature: BodyTemplate,
    /// The second since 1970 after which a request is refused. Default: `None`, links do not expire.
    expires: Option<BodyTemplate>,
}

/// Mistake of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkFault {
    /// The signature is missing or wrong.
    Unsigned,
    /// The signature is right, and its time has passed.
    Expired,
}

/// `signed_links` of routes.
#[derive(Debug)]
pub struct SignedLinksFeature;

impl RouteFeature for SignedLinksFeature {
    type Keys = SignedLinksKeys;
    type Settings = Option<Arc<LinkRule>>;

    fn resolve(
        keys: &SignedLinksKeys,
        route: &RouteScope<'_>,
        context: &mut Context<'_>,
    ) -> Option<Arc<LinkRule>> {
        resolve::rule(keys.signed_links.as_ref()?, route, context).map(Arc::new)
    }
}

impl LinkRule {
    /// Examines a request with the normalized and decoded path `path` at the second `now` since 1970.
    fn check(&self, request: &impl Values, path: &[u8], now: u64) -> Result<(), LinkFault> {
        let expires = self.expires.as_ref().map(|expires| expires.form(request, path));
        let expires = expires.unwrap_or_default();
        let values = LinkValues { request, path, expires: &expires };
        let (text, signature) = (self.text.form(&values, path), self.signature.form(request, path));
        // Before the expiry, which is text of the client until the signature is verified.
        if !self.keys.verify(&text, &signature) {
            return Err(LinkFault::Unsigned);
        }
        if self.expires.is_none() {
            return Ok(());
        }
        // The application has signed a time that is none.
        let second =
            str::from_utf8(&expires).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let second: u64 = second.and_then(|text| text.parse().ok()).ok_or(LinkFault::Unsigned)?;
        if second < now { Err(LinkFault::Expired) } else { Ok(()) }
    }
}

/// Values of a signed text: those of a request, and those that only signed texts have.
struct LinkValues<'a, V> {
    request: &'a V,
    path: &'a [u8],
    expires: &'a [u8],
}

impl<V: Values> Values for LinkValues<'_, V> {
    fn append(&self, variable: &Variable, out: &mut Vec<u8>) {
        match variable {
            Variable::DecodedPath => out.extend_from_slice(self.path),
            Variable::LinkExpires => out.extend_from_slice(self.expires),
            other => self.request.append(other, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use brisk_rules::Maps;

    use super::*;

    /// A request with these parameters of its query.
    struct Query<'a>(&'a [(&'a str, &'a str)]);

    impl Values for Query<'_> {
        fn append(&self, variable: &Variable, out: &mut Vec<u8>) {
            let Variable::Parameter(name) = variable else { return };
            let value = self.0.iter().find(|(own, _)| own == name);
            out.extend_from_slice(value.map_or("", |(_, value)| value).as_bytes());
        }
    }

    fn read(text: &str) -> BodyTemplate {
        BodyTemplate::with_own(text, &resolve::OWN, &Maps::default(), None).expect("a template")
    }

    impl LinkRule {
        /// Links with the MD5 of `text`, which do not expire.
        pub(crate) fn with_md5(text: &str) -> Self {
            let (text, signature) = (read(text), read("{request.query.sign}"));
            Self { keys: LinkKeys::Md5, text, signature, expires: None }
        }
    }

    fn rule(expires: Option<&str>) -> LinkRule {
        LinkRule { expires: expires.map(read), ..LinkRule::with_md5("{expires}{decoded_path} secret") }
    }

    #[test]
    fn a_link_is_valid_until_its_second() {
        let rule = rule(Some("{request.query.until}"));
        // `printf '1000/a b secret' | openssl md5`
        let link = Query(&[("until", "1000"), ("sign", "758ecd4219c6f575fea0cd16d37d7440")]);
        let check = |request: &Query<'_>, path: &[u8], now| rule.check(request, path, now);
        assert_eq!(check(&link, b"/a b", 1000), Ok(()));
        assert_eq!(check(&link, b"/a b", 1001), Err(LinkFault::Expired));
        assert_eq!(check(&link, b"/a", 1000), Err(LinkFault::Unsigned));
        let later = Query(&[("until", "1001"), link.0[1]]);
        assert_eq!(check(&later, b"/a b", 1000), Err(LinkFault::Unsigned));
        assert_eq!(check(&Query(&[]), b"/a b", 1000), Err(LinkFault::Unsigned));
    }

    #[test]
    fn a_signed_time_that_is_no_number_is_refused() {
        // `printf '+9/a secret' | openssl md5`
        let link = Query(&[("until", "+9"), ("sign", "dc3577ba60741aa871d910e1254185bf")]);
        assert_eq!(rule(Some("{request.query.until}")).check(&link, b"/a", 1), Err(LinkFault::Unsigned));
    }

    #[test]
    fn links_without_a_time_do_not_expire() {
        // `printf '/a secret' | openssl md5`
        let link = Query(&[("sign", "5c7d256959fb4816aba24ce613dc07ca")]);
        assert_eq!(rule(None).check(&link, b"/a", u64::MAX), Ok(()));
    }
}
