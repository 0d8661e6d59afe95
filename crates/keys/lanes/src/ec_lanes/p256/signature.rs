//! Signatures as numbers, and their encoding.

/// An ECDSA signature with P-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// `r`, big-endian.
    pub r: [u8; 32],
    /// `s`, big-endian.
    pub s: [u8; 32],
}

impl Signature {
    /// The DER encoding that TLS uses.
    pub fn to_der(self) -> Vec<u8> {
        // RFC 3279 section 2.2.3.
        let mut der = vec![0x30, 0];
        for number in [&self.r, &self.s] {
            let zeros = number.iter().take_while(|byte| **byte == 0).count().min(31);
            let significant = &number[zeros..];
            // An integer is signed: a highest bit that is set wants a zero before it.
            let zero = significant[0] >> 7;
            der.extend([0x02, significant.len() as u8 + zero]);
            der.extend(std::iter::repeat_n(0, usize::from(zero)));
            der.extend(significant);
        }
        der[1] = (der.len() - 2) as u8;
        der
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn der_is_the_shortest_form() {
        let number = |first: usize, byte: u8| {
            let mut number = [0; 32];
            number[first..].fill(byte);
            number
        };
        let der = Signature { r: number(0, 0x80), s: number(30, 0x7f) }.to_der();
        assert_eq!(der[..6], [0x30, 33 + 2 + 4, 0x02, 33, 0, 0x80]);
        assert_eq!(der[37..], [0x02, 2, 0x7f, 0x7f]);
    }
}
