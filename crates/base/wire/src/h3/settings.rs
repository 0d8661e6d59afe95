//! `SETTINGS` (RFC 9114 section 7.2.4).

use super::error::Code;
use super::varint;

/// Identifiers of settings.
pub mod id {
    /// Maximum size of a field section.
    pub const MAX_FIELD_SECTION_SIZE: u64 = 6;
    /// Whether extended `CONNECT` is permitted (RFC 9220).
    pub const ENABLE_CONNECT_PROTOCOL: u64 = 8;
    /// Whether datagrams are permitted (RFC 9297).
    pub const H3_DATAGRAM: u64 = 0x33;
}

/// Settings of the peer, as far as they concern a side without a dynamic table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerSettings {
    /// Maximum size of a field section that the peer accepts; `None` for no limit.
    pub field_section: Option<u64>,
}

/// Settings of one payload whose repetitions are found.
const REMEMBERED: usize = 16;

impl PeerSettings {
    /// Reads the payload of `SETTINGS`. Unknown settings are ignored.
    pub fn read(payload: &[u8]) -> Result<Self, Code> {
        let mut settings = Self::default();
        let mut known = [None; REMEMBERED];
        let mut rest = payload;
        let mut number = 0;
        while !rest.is_empty() {
            // RFC 9114 section 7.1: a payload that ends within a field is a frame error.
            let (id, after) = varint::split(rest).ok_or(Code::FRAME_ERROR)?;
            let (value, after) = varint::split(after).ok_or(Code::FRAME_ERROR)?;
            rest = after;
            // RFC 9114 section 7.2.4: no identifier occurs twice. Beyond the number that clients use, this is not checked.
            if known.contains(&Some(id)) {
                return Err(Code::SETTINGS_ERROR);
            }
            if let Some(place) = known.get_mut(number) {
                *place = Some(id);
            }
            number += 1;
            settings.apply(id, value)?;
        }
        Ok(settings)
    }

    fn apply(&mut self, id: u64, value: u64) -> Result<(), Code> {
        match id {
            id::MAX_FIELD_SECTION_SIZE => self.field_section = Some(value),
            // RFC 9220 section 3 with RFC 8441 section 3, and RFC 9297 section 2.1.1: 0 or 1.
            id::ENABLE_CONNECT_PROTOCOL | id::H3_DATAGRAM if value > 1 => return Err(Code::SETTINGS_ERROR),
            // RFC 9114 sections 7.2.4.1 and 11.2.2: settings of HTTP/2 without a counterpart, and 0.
            0 | 2..=5 => return Err(Code::SETTINGS_ERROR),
            _ => {}
        }
        Ok(())
    }
}

/// Appends the payload of `SETTINGS` with these identifiers and values.
pub fn write(settings: &[(u64, u64)], out: &mut Vec<u8>) {
    for (id, value) in settings {
        varint::write(*id, out);
        varint::write(*value, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(settings: &[(u64, u64)]) -> Result<PeerSettings, Code> {
        let mut payload = Vec::new();
        write(settings, &mut payload);
        PeerSettings::read(&payload)
    }

    #[test]
    fn known_settings_are_read_and_unknown_ones_ignored() {
        assert_eq!(read(&[]), Ok(PeerSettings::default()));
        let chrome = [(1, 65_536), (6, 262_144), (7, 100), (0x33, 1), (0x1f * 7 + 0x21, 5)];
        assert_eq!(read(&chrome), Ok(PeerSettings { field_section: Some(262_144) }));
    }

    #[test]
    fn settings_of_http_2_are_refused() {
        // RFC 9114 section 7.2.4.1: "their receipt MUST be treated as a connection error of type H3_SETTINGS_ERROR".
        for id in [0, 2, 3, 4, 5] {
            assert_eq!(read(&[(1, 0), (id, 1)]), Err(Code::SETTINGS_ERROR), "{id}");
        }
    }

    #[test]
    fn repeated_settings_and_switches_above_1_are_refused() {
        // RFC 9114 section 7.2.4: "The same setting identifier MUST NOT occur more than once".
        assert_eq!(read(&[(6, 1), (0x21, 0), (6, 1)]), Err(Code::SETTINGS_ERROR));
        assert_eq!(read(&[(0x21, 0), (0x21, 0)]), Err(Code::SETTINGS_ERROR));
        for id in [id::ENABLE_CONNECT_PROTOCOL, id::H3_DATAGRAM] {
            assert_eq!((read(&[(id, 1)]).is_ok(), read(&[(id, 2)])), (true, Err(Code::SETTINGS_ERROR)));
        }
        let many: Vec<_> = (0..100).map(|number| (0x21 + 0x1f * number, 0)).collect();
        assert!(read(&many).is_ok());
    }

    #[test]
    fn payloads_that_end_within_a_setting_are_refused() {
        // RFC 9114 section 7.1: "a frame payload that terminates before the end of the identified fields".
        for payload in [&[6][..], &[0x40], &[6, 0x40], &[6, 1, 7]] {
            assert_eq!(PeerSettings::read(payload), Err(Code::FRAME_ERROR));
        }
    }
}
