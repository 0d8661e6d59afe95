//! Search for the token and the key of a URI.

use cryptoki::{
    context::Pkcs11,
    object::{Attribute, AttributeType, ObjectClass, ObjectHandle},
    session::Session,
    slot::{Slot, TokenInfo},
};

use crate::{
    error::TokenError,
    uri::{KeyUri, TokenName},
};

/// Maximum number of tokens or keys in a message.
const LISTED: usize = 8;

/// Maximum number of objects that are read for a message.
const LOOKED_AT: usize = 100;

impl TokenName {
    fn fits(&self, slot: Slot, token: &TokenInfo) -> bool {
        let same =
            |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
        same(&self.label, token.label())
            && same(&self.manufacturer, token.manufacturer_id())
            && same(&self.serial, token.serial_number())
            && same(&self.model, token.model())
            && self.slot.is_none_or(|wanted| wanted == slot.id())
    }
}

/// Finds the only token that matches `name`; `uri` is for messages.
///
/// # Errors
///
/// [`TokenError::NoToken`] or [`TokenError::SeveralTokens`], with a list.
pub(crate) fn token(context: &Pkcs11, name: &TokenName, uri: &str) -> Result<(Slot, TokenInfo), TokenError> {
    let slots = context.get_slots_with_token()?;
    // Tokens without readable information cannot be used.
    let infos = slots.into_iter().filter_map(|slot| Some((slot, context.get_token_info(slot).ok()?)));
    // Tokens that are not initialized contain no keys.
    let (mut fitting, others): (Vec<_>, Vec<_>) =
        infos.filter(|(_, info)| info.token_initialized()).partition(|(slot, info)| name.fits(*slot, info));
    match (fitting.pop(), fitting.is_empty()) {
        (Some(found), true) => Ok(found),
        (Some(last), false) => {
            fitting.push(last);
            Err(TokenError::SeveralTokens { uri: uri.to_owned(), found: list(fitting.iter().map(described)) })
        }
        (None, _) if others.is_empty() => {
            Err(TokenError::NoToken { uri: uri.to_owned(), found: "the module shows no token at all".into() })
        }
        (None, _) => {
            let found = format!("the module shows {}", list(others.iter().map(described)));
            Err(TokenError::NoToken { uri: uri.to_owned(), found })
        }
    }
}

fn described((slot, info): &(Slot, TokenInfo)) -> String {
    format!("\"{}\" (serial {}, slot-id {})", info.label(), info.serial_number(), slot.id())
}

/// Joins up to [`LISTED`] items with commas.
fn list(items: impl ExactSizeIterator<Item = String>) -> String {
    let more = items.len() > LISTED;
    let mut listed = items.take(LISTED).collect::<Vec<_>>().join(", ");
    if more {
        listed.push_str(" and more");
    }
    listed
}

/// Finds the private keys that match `uri`.
pub(crate) fn keys(session: &Session, uri: &KeyUri) -> Result<Vec<ObjectHandle>, cryptoki::error::Error> {
    let mut template = vec![Attribute::Class(ObjectClass::PRIVATE_KEY)];
    template.extend(uri.object.as_ref().map(|label| Attribute::Label(label.clone().into_bytes())));
    template.extend(uri.id.clone().map(Attribute::Id));
    session.find_objects(&template)
}

/// Finds the only private key that matches `uri`; `token` is the label of the token.
///
/// # Errors
///
/// [`TokenError::NoKey`] or [`TokenError::SeveralKeys`], with a list.
pub(crate) fn key(session: &Session, uri: &KeyUri, token: &str) -> Result<ObjectHandle, TokenError> {
    let (found, uri_text) = (keys(session, uri)?, uri.to_string());
    match found[..] {
        [key] => Ok(key),
        [] => {
            let all: Vec<_> = session
                .iter_objects(&[Attribute::Class(ObjectClass::PRIVATE_KEY)])?
                .take(LOOKED_AT)
                .collect::<Result<_, _>>()?;
            let found = if all.is_empty() {
                "it shows no private key at all; is it the right PIN for them?".to_owned()
            } else {
                format!("it has {}", list(all.iter().map(|key| named(session, *key))))
            };
            Err(TokenError::NoKey { token: token.to_owned(), uri: uri_text, found })
        }
        _ => Err(TokenError::SeveralKeys {
            token: token.to_owned(),
            uri: uri_text,
            number: found.len(),
            found: list(found.iter().map(|key| named(session, *key))),
        }),
    }
}

/// Attributes of a key in the syntax of a [`KeyUri`]: `object=site;id=%01`.
fn named(session: &Session, key: ObjectHandle) -> String {
    let mut uri = KeyUri::default();
    let attributes = session.get_attributes(key, &[AttributeType::Label, AttributeType::Id]);
    for attribute in attributes.unwrap_or_default() {
        match attribute {
            Attribute::Label(label) => uri.object = Some(String::from_utf8_lossy(&label).into_owned()),
            Attribute::Id(id) => uri.id = Some(id),
            _ => {}
        }
    }
    uri.to_string().trim_start_matches("pkcs11:").to_owned()
}
