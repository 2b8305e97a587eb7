//! Sockets, the host's network, and IPC objects.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use super::{Attempt, Got, done, tries};
use crate::facts::facts;
use crate::hold::queue_name;
use crate::sys::{path, syscall};

const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
const LIMIT: Duration = Duration::from_secs(10);

/// A socket of a family. Its control would have the host load a module, so the allow list is controlled by `packet`.
macro_rules! family {
    ($id:literal, $family:expr) => {
        tries!($id, SYS_socket, $family, libc::SOCK_DGRAM, 0).alone()
    };
}

macro_rules! netlink {
    ($id:literal, $protocol:expr) => {
        tries!($id, SYS_socket, libc::AF_NETLINK, libc::SOCK_RAW, $protocol)
    };
}

pub(super) fn all() -> Vec<Attempt> {
    vec![
        tries!("E104 packet", SYS_socket, libc::AF_PACKET, libc::SOCK_RAW, 0),
        tries!("E104 raw", SYS_socket, libc::AF_INET, libc::SOCK_RAW, 1),
        tries!("E104 raw6", SYS_socket, libc::AF_INET6, libc::SOCK_RAW, 58),
        tries!("E104 upper", SYS_socket, libc::AF_INET, i64::from(libc::SOCK_RAW) | 1 << 32, 1),
        family!("E106 alg", libc::AF_ALG),
        family!("E106 key", libc::AF_KEY),
        family!("E106 xdp", libc::AF_XDP),
        family!("E106 tipc", libc::AF_TIPC),
        family!("E106 can", libc::AF_CAN),
        family!("E106 rds", libc::AF_RDS),
        family!("E106 smc", 43),
        family!("E106 bluetooth", libc::AF_BLUETOOTH),
        family!("E106 vsock", libc::AF_VSOCK),
        netlink!("E107 audit", libc::NETLINK_AUDIT),
        netlink!("E107 kobject", libc::NETLINK_KOBJECT_UEVENT),
        netlink!("E107 netfilter", libc::NETLINK_NETFILTER).alone(),
        netlink!("E107 xfrm", libc::NETLINK_XFRM).alone(),
        netlink!("E107 sock_diag", libc::NETLINK_SOCK_DIAG).alone(),
        netlink!("E107 route", libc::NETLINK_ROUTE).alone(),
        tries!("E107 sctp", SYS_socket, libc::AF_INET, libc::SOCK_STREAM, 132).alone(),
        tries!("E107 mptcp", SYS_socket, libc::AF_INET, libc::SOCK_STREAM, 262).alone(),
        Attempt::new("E109 v4", || listener(Ipv4Addr::LOCALHOST.into(), facts().listeners[0])).on_host(),
        Attempt::new("E109 v6", || listener(Ipv6Addr::LOCALHOST.into(), facts().listeners[1])).on_host(),
        Attempt::new("E110 metadata", || connect(METADATA.into(), 80)),
        Attempt::new("E110 lan", || facts().lan.map_or(Ok("absent".to_owned()), |lan| connect(lan, 9))),
        tries!("E112 shm", SYS_shmget, facts().key, 0, 0).on_host(),
        Attempt::new("E112 mq", || {
            let name = path(&queue_name(facts().key));
            done(syscall!(libc::SYS_mq_open, name.as_c_str(), libc::O_RDONLY, 0, 0))
        })
        .on_host(),
    ]
}

fn listener(address: IpAddr, port: Option<u16>) -> Got {
    port.map_or(Ok("absent".to_owned()), |port| connect(address, port))
}

fn connect(address: IpAddr, port: u16) -> io::Result<String> {
    done(TcpStream::connect_timeout(&SocketAddr::new(address, port), LIMIT))
}
