//! DNS messages: `SOA` queries, dynamic updates (RFC 2136) and TSIG signatures (RFC 8945).
//!
//! Signatures of replies are not verified: a forged reply can only make an order fail, and so can an attacker on the
//! path who drops the reply.

use aws_lc_rs::hmac;
use hickory_proto::op::{Message, Query, ResponseCode, update_message};
use hickory_proto::rr::rdata::TXT;
use hickory_proto::rr::rdata::tsig::{self, TSIG, make_tsig_record, message_tbs};
use hickory_proto::rr::{Name, RData, Record, RecordSet, RecordType};
use hickory_proto::serialize::binary::{BinEncodable, BinEncoder};

use super::{TsigKey, Txt};

/// TTL of challenge records, in seconds. Short, because they are removed after the order.
const TTL: u32 = 60;

/// Tolerated clock difference, in seconds (RFC 8945 section 10).
const FUDGE: u16 = 300;

/// MAC algorithms of TSIG.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TsigAlgorithm {
    /// `hmac-sha256`.
    #[default]
    Sha256,
    /// `hmac-sha384`.
    Sha384,
    /// `hmac-sha512`.
    Sha512,
}

impl TsigAlgorithm {
    fn parts(self) -> (tsig::TsigAlgorithm, hmac::Algorithm) {
        match self {
            Self::Sha256 => (tsig::TsigAlgorithm::HmacSha256, hmac::HMAC_SHA256),
            Self::Sha384 => (tsig::TsigAlgorithm::HmacSha384, hmac::HMAC_SHA384),
            Self::Sha512 => (tsig::TsigAlgorithm::HmacSha512, hmac::HMAC_SHA512),
        }
    }
}

/// Operation on a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Add,
    Remove,
}

/// Builds a signed update of `zone`.
///
/// # Errors
///
/// The reason, if the record is outside the zone or a name is invalid.
pub(super) fn change(
    kind: Change,
    record: &Txt,
    zone: &str,
    key: &TsigKey,
    now: u64,
) -> Result<Vec<u8>, String> {
    let (owner, zone) = (name(&record.name)?, name(zone)?);
    if !zone.zone_of(&owner) {
        return Err(format!("{owner} is not in the zone {zone}"));
    }
    let text = RData::TXT(TXT::new(vec![record.value.clone()]));
    let rrset = RecordSet::from(Record::from_rdata(owner, TTL, text));
    let message = match kind {
        Change::Add => update_message::append(rrset, zone, false, false),
        Change::Remove => update_message::delete_by_rdata(rrset, zone, false),
    };
    signed(&message, key, now).map_err(|error| error.to_string())
}

/// Builds the query for the `SOA` record of `zone`.
pub(super) fn question(zone: &str) -> Result<Vec<u8>, String> {
    let mut message = Message::query();
    message.add_query(Query::query(name(zone)?, RecordType::SOA));
    message.to_vec().map_err(|error| error.to_string())
}

/// RFC 8945 section 5.1: the TSIG record is the last of the additional section and not covered by the signature.
fn signed(message: &Message, key: &TsigKey, now: u64) -> Result<Vec<u8>, hickory_proto::ProtoError> {
    let owner = name(&key.name).map_err(hickory_proto::ProtoError::from)?;
    let (algorithm, hash) = key.algorithm.parts();
    let stub = TSIG::new(algorithm, now, FUDGE, Vec::new(), message.id, None, Vec::new());
    let mac = hmac::sign(&hmac::Key::new(hash, &key.secret), &message_tbs(message, &stub, &owner)?);
    let record = make_tsig_record(owner, stub.set_mac(mac.as_ref().to_vec()));
    let mut bytes = message.to_vec()?;
    let mut signature = Vec::new();
    record.emit(&mut BinEncoder::new(&mut signature))?;
    bytes.append(&mut signature);
    // RFC 1035 section 4.1.1: ARCOUNT, now including the TSIG record.
    let count = u16::from_be_bytes([bytes[10], bytes[11]]) + 1;
    bytes[10..12].copy_from_slice(&count.to_be_bytes());
    Ok(bytes)
}

fn name(text: &str) -> Result<Name, String> {
    let mut name = Name::from_ascii(text).map_err(|error| format!("{text:?} is no name: {error}"))?;
    name.set_fqdn(true);
    Ok(name)
}

/// A reply of the server.
#[derive(Debug)]
pub(super) struct Reply(Message);

impl Reply {
    /// Parses the reply to `asked`.
    pub(super) fn read(asked: &[u8], reply: &[u8]) -> Result<Self, String> {
        // RFC 1035 section 4.1.1: a header has 12 bytes, and the reply repeats the ID of the query.
        if reply.len() < 12 || reply[..2] != asked[..2] {
            return Err("the reply does not match the query".to_owned());
        }
        Message::from_vec(reply).map(Self).map_err(|error| format!("cannot parse the reply: {error}"))
    }

    pub(super) fn is_done(&self) -> bool {
        self.0.response_code == ResponseCode::NoError
    }

    /// The response code, with a probable cause.
    pub(super) fn refusal(&self) -> String {
        let hint = match self.0.response_code {
            ResponseCode::NotAuth => {
                "; the key, its algorithm or the clock differ from the server's, or it has no such zone"
            }
            ResponseCode::Refused => "; the key may not change this name",
            _ => "",
        };
        format!("{}{hint}", self.0.response_code)
    }

    /// Returns whether the server is authoritative for the `SOA` record of `zone` itself.
    pub(super) fn is_apex_of(&self, zone: &str) -> bool {
        let Ok(zone) = name(zone) else { return false };
        self.is_done()
            && self
                .0
                .answers
                .iter()
                .any(|answer| answer.record_type() == RecordType::SOA && answer.name == zone)
    }
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;

    fn key() -> TsigKey {
        TsigKey {
            name: "update-key".to_owned(),
            algorithm: TsigAlgorithm::Sha256,
            secret: Zeroizing::new(vec![7; 32]),
        }
    }

    #[test]
    fn an_update_names_zone_and_record_and_is_signed_last() {
        let record = Txt::proving("*.a.test", "value".to_owned());
        for kind in [Change::Add, Change::Remove] {
            let bytes = change(kind, &record, "a.test", &key(), 1_700_000_000).unwrap();
            let message = Message::from_vec(&bytes).unwrap();
            assert_eq!(message.queries[0].name().to_string(), "a.test.");
            assert_eq!(message.authorities[0].name.to_string(), "_acme-challenge.a.test.");
            assert_eq!(bytes[10..12], [0, 1], "one additional record");
            assert!(bytes.windows(12).any(|part| part == b"\x0aupdate-key\x00"), "signed with the key");
        }
        assert!(change(Change::Add, &record, "b.test", &key(), 0).unwrap_err().contains("not in the zone"));
    }

    #[test]
    fn replies_to_other_questions_and_garbage_are_refused() {
        let asked = question("a.test").unwrap();
        assert!(Reply::read(&asked, &[]).is_err());
        assert!(Reply::read(&asked, &[asked[0], asked[1] ^ 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
        let garbage = [&asked[..2], &[0xff; 40]].concat();
        assert!(Reply::read(&asked, &garbage).is_err());
    }
}
