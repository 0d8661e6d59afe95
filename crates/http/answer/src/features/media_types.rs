//! Media types of files by the extension of their names.

mod keys;

use std::collections::BTreeMap;
use std::sync::Arc;

use brisk_config_file::KeyPath;
use http::HeaderValue;

use super::{Context, HostFeature, HostScope, RouteFeature, RouteScope};
pub use keys::MediaTypesKeys;

/// Media types in place of the usual ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediaTypes {
    /// Values of `Content-Type` by extension, in lower case.
    pub by_extension: BTreeMap<String, HeaderValue>,
    /// Value for files whose extension has no type; `None` for `application/octet-stream`.
    pub default: Option<HeaderValue>,
}

impl MediaTypes {
    /// The type of a file in place of the usual one.
    pub(crate) fn of(&self, name: &str) -> Option<&HeaderValue> {
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension).to_ascii_lowercase();
        self.by_extension.get(&extension).or_else(|| {
            let default = self.default.as_ref()?;
            mime_guess::from_ext(&extension).first_raw().is_none().then_some(default)
        })
    }
}

/// `types` and `default_type` of hosts and routes.
#[derive(Debug)]
pub struct MediaTypesFeature;

impl HostFeature for MediaTypesFeature {
    type Keys = MediaTypesKeys;
    type Settings = Option<Arc<MediaTypes>>;

    fn resolve(
        keys: &MediaTypesKeys,
        host: &HostScope<'_>,
        context: &mut Context<'_>,
    ) -> Option<Arc<MediaTypes>> {
        resolve(keys, |key| host.key(key), None, context)
    }
}

impl RouteFeature for MediaTypesFeature {
    type Keys = MediaTypesKeys;
    type Settings = Option<Arc<MediaTypes>>;

    fn resolve(
        keys: &MediaTypesKeys,
        route: &RouteScope<'_>,
        context: &mut Context<'_>,
    ) -> Option<Arc<MediaTypes>> {
        if route.keys.action.directory.is_none() {
            for (key, is_written) in
                [("types", !keys.types.is_empty()), ("default_type", keys.default_type.is_some())]
            {
                if is_written {
                    context.findings.wrong(&route.key(key), "has no effect without `static`");
                }
            }
        }
        resolve(keys, |key| route.key(key), route.host.settings.media_types.as_ref(), context)
    }
}

/// The types of a host or route, and those of `general` for other extensions.
fn resolve(
    keys: &MediaTypesKeys,
    place: impl Fn(&str) -> KeyPath,
    general: Option<&Arc<MediaTypes>>,
    context: &mut Context<'_>,
) -> Option<Arc<MediaTypes>> {
    if keys.types.is_empty() && keys.default_type.is_none() {
        return general.cloned();
    }
    let mut types = general.map(|general| MediaTypes::clone(general)).unwrap_or_default();
    for (extension, value) in &keys.types {
        let path = place("types").key(extension);
        // The look-up takes the letters after the last dot, so an extension with a dot would never be found.
        if extension.is_empty() || extension.contains(['.', '/', '*']) {
            let message = "is not an extension: write the letters after the last dot of a name, as wasm = \"application/wasm\"";
            context.findings.wrong(&path, format!("{extension:?} {message}"));
        }
        if let Some(value) = media_type(value, &path, context) {
            types.by_extension.insert(extension.to_ascii_lowercase(), value);
        }
    }
    if let Some(value) = &keys.default_type {
        types.default = media_type(value, &place("default_type"), context);
    }
    Some(Arc::new(types))
}

fn media_type(text: &str, path: &KeyPath, context: &mut Context<'_>) -> Option<HeaderValue> {
    let name = text.split(';').next().unwrap_or_default().trim_end();
    // RFC 6838 section 4.2.
    let is_token = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b))
    };
    let is_type = name.split_once('/').is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype));
    let value = HeaderValue::from_str(text).ok().filter(|_| is_type);
    if value.is_none() {
        let message = format!("{text:?} is not a media type: write one as \"text/html; charset=utf-8\"");
        context.findings.wrong(path, message);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_of_a_name_has_a_type() {
        let value = HeaderValue::from_static;
        let types = MediaTypes {
            by_extension: [("wasm".to_owned(), value("x/wasm")), ("gz".to_owned(), value("x/gz"))].into(),
            default: Some(value("x/default")),
        };
        for (name, found) in [
            ("a.wasm", Some("x/wasm")),
            ("a.b.WASM", Some("x/wasm")),
            ("a.tar.gz", Some("x/gz")),
            ("a.html", None),
            ("wasm", Some("x/default")),
            ("a.unknown", Some("x/default")),
            ("", Some("x/default")),
        ] {
            assert_eq!(types.of(name).map(|value| value.to_str().expect("text")), found, "{name}");
        }
        assert_eq!(MediaTypes::default().of("a.unknown"), None);
    }
}
