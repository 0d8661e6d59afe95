//! Errors of captures.

use std::io;

/// The reason why a capture cannot be analysed. Earlier packets have been analysed already.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The input cannot be read, or its compression is damaged.
    #[error("cannot read the capture")]
    Unreadable(#[source] io::Error),
    /// The input has neither the format pcap nor pcapng.
    #[error("no capture: the input is neither pcap nor pcapng; record one with tcpdump -w FILE")]
    NotCapture,
    /// A variant of pcap with other headers than those of libpcap.
    #[error(
        "the variant {magic:#010x} of the format pcap is not supported: convert the file with editcap -F pcapng FILE CONVERTED"
    )]
    UnsupportedVariant {
        /// The first four bytes, as a number.
        magic: u32,
    },
    /// A packet or block declares a length beyond the limit.
    #[error(
        "damaged capture: a block of {length} bytes at offset {offset}, more than the limit of {limit}; \
         repair the file, for example with pcapfix"
    )]
    TooLong {
        /// Offset of the block in the uncompressed input.
        offset: u64,
        /// Declared length in bytes.
        length: u64,
        /// Limit in bytes.
        limit: usize,
    },
    /// A header or block violates the format.
    #[error("damaged capture at offset {offset}: {fault}; repair the file, for example with pcapfix")]
    Malformed {
        /// Offset of the block in the uncompressed input.
        offset: u64,
        /// The violated rule.
        fault: &'static str,
    },
    /// The first line of a file is no record of a gateway or a load generator.
    #[error(
        "{name}: the first line is no record: {fault}; set access_log.format = \"json\", or use brisk bench --records"
    )]
    NoRecord {
        /// Name of the file.
        name: String,
        /// The fault.
        fault: String,
    },
    /// The right `CAP_NET_RAW` to record is missing.
    #[error(
        "recording needs the right CAP_NET_RAW: run it as root, or read another recording: sudo tcpdump -w - | brisk capture -"
    )]
    Forbidden,
    /// There is no such interface.
    #[error("no interface {name}: there are {names}")]
    NoInterface {
        /// Name.
        name: String,
        /// Names of the interfaces of this machine.
        names: String,
    },
    /// The link layer of an interface is not supported.
    #[error("interface {name} has the unsupported type {number}: record with tcpdump -w FILE")]
    InterfaceType {
        /// Name.
        name: String,
        /// `ARPHRD_*` of the interface.
        number: u16,
    },
    /// The [`Output`](crate::Output) of the results failed.
    #[error("cannot write the results")]
    Unwritable(#[source] io::Error),
}
