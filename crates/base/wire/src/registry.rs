//! TLS code points and their IANA names.
//!
//! Each is the number as it stands on the wire, so that unknown values survive; only the ones that brisk negotiates or
//! meets often have names. <https://www.iana.org/assignments/tls-parameters>

use std::fmt;

/// Defines a code point type: constants, `ALL`, `name`, and `Display` by name.
macro_rules! code_points {
    ($(#[$doc:meta])* $type:ident { $($constant:ident = $value:literal, $name:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(pub u16);

        impl $type {
            $(
                #[doc = concat!("`", $name, "`")]
                pub const $constant: Self = Self($value);
            )+

            /// Every value that has a name here, in the order of definition.
            pub const ALL: &'static [Self] = &[$(Self::$constant),+];

            /// The registered name; `None` for a value that brisk has no name for.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($name),)+
                    _ => None,
                }
            }
        }

        impl fmt::Display for $type {
            /// The name, or the number as `0x1234`. Allocates nothing.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => f.pad(name),
                    None => write!(f, "{:#06x}", self.0),
                }
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($type))
            }
        }

        impl From<u16> for $type {
            fn from(value: u16) -> Self {
                Self(value)
            }
        }

        impl From<$type> for u16 {
            fn from(value: $type) -> Self {
                value.0
            }
        }
    };
}

code_points! {
    /// A protocol version. The version field of the record layer is no protocol version: it contains 1.0 or 1.2 for
    /// every version.
    ProtocolVersion {
        SSL3_0 = 0x0300, "SSL 3.0";
        TLS1_0 = 0x0301, "TLS 1.0";
        TLS1_1 = 0x0302, "TLS 1.1";
        TLS1_2 = 0x0303, "TLS 1.2";
        TLS1_3 = 0x0304, "TLS 1.3";
    }
}

code_points! {
    /// A cipher suite.
    CipherSuite {
        TLS_AES_128_GCM_SHA256 = 0x1301, "TLS_AES_128_GCM_SHA256";
        TLS_AES_256_GCM_SHA384 = 0x1302, "TLS_AES_256_GCM_SHA384";
        TLS_CHACHA20_POLY1305_SHA256 = 0x1303, "TLS_CHACHA20_POLY1305_SHA256";
        TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 = 0xc02b, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
        TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 = 0xc02c, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384";
        TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 = 0xc02f, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
        TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 = 0xc030, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384";
        TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 = 0xcca8, "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256";
        TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 = 0xcca9, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256";
        TLS_EMPTY_RENEGOTIATION_INFO_SCSV = 0x00ff, "TLS_EMPTY_RENEGOTIATION_INFO_SCSV";
        TLS_FALLBACK_SCSV = 0x5600, "TLS_FALLBACK_SCSV";
    }
}

impl CipherSuite {
    /// Whether this is a TLS 1.2 suite with a signature by an ECDSA (or `EdDSA`) key.
    pub const fn is_tls12_ecdsa(self) -> bool {
        matches!(
            self,
            Self::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
                | Self::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
                | Self::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        )
    }

    /// Whether this is a TLS 1.2 suite with a signature by an RSA key.
    pub const fn is_tls12_rsa(self) -> bool {
        matches!(
            self,
            Self::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
                | Self::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
                | Self::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
        )
    }
}

code_points! {
    /// A key exchange group.
    NamedGroup {
        SECP256R1 = 0x0017, "secp256r1";
        SECP384R1 = 0x0018, "secp384r1";
        SECP521R1 = 0x0019, "secp521r1";
        X25519 = 0x001d, "x25519";
        X448 = 0x001e, "x448";
        FFDHE2048 = 0x0100, "ffdhe2048";
        FFDHE3072 = 0x0101, "ffdhe3072";
        MLKEM768 = 0x0201, "MLKEM768";
        SECP256R1MLKEM768 = 0x11eb, "SecP256r1MLKEM768";
        X25519MLKEM768 = 0x11ec, "X25519MLKEM768";
        SECP384R1MLKEM1024 = 0x11ed, "SecP384r1MLKEM1024";
        X25519KYBER768DRAFT00 = 0x6399, "X25519Kyber768Draft00";
    }
}

