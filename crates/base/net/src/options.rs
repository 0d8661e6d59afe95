//! Socket options that `socket2` does not offer.
//!
//! The only file of this crate with `unsafe` code: calls of `getsockopt` and `setsockopt`.

#![expect(unsafe_code, reason = "system calls without a safe wrapper")]

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, RawFd};

/// Reads `TCP_INFO`. Fields that the running kernel does not know stay zero.
pub(crate) fn tcp_info(socket: &impl AsRawFd) -> io::Result<libc::tcp_info> {
    // SAFETY: `tcp_info` consists of integers only, for which all zeroes is a value.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    let mut length = socklen::<libc::tcp_info>();
    // SAFETY: `info` is a valid buffer of `length` bytes, and the kernel writes no more than `length`.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    check(status).map(|()| info)
}

/// Sets `TCP_FASTOPEN` on a socket that will listen: the maximum number of connections whose handshake is not complete.
pub(crate) fn set_fast_open(socket: &impl AsRawFd, queue: u32) -> io::Result<()> {
    let queue = libc::c_int::try_from(queue).unwrap_or(libc::c_int::MAX);
    set_int(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_FASTOPEN, queue)
}

/// Sets `TCP_FASTOPEN_CONNECT` on a socket that will connect: if a cookie is known, the SYN waits for the first write.
pub(crate) fn set_fast_open_connect(socket: &impl AsRawFd) -> io::Result<()> {
    set_int(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1)
}

/// Sets `IP_BIND_ADDRESS_NO_PORT` on a socket that will be bound to port 0, so that the port is chosen when it
/// connects. Also for IPv6.
pub(crate) fn set_bind_address_no_port(socket: &impl AsRawFd) -> io::Result<()> {
    set_int(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)
}

/// Sets `TCP_QUICKACK` to 2: sends an acknowledgement that is due, and, because the number is even, leaves later ones
/// delayed.
pub(crate) fn acknowledge(socket: &impl AsRawFd) -> io::Result<()> {
    set_int(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_QUICKACK, 2)
}

/// Sets `SO_ATTACH_REUSEPORT_CBPF` on a socket of a group: a classic BPF program that returns the index of the socket for a
/// datagram. It applies to the whole group.
pub(crate) fn attach_reuse_port_program(
    socket: &impl AsRawFd,
    program: &mut [libc::sock_filter],
) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    // SAFETY: the pointer and the length describe `program`, whose instructions outlive the call. The kernel copies them.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            socklen::<libc::sock_fprog>(),
        )
    };
    check(status)
}

fn set_int(socket: RawFd, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which outlives the call.
    let status = unsafe {
        libc::setsockopt(socket, level, option, (&raw const value).cast(), socklen::<libc::c_int>())
    };
    check(status)
}

fn socklen<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).expect("a socket option is a few bytes long")
}

fn check(status: libc::c_int) -> io::Result<()> {
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
