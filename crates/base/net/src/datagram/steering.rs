//! The program that selects a socket of a group for each datagram: classic BPF, which requires no privilege.

use std::io;
use std::net::UdpSocket;

use crate::options;

/// Position of the first byte of the connection ID in a packet with a short header (RFC 8999 section 5.2).
const ID_IN_SHORT: u32 = 1;
/// Position of the same byte behind a long header (RFC 8999 section 5.1): after the first byte, the version and the ID's
/// length.
const ID_IN_LONG: u32 = 6;
/// Bit of the first byte that marks a long header.
const LONG_HEADER: u32 = 0x80;
/// The bits of the first byte with the type of a long header, and the type Handshake (RFC 9000 section 17.2.4).
const TYPE: u32 = 0x30;
const HANDSHAKE: u32 = 0x20;

/// The distribution of datagrams among the sockets of a group, by the first byte of the connection ID.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steering {
    /// Number of the sockets of one process.
    pub(super) own: usize,
    /// Number of processes whose sockets are in the group: 1 or 2.
    pub(super) halves: usize,
    /// Whether new connections are for the second process, which has the sockets from `own` on.
    pub(super) is_second: bool,
}

impl Steering {
    /// A group of one process.
    pub(super) fn alone(own: usize) -> Self {
        Self { own, halves: 1, is_second: false }
    }

    /// Attaches [`Self::program`] to the group of this socket. A group of one socket needs none.
    pub(super) fn attach(self, first: &UdpSocket) -> io::Result<()> {
        if self.own * self.halves == 1 {
            return Ok(());
        }
        options::attach_reuse_port_program(first, &mut self.program())
    }

    /// Reads the datagram after its UDP header. An ID in a short header or in a Handshake packet was issued by a server: the
    /// remainder of its first byte is the place of its socket. The ID of other packets may be random, so that only the remainder
    /// within one process counts. A datagram that is too short yields 0, as any failed load does.
    fn program(self) -> [libc::sock_filter; 13] {
        // At most 256 sockets.
        let (own, all) = (self.own as u32, (self.own * self.halves) as u32);
        let start = if self.is_second { own } else { 0 };
        let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let load = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
        let calculate = |operation| libc::BPF_ALU | operation | libc::BPF_K;
        let go = |condition| libc::BPF_JMP | condition | libc::BPF_K;
        [
            instruction(load, 0, 0, 0),
            instruction(go(libc::BPF_JSET), 0, 8, LONG_HEADER),
            instruction(calculate(libc::BPF_AND), 0, 0, TYPE),
            instruction(go(libc::BPF_JEQ), 4, 0, HANDSHAKE),
            // RFC 9000 section 7.2: the ID of an Initial or 0-RTT packet may be the
            // random choice of the client.
            instruction(load, 0, 0, ID_IN_LONG),
            instruction(calculate(libc::BPF_MOD), 0, 0, own),
            instruction(calculate(libc::BPF_ADD), 0, 0, start),
            instruction(libc::BPF_RET | libc::BPF_A, 0, 0, 0),
            instruction(load, 0, 0, ID_IN_LONG),
            instruction(libc::BPF_JMP | libc::BPF_JA, 0, 0, 1),
            instruction(load, 0, 0, ID_IN_SHORT),
            instruction(calculate(libc::BPF_MOD), 0, 0, all),
            instruction(libc::BPF_RET | libc::BPF_A, 0, 0, 0),
        ]
    }
}