code_points! {
    /// A signature scheme: algorithm, curve or padding, and hash in one number.
    SignatureScheme {
        RSA_PKCS1_SHA1 = 0x0201, "rsa_pkcs1_sha1";
        ECDSA_SHA1 = 0x0203, "ecdsa_sha1";
        RSA_PKCS1_SHA256 = 0x0401, "rsa_pkcs1_sha256";
        ECDSA_SECP256R1_SHA256 = 0x0403, "ecdsa_secp256r1_sha256";
        RSA_PKCS1_SHA384 = 0x0501, "rsa_pkcs1_sha384";
        ECDSA_SECP384R1_SHA384 = 0x0503, "ecdsa_secp384r1_sha384";
        RSA_PKCS1_SHA512 = 0x0601, "rsa_pkcs1_sha512";
        ECDSA_SECP521R1_SHA512 = 0x0603, "ecdsa_secp521r1_sha512";
        RSA_PSS_RSAE_SHA256 = 0x0804, "rsa_pss_rsae_sha256";
        RSA_PSS_RSAE_SHA384 = 0x0805, "rsa_pss_rsae_sha384";
        RSA_PSS_RSAE_SHA512 = 0x0806, "rsa_pss_rsae_sha512";
        ED25519 = 0x0807, "ed25519";
        ED448 = 0x0808, "ed448";
        RSA_PSS_PSS_SHA256 = 0x0809, "rsa_pss_pss_sha256";
        RSA_PSS_PSS_SHA384 = 0x080a, "rsa_pss_pss_sha384";
        RSA_PSS_PSS_SHA512 = 0x080b, "rsa_pss_pss_sha512";
        ML_DSA_44 = 0x0904, "mldsa44";
        ML_DSA_65 = 0x0905, "mldsa65";
        ML_DSA_87 = 0x0906, "mldsa87";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_display_their_registered_name() {
        assert_eq!(ProtocolVersion(0x0304).to_string(), "TLS 1.3");
        assert_eq!(NamedGroup(0x11ec).to_string(), "X25519MLKEM768");
        assert_eq!(CipherSuite(0x1301).to_string(), "TLS_AES_128_GCM_SHA256");
        assert_eq!(SignatureScheme(0x0403).to_string(), "ecdsa_secp256r1_sha256");
    }

    #[test]
    fn unknown_values_display_their_number() {
        assert_eq!(NamedGroup(0x0a0a).to_string(), "0x0a0a");
        assert_eq!(CipherSuite(7).to_string(), "0x0007");
        assert_eq!(format!("{:?}", ProtocolVersion(0x7f1c)), "ProtocolVersion(0x7f1c)");
        assert_eq!(SignatureScheme(0xffff).name(), None);
    }

    #[test]
    fn no_value_is_defined_twice() {
        fn distinct<T: Ord + Copy>(all: &[T]) -> bool {
            let mut sorted = all.to_vec();
            sorted.sort_unstable();
            sorted.windows(2).all(|pair| pair[0] < pair[1])
        }
        assert!(distinct(ProtocolVersion::ALL));
        assert!(distinct(CipherSuite::ALL));
        assert!(distinct(NamedGroup::ALL));
        assert!(distinct(SignatureScheme::ALL));
    }

    #[test]
    fn the_key_type_of_a_tls12_suite_is_known() {
        assert!(CipherSuite(0xc02b).is_tls12_ecdsa() && !CipherSuite(0xc02b).is_tls12_rsa());
        assert!(CipherSuite(0xcca8).is_tls12_rsa() && !CipherSuite(0xcca8).is_tls12_ecdsa());
        assert!(!CipherSuite::TLS_AES_128_GCM_SHA256.is_tls12_ecdsa());
    }
}
