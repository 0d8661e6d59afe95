//! The hash slots of a cluster (Redis Cluster specification, "Key distribution model").

/// Number of slots.
pub(super) const SLOTS: u16 = 16_384;

/// The slot of `key`. If it contains a non-empty hash tag, from the first `{` to the next `}`, only the tag is hashed.
pub(super) fn slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) % SLOTS
}

fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let start = key.iter().position(|&byte| byte == b'{')? + 1;
    let length = key[start..].iter().position(|&byte| byte == b'}')?;
    (length > 0).then(|| &key[start..start + length])
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            let carry = if crc & 0x8000 == 0 { 0 } else { 0x1021 };
            (crc << 1) ^ carry
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(crc16(b"123456789"), 0x31c3, "the specification's check value");
        // As reported by `CLUSTER KEYSLOT`.
        assert_eq!(slot(b"foo"), 12182);
        assert_eq!(slot(b"{foo}bar"), 12182);
        assert_eq!(slot(b"foo{}"), slot(b"foo{}"));
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot(b"{bar"), crc16(b"{bar") % SLOTS);
    }
}
