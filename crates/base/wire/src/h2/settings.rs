//! `SETTINGS` of the peer (RFC 9113 section 6.5).

use super::frame::{LARGEST_WINDOW, Reason, WriteFrames, flag, kind};
use super::hpack::Encoder;

/// Identifiers of settings.
pub mod id {
    /// Bytes of the table that header blocks may refer to.
    pub const HEADER_TABLE_SIZE: u16 = 1;
    /// Whether pushes may be sent.
    pub const ENABLE_PUSH: u16 = 2;
    /// Maximum number of open streams, of those that the receiver of `SETTINGS` opens.
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    /// The window of new streams.
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    /// Bytes of a frame's payload.
    pub const MAX_FRAME_SIZE: u16 = 5;
    /// Bytes of a head.
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
    /// Extended `CONNECT` is allowed (RFC 8441 section 3).
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;
    /// Priorities by RFC 7540 are of no use (RFC 9218 section 2.1).
    pub const NO_RFC7540_PRIORITIES: u16 = 9;
}

/// The window that a stream has before any setting, and a connection (RFC 9113 section 6.9.2).
pub const DEFAULT_WINDOW: u32 = 65_535;

/// The least value of `MAX_FRAME_SIZE`, and its default.
pub const DEFAULT_FRAME: u32 = 16_384;

/// Settings of the peer that concern frames sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// Bytes of its HPACK table: `HEADER_TABLE_SIZE`.
    pub header_table: u32,
    /// The window of new streams.
    pub initial_window: u32,
    /// Maximum number of concurrent streams opened by this side: `MAX_CONCURRENT_STREAMS`.
    pub max_streams: u32,
    /// Extended `CONNECT` is allowed.
    pub connect_protocol: bool,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self {
            header_table: 4096,
            initial_window: DEFAULT_WINDOW,
            max_streams: u32::MAX,
            connect_protocol: false,
        }
    }
}

impl PeerSettings {
    /// Applies the payload of a `SETTINGS` frame. Unknown settings are ignored, and the maximum frame size is only
    /// checked. Returns the smallest size of the HPACK table among the settings; the encoder must be resized to this
    /// size before the last one (RFC 7541 section 4.2).
    pub fn apply(&mut self, payload: &[u8]) -> Result<u32, Reason> {
        let mut least_table = u32::MAX;
        let (settings, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(Reason::FRAME_SIZE_ERROR);
        }
        for &[i0, i1, v0, v1, v2, v3] in settings {
            let value = u32::from_be_bytes([v0, v1, v2, v3]);
            match u16::from_be_bytes([i0, i1]) {
                id::HEADER_TABLE_SIZE => {
                    self.header_table = value;
                    least_table = least_table.min(value);
                }
                id::ENABLE_PUSH | id::NO_RFC7540_PRIORITIES | id::ENABLE_CONNECT_PROTOCOL if value > 1 => {
                    return Err(Reason::PROTOCOL_ERROR);
                }
                // RFC 8441 section 3: what was offered stays so.
                id::ENABLE_CONNECT_PROTOCOL if value == 0 && self.connect_protocol => {
                    return Err(Reason::PROTOCOL_ERROR);
                }
                id::ENABLE_CONNECT_PROTOCOL => self.connect_protocol = value == 1,
                id::MAX_CONCURRENT_STREAMS => self.max_streams = value,
                // RFC 9113 section 6.5.2: such a window is a flow control error, unlike other values out of
                // range.
                id::INITIAL_WINDOW_SIZE if value > LARGEST_WINDOW => return Err(Reason::FLOW_CONTROL_ERROR),
                id::INITIAL_WINDOW_SIZE => self.initial_window = value,
                id::MAX_FRAME_SIZE if !(DEFAULT_FRAME..1 << 24).contains(&value) => {
                    return Err(Reason::PROTOCOL_ERROR);
                }
                _ => {}
            }
        }
        Ok(least_table.min(self.header_table))
    }

    /// [`PeerSettings::apply`], then resizes the encoder's table and writes the acknowledgement. Returns the change of
    /// `initial_window`, which applies to all open streams (RFC 9113 section 6.9.2).
    pub fn apply_and_acknowledge(
        &mut self,
        payload: &[u8],
        encoder: &mut Encoder,
        out: &mut Vec<u8>,
    ) -> Result<i64, Reason> {
        let before = self.initial_window;
        let least_table = self.apply(payload)?;
        // Both sizes in order, although only the last one stays: the smallest one decides which entries the
        // peer has evicted.
        encoder.resize(least_table as usize);
        encoder.resize(self.header_table as usize);
        out.frame(kind::SETTINGS, flag::ACK, 0, &[]);
        Ok(i64::from(self.initial_window) - i64::from(before))
    }
}

/// The payload of a frame with these settings.
pub fn payload(settings: &[(u16, u32)]) -> Vec<u8> {
    settings.iter().flat_map(|(id, value)| id.to_be_bytes().into_iter().chain(value.to_be_bytes())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_were_written_and_the_last_of_two_holds() {
        let mut settings = PeerSettings::default();
        let sent = payload(&[
            (id::INITIAL_WINDOW_SIZE, 5),
            (id::INITIAL_WINDOW_SIZE, LARGEST_WINDOW),
            (id::MAX_FRAME_SIZE, 1 << 20),
            (id::MAX_CONCURRENT_STREAMS, 7),
            (id::ENABLE_CONNECT_PROTOCOL, 1),
            (id::HEADER_TABLE_SIZE, 0),
            (id::HEADER_TABLE_SIZE, 100),
            (0x4242, u32::MAX),
        ]);
        assert_eq!(settings.apply(&sent), Ok(0), "the least table");
        let expected = PeerSettings {
            header_table: 100,
            initial_window: LARGEST_WINDOW,
            max_streams: 7,
            connect_protocol: true,
        };
        assert_eq!(settings, expected);
        assert_eq!(settings.apply(&[]), Ok(100));
    }

    #[test]
    fn wrong_values_are_refused_with_their_reasons() {
        for (id, value, reason) in [
            (id::ENABLE_PUSH, 2, Reason::PROTOCOL_ERROR),
            (id::ENABLE_CONNECT_PROTOCOL, 2, Reason::PROTOCOL_ERROR),
            (id::INITIAL_WINDOW_SIZE, 1 << 31, Reason::FLOW_CONTROL_ERROR),
            (id::MAX_FRAME_SIZE, 16_383, Reason::PROTOCOL_ERROR),
            (id::MAX_FRAME_SIZE, 1 << 24, Reason::PROTOCOL_ERROR),
        ] {
            assert_eq!(
                PeerSettings::default().apply(&payload(&[(id, value)])),
                Err(reason),
                "{id} = {value}"
            );
        }
        assert_eq!(PeerSettings::default().apply(&[0; 5]), Err(Reason::FRAME_SIZE_ERROR));
    }
}
