//! Parser for OCSP responses (RFC 6960 section 4.2.1) that borrows from the input.

use std::time::SystemTime;

use x509_parser::prelude::FromDer;
use x509_parser::x509::AlgorithmIdentifier;

use super::OcspError;
use crate::der::{
    BIT_STRING, ENUMERATED, Element, GENERALIZED_TIME, INTEGER, Malformed, OCTET_STRING, OID, Reader,
    SEQUENCE, sequence,
};

/// OID of `id-pkix-ocsp-basic`.
const BASIC: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1];

/// Context-specific tags, primitive and constructed.
const PRIMITIVE: u8 = 0x80;
const CONSTRUCTED: u8 = 0xa0;

/// `BasicOCSPResponse`.
pub(super) struct Basic<'a> {
    /// The signed bytes, `tbsResponseData`.
    pub(super) signed: &'a [u8],
    pub(super) responder: Responder<'a>,
    /// `producedAt`: the time at which the responder signed the response.
    pub(super) produced_at: SystemTime,
    pub(super) algorithm: AlgorithmIdentifier<'a>,
    pub(super) signature: &'a [u8],
    answers: Reader<'a>,
    certificates: Reader<'a>,
}

/// `ResponderID`: identity of the signer.
pub(super) enum Responder<'a> {
    /// Subject of the signer.
    Name(&'a [u8]),
    /// SHA-1 of the signer's `subjectPublicKey`.
    Key(&'a [u8]),
}

/// `SingleResponse`: its `CertID`, and the status, which is parsed on demand.
pub(super) struct Single<'a> {
    /// OID of the hash in `CertID`.
    pub(super) hash: &'a [u8],
    pub(super) issuer_name: &'a [u8],
    pub(super) issuer_key: &'a [u8],
    pub(super) serial: &'a [u8],
    rest: Reader<'a>,
}

/// The status of one certificate: a `SingleResponse` after its `CertID`.
pub(super) struct SingleStatus {
    pub(super) status: CertStatus,
    pub(super) this_update: SystemTime,
    pub(super) next_update: Option<SystemTime>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CertStatus {
    Good,
    Revoked(SystemTime),
    Unknown,
}

impl<'a> Basic<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, OcspError> {
        let mut response = sequence(bytes)?;
        let status = response.expect(ENUMERATED)?.content;
        if status != [0] {
            return Err(refused(status));
        }
        let mut inside = response.expect(CONSTRUCTED)?.inside();
        response.end()?;
        let mut typed = inside.expect(SEQUENCE)?.inside();
        inside.end()?;
        if typed.expect(OID)?.content != BASIC {
            return Err(OcspError::Malformed("a type of response other than id-pkix-ocsp-basic"));
        }
        let basic = typed.expect(OCTET_STRING)?.content;
        typed.end()?;
        Ok(Self::read_basic(basic)?)
    }

    fn read_basic(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut basic = sequence(bytes)?;
        let data = basic.expect(SEQUENCE)?;
        let algorithm = basic.expect(SEQUENCE)?;
        // `AlgorithmIdentifier::from_der` also accepts other tags than OID, which clients refuse.
        algorithm.inside().expect(OID)?;
        let signature = basic.expect(BIT_STRING)?.bits()?;
        let certificates = match basic.optional(CONSTRUCTED)? {
            None => Reader::new(&[]),
            Some(given) => sequence(given.content)?,
        };
        basic.end()?;
        let (_, algorithm) =
            AlgorithmIdentifier::from_der(algorithm.whole).map_err(|_| "an algorithm that cannot be read")?;
        let (responder, produced_at, answers) = read_data(data)?;
        Ok(Self { signed: data.whole, responder, produced_at, algorithm, signature, answers, certificates })
    }

    /// Iterates over the `SingleResponse`s, which are parsed on demand. Ends after the first malformed `CertID`.
    pub(super) fn answers(&self) -> impl Iterator<Item = Result<Single<'a>, Malformed>> {
        let mut rest = self.answers;
        let mut failed = false;
        std::iter::from_fn(move || {
            if failed || rest.is_empty() {
                return None;
            }
            let single = rest.expect(SEQUENCE).and_then(Single::read);
            failed = single.is_err();
            Some(single)
        })
    }

    /// The certificates in the response, in DER.
    pub(super) fn certificates(&self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.certificates;
        std::iter::from_fn(move || rest.expect(SEQUENCE).ok().map(|element| element.whole))
    }
}

/// `ResponseData`: the signer, `producedAt` and the `SingleResponse`s.
fn read_data(data: Element<'_>) -> Result<(Responder<'_>, SystemTime, Reader<'_>), Malformed> {
    let mut data = data.inside();
    // RFC 6960 section 4.2.1: the version, usually omitted because v1 is the default and the only one.
    data.optional(CONSTRUCTED)?;
    let responder = data.next()?;
    let mut inside = responder.inside();
    let responder = match responder.tag {
        tag if tag == CONSTRUCTED | 1 => Responder::Name(inside.expect(SEQUENCE)?.whole),
        tag if tag == CONSTRUCTED | 2 => Responder::Key(inside.expect(OCTET_STRING)?.content),
        _ => return Err("an unknown kind of responder"),
    };
    inside.end()?;
    let produced_at = data.expect(GENERALIZED_TIME)?.time()?;
    let answers = data.expect(SEQUENCE)?.inside();
    // Extensions of the response are skipped: the request contains no nonce to compare.
    data.optional(CONSTRUCTED | 1)?;
    data.end()?;
    Ok((responder, produced_at, answers))
}

impl<'a> Single<'a> {
    fn read(element: Element<'a>) -> Result<Self, Malformed> {
        let mut rest = element.inside();
        let mut id = rest.expect(SEQUENCE)?.inside();
        let hash = id.expect(SEQUENCE)?.inside().expect(OID)?.content;
        let issuer_name = id.expect(OCTET_STRING)?.content;
        let issuer_key = id.expect(OCTET_STRING)?.content;
        let serial = id.expect(INTEGER)?.content;
        id.end()?;
        Ok(Self { hash, issuer_name, issuer_key, serial, rest })
    }

    /// The status of the certificate.
    pub(super) fn status(&self) -> Result<SingleStatus, Malformed> {
        let mut single = self.rest;
        let status = CertStatus::read(single.next()?)?;
        let this_update = single.expect(GENERALIZED_TIME)?.time()?;
        let next_update = match single.optional(CONSTRUCTED)? {
            None => None,
            Some(next) => Some(next.inside().expect(GENERALIZED_TIME)?.time()?),
        };
        single.optional(CONSTRUCTED | 1)?;
        single.end()?;
        Ok(SingleStatus { status, this_update, next_update })
    }
}

impl CertStatus {
    fn read(element: Element<'_>) -> Result<Self, Malformed> {
        match element.tag {
            PRIMITIVE => Ok(Self::Good),
            tag if tag == CONSTRUCTED | 1 => {
                Ok(Self::Revoked(element.inside().expect(GENERALIZED_TIME)?.time()?))
            }
            tag if tag == PRIMITIVE | 2 => Ok(Self::Unknown),
            _ => Err("an unknown status"),
        }
    }
}

fn refused(status: &[u8]) -> OcspError {
    OcspError::Refused(match status {
        [1] => "the request is malformed",
        [2] => "an internal error",
        [3] => "try later",
        [5] => "the request must be signed",
        [6] => "unauthorized: it does not know the certificate",
        _ => "an unknown status",
    })
}
