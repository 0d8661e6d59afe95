//! Extensions of revocation lists and of their entries (RFC 5280 sections 5.2 and 5.3).

use crate::der::{BOOLEAN, Element, Malformed, OCTET_STRING, OID, Reader, SEQUENCE, sequence};

const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 35];
const NUMBER: &[u8] = &[0x55, 0x1d, 20];
const DELTA: &[u8] = &[0x55, 0x1d, 27];
const POINT: &[u8] = &[0x55, 0x1d, 28];
const REASON: &[u8] = &[0x55, 0x1d, 21];
const INVALID_SINCE: &[u8] = &[0x55, 0x1d, 24];

/// Tags within `IssuingDistributionPoint`.
const NAME: u8 = 0xa0;
const ONLY_USERS: u8 = 0x81;
const ONLY_AUTHORITIES: u8 = 0x82;
const SOME_REASONS: u8 = 0x83;
const INDIRECT: u8 = 0x84;
const ONLY_ATTRIBUTES: u8 = 0x85;

/// Tags within `DistributionPointName`: `fullName`, and `uniformResourceIdentifier` in it.
const FULL_NAME: u8 = 0xa0;
const ADDRESS: u8 = 0x86;

/// `IssuingDistributionPoint` (RFC 5280 section 5.2.5): the certificates that a list covers.
#[derive(Clone, Copy, Debug)]
pub(super) struct DistributionPoint<'a> {
    /// Contents of `fullName`; `None` covers all certificates of the issuer.
    names: Option<&'a [u8]>,
}

impl<'a> DistributionPoint<'a> {
    fn read(value: &'a [u8]) -> Result<Self, Malformed> {
        let mut fields = sequence(value)?;
        let names = fields.optional(NAME)?.map(Self::full_name).transpose()?;
        fields.flag(ONLY_USERS)?;
        let is_for_authorities = fields.flag(ONLY_AUTHORITIES)?;
        // A certificate that is absent from such a list may be revoked for one of the other reasons.
        if fields.optional(SOME_REASONS)?.is_some() {
            return Err("it is for some reasons of revocation alone");
        }
        if fields.flag(INDIRECT)? {
            return Err("it is of several issuers (an indirect list)");
        }
        if fields.flag(ONLY_ATTRIBUTES)? || is_for_authorities {
            return Err("it is not for server certificates");
        }
        if !fields.is_empty() {
            return Err("it says in an unknown way which certificates it is for");
        }
        Ok(Self { names })
    }

    /// The contents of `fullName`.
    fn full_name(point: Element<'a>) -> Result<&'a [u8], Malformed> {
        let mut inside = point.inside();
        let name = inside.next()?;
        inside.end()?;
        // `nameRelativeToCRLIssuer` is no address, so it cannot be compared with those in certificates.
        if name.tag == FULL_NAME {
            Ok(name.content)
        } else {
            Err("it is for a part of the certificates that is not named by an address")
        }
    }

    pub(super) fn is_for(&self, addresses: &[String]) -> bool {
        let Some(names) = self.names else { return true };
        let mut names = Reader::new(names);
        std::iter::from_fn(|| names.next().ok())
            .filter(|name| name.tag == ADDRESS)
            .any(|name| addresses.iter().any(|address| address.as_bytes() == name.content))
    }
}

/// `Extension` (RFC 5280 section 4.1).
struct Extension<'a> {
    id: &'a [u8],
    is_critical: bool,
    value: &'a [u8],
}

impl<'a> Extension<'a> {
    fn next(all: &mut Reader<'a>) -> Result<Option<Self>, Malformed> {
        if all.is_empty() {
            return Ok(None);
        }
        let mut one = all.expect(SEQUENCE)?.inside();
        let id = one.expect(OID)?.content;
        let is_critical = one.flag(BOOLEAN)?;
        let value = one.expect(OCTET_STRING)?.content;
        one.end()?;
        Ok(Some(Self { id, is_critical, value }))
    }
}

/// Reads `crlExtensions`. An error is the reason why the list cannot be relied on.
pub(super) fn read(extensions: &[u8]) -> Result<Option<DistributionPoint<'_>>, Malformed> {
    let mut all = sequence(extensions)?;
    let mut point = None;
    while let Some(Extension { id, is_critical, value }) = Extension::next(&mut all)? {
        match id {
            POINT if point.is_some() => return Err("it says twice which certificates it is for"),
            POINT => point = Some(DistributionPoint::read(value)?),
            DELTA => return Err("it has the changes to another list alone (a delta)"),
            AUTHORITY_KEY | NUMBER => {}
            _ if is_critical => return Err("it has a critical extension that is unknown here"),
            _ => {}
        }
    }
    Ok(point)
}

/// Whether the extensions of an entry contain no unknown critical extension.
pub(super) fn entry_is_understood(mut rest: Reader<'_>) -> Result<bool, Malformed> {
    let Some(extensions) = rest.optional(SEQUENCE)? else { return Ok(true) };
    let mut all = extensions.inside();
    while let Some(Extension { id, is_critical, .. }) = Extension::next(&mut all)? {
        if is_critical && ![REASON, INVALID_SINCE].contains(&id) {
            return Ok(false);
        }
    }
    Ok(true)
}
