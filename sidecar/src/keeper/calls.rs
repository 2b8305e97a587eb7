//! The system calls that a listener is asked about, and what they say.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::process::Pid;

use super::proc::Proc;
use super::sighting::{Address, File, FileAct, MAX_TEXT_BYTES, Network, NetworkAct, Outcome, Wanted};
use crate::isolation::seccomp::{Asked, notifying};
use crate::sys::memory::read_other;
use crate::sys::notification::Call;
use crate::sys::seccomp::Instruction;

/// The end of a path at most (`PATH_MAX`), which leaves room for another in one sighting.
const MAX_PATH_BYTES: usize = MAX_TEXT_BYTES / 2;

/// What is looked at of a socket address.
const MAX_ADDRESS_BYTES: usize = 128;

/// What memory comes in, at least.
const PAGE: usize = 4096;

/// What a call is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It executes a program.
    Execute,
    /// It ends its process, with this code.
    Exit(u8),
    /// Paths, by their arguments.
    File(FileAct, Path, Option<Path>, Flags),
    /// An address, by its arguments.
    Network(NetworkAct, Option<Sockaddr>),
}

/// Where a path is: its folder's descriptor, if it may be relative to one, and the path itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Path {
    folder: Option<u8>,
    text: u8,
}

/// Where the flags of an open are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flags {
    None,
    In(u8),
    /// `struct open_how`.
    How(u8),
    Always(i32),
}

/// Where an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sockaddr {
    /// The argument, and that of its length.
    In(u8, u8),
    /// In a `struct msghdr`, which begins with both.
    Message(u8),
}

const fn path(text: u8) -> Path {
    Path { folder: None, text }
}

const fn path_at(folder: u8, text: u8) -> Path {
    Path { folder: Some(folder), text }
}

const PROCESS: [(libc::c_long, Kind); 3] = [
    (libc::SYS_execve, Kind::Execute),
    (libc::SYS_execveat, Kind::Execute),
    (libc::SYS_exit_group, Kind::Exit(0)),
];

const FILE: [(libc::c_long, Kind); 9] = [
    (libc::SYS_openat, Kind::File(FileAct::Open, path_at(0, 1), None, Flags::In(2))),
    (libc::SYS_openat2, Kind::File(FileAct::Open, path_at(0, 1), None, Flags::How(2))),
    (libc::SYS_unlinkat, Kind::File(FileAct::Unlink, path_at(0, 1), None, Flags::In(2))),
    (libc::SYS_renameat, Kind::File(FileAct::Rename, path_at(0, 1), Some(path_at(2, 3)), Flags::None)),
    (libc::SYS_renameat2, Kind::File(FileAct::Rename, path_at(0, 1), Some(path_at(2, 3)), Flags::None)),
    (libc::SYS_mkdirat, Kind::File(FileAct::MakeFolder, path_at(0, 1), None, Flags::None)),
    (libc::SYS_linkat, Kind::File(FileAct::Link, path_at(0, 1), Some(path_at(2, 3)), Flags::None)),
    (libc::SYS_symlinkat, Kind::File(FileAct::Symlink, path_at(1, 2), Some(path(0)), Flags::None)),
    (libc::SYS_truncate, Kind::File(FileAct::Truncate, path(0), None, Flags::None)),
];

/// Those that newer machines do without.
#[cfg(target_arch = "x86_64")]
const OLD_FILE: [(libc::c_long, Kind); 8] = [
    (libc::SYS_open, Kind::File(FileAct::Open, path(0), None, Flags::In(1))),
    (
        libc::SYS_creat,
        Kind::File(
            FileAct::Open,
            path(0),
            None,
            Flags::Always(libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC),
        ),
    ),
    (libc::SYS_unlink, Kind::File(FileAct::Unlink, path(0), None, Flags::None)),
    (libc::SYS_rename, Kind::File(FileAct::Rename, path(0), Some(path(1)), Flags::None)),
    (libc::SYS_mkdir, Kind::File(FileAct::MakeFolder, path(0), None, Flags::None)),
    (libc::SYS_rmdir, Kind::File(FileAct::RemoveFolder, path(0), None, Flags::None)),
    (libc::SYS_link, Kind::File(FileAct::Link, path(0), Some(path(1)), Flags::None)),
    (libc::SYS_symlink, Kind::File(FileAct::Symlink, path(1), Some(path(0)), Flags::None)),
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_FILE: [(libc::c_long, Kind); 0] = [];

const NETWORK: [(libc::c_long, Kind); 6] = [
    (libc::SYS_connect, Kind::Network(NetworkAct::Connect, Some(Sockaddr::In(1, 2)))),
    (libc::SYS_bind, Kind::Network(NetworkAct::Bind, Some(Sockaddr::In(1, 2)))),
    (libc::SYS_listen, Kind::Network(NetworkAct::Listen, None)),
    (libc::SYS_sendto, Kind::Network(NetworkAct::Send, Some(Sockaddr::In(4, 5)))),
    (libc::SYS_sendmsg, Kind::Network(NetworkAct::Send, Some(Sockaddr::Message(1)))),
    (libc::SYS_sendmmsg, Kind::Network(NetworkAct::Send, Some(Sockaddr::Message(1)))),
];

/// Would do all of it without a call.
const ABSENT: [libc::c_long; 1] = [libc::SYS_io_uring_setup];

fn calls(wanted: Wanted) -> impl Iterator<Item = &'static (libc::c_long, Kind)> {
    let of = |wanted: bool, calls: &'static [(libc::c_long, Kind)]| if wanted { calls } else { &[] };
    of(wanted.process, &PROCESS)
        .iter()
        .chain(of(wanted.file, &FILE))
        .chain(of(wanted.file, &OLD_FILE))
        .chain(of(wanted.network, &NETWORK))
}

/// The program that has a listener asked about what is wanted.
pub(super) fn program(wanted: Wanted) -> Vec<Instruction> {
    let asked: Vec<Asked> = calls(wanted)
        .map(|&(number, kind)| match kind {
            // Without an address nothing new is said: the socket is connected.
            Kind::Network(_, Some(Sockaddr::In(pointer, _))) => Asked { number, pointer: Some(pointer) },
            _ => Asked { number, pointer: None },
        })
        .collect();
    let absent: &[libc::c_long] = if wanted.file || wanted.network { &ABSENT } else { &[] };
    notifying(&asked, absent).into_iter().map(Instruction::from).collect()
}

/// What a call is about.
pub(super) fn kind(call: &Call) -> Option<Kind> {
    let all = Wanted { process: true, file: true, network: true };
    let (_, kind) = calls(all).find(|(number, _)| *number == call.number)?;
    Some(match kind {
        Kind::Exit(_) => Kind::Exit(call.arguments[0].to_le_bytes()[0]),
        kind => *kind,
    })
}

/// Reads what a call says, from the memory of the thread that waits to make it.
pub(super) struct Reader<'a> {
    pub(super) proc: &'a Proc,
    pub(super) thread: Pid,
    pub(super) call: &'a Call,
}

impl Reader<'_> {
    pub(super) fn file(&self, act: FileAct, path: Path, to: Option<Path>, flags: Flags) -> Option<File> {
        let flags = match flags {
            Flags::None => 0,
            Flags::In(argument) => self.low(argument),
            Flags::How(argument) => self.word(self.argument(argument))?,
            Flags::Always(flags) => flags.cast_unsigned(),
        };
        let removes_folder = act == FileAct::Unlink && flags & libc::AT_REMOVEDIR.cast_unsigned() != 0;
        let path = self.path(path)?;
        let to = match to {
            // What a symbolic link says stays as it is.
            Some(to) if act == FileAct::Symlink => Some(self.text(self.argument(to.text))?),
            Some(to) => Some(self.path(to)?),
            None => None,
        };
        Some(File {
            act: if removes_folder { FileAct::RemoveFolder } else { act },
            path,
            to,
            flags: if act == FileAct::Open { flags } else { 0 },
            outcome: Outcome::Attempt,
        })
    }

    pub(super) fn network(&self, act: NetworkAct, at: Option<Sockaddr>) -> Option<Network> {
        let address = match at {
            None => None,
            Some(Sockaddr::In(pointer, length)) => {
                Some(self.address(self.argument(pointer), self.low(length))?)
            }
            Some(Sockaddr::Message(pointer)) => {
                let message = self.argument(pointer);
                let pointer = u64::from(self.word(message)?) | u64::from(self.word(message + 4)?) << 32;
                if pointer == 0 {
                    return None;
                }
                Some(self.address(pointer, self.word(message + 8)?)?)
            }
        };
        Some(Network { act, address })
    }

    /// What is to be executed.
    pub(super) fn program(&self) -> Vec<u8> {
        let argument = u8::from(self.call.number == libc::SYS_execveat);
        self.text(self.argument(argument)).unwrap_or_default()
    }

    /// Absolute, as far as the kernel tells where it is relative to.
    fn path(&self, Path { folder, text }: Path) -> Option<Vec<u8>> {
        let text = self.text(self.argument(text))?;
        if text.starts_with(b"/") {
            return Some(text);
        }
        let folder = folder.map_or(libc::AT_FDCWD, |argument| self.low(argument).cast_signed());
        let link = if folder == libc::AT_FDCWD { "cwd".to_owned() } else { format!("fd/{folder}") };
        let Some(mut path) = self.proc.link(self.thread, &link).filter(|path| path.starts_with(b"/")) else {
            return Some(text);
        };
        if !text.is_empty() {
            path.extend_from_slice(if path == b"/" { b"" } else { b"/" });
            path.extend_from_slice(&text);
        }
        path.truncate(MAX_PATH_BYTES);
        Some(path)
    }

    fn address(&self, pointer: u64, length: u32) -> Option<Address> {
        let mut buffer = [0; MAX_ADDRESS_BYTES];
        let length = usize::try_from(length).unwrap_or(0).min(MAX_ADDRESS_BYTES);
        let read = read_other(self.thread, pointer, &mut buffer[..length]).ok()?;
        address(&buffer[..read])
    }

    /// Up to its NUL.
    fn text(&self, pointer: u64) -> Option<Vec<u8>> {
        let (mut text, mut buffer) = (Vec::new(), [0; PAGE]);
        while text.len() < MAX_PATH_BYTES {
            let at = pointer.checked_add(text.len() as u64)?;
            // Memory behind its end may not be there: no piece reaches beyond a page.
            let left = PAGE - usize::try_from(at % PAGE as u64).expect("it is less than a page");
            let piece = &mut buffer[..left];
            let read = read_other(self.thread, at, piece).ok().filter(|read| *read > 0)?;
            match piece[..read].iter().position(|byte| *byte == 0) {
                Some(end) => {
                    text.extend_from_slice(&piece[..end]);
                    break;
                }
                None => text.extend_from_slice(&piece[..read]),
            }
        }
        text.truncate(MAX_PATH_BYTES);
        Some(text)
    }

    fn word(&self, pointer: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        let read = read_other(self.thread, pointer, &mut bytes).ok()?;
        (read == bytes.len()).then(|| u32::from_ne_bytes(bytes))
    }

    fn argument(&self, number: u8) -> u64 {
        self.call.arguments[usize::from(number)]
    }

    /// What the kernel sees of an `int`.
    fn low(&self, number: u8) -> u32 {
        let [low @ .., _, _, _, _] = self.argument(number).to_le_bytes();
        u32::from_le_bytes(low)
    }
}

/// A socket address (`sockaddr(3type)`).
fn address(bytes: &[u8]) -> Option<Address> {
    let (family, rest) = bytes.split_first_chunk()?;
    let family = u16::from_ne_bytes(*family);
    let port = |rest: &[u8]| Some(u16::from_be_bytes(*rest.first_chunk()?));
    match i32::from(family) {
        libc::AF_INET => {
            let ip: [u8; 4] = *rest.get(2..)?.first_chunk()?;
            Some(Address::Inet(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(ip)), port(rest)?)))
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = *rest.get(6..)?.first_chunk()?;
            Some(Address::Inet(SocketAddr::new(IpAddr::V6(Ipv6Addr::from(ip)), port(rest)?)))
        }
        libc::AF_UNIX => {
            let end = rest.iter().skip(1).position(|byte| *byte == 0).map_or(rest.len(), |end| end + 1);
            let path = if rest.first() == Some(&0) { rest } else { &rest[..end] };
            Some(Address::Unix(path.to_vec()))
        }
        _ => Some(Address::Other(family)),
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, address};

    #[test]
    fn addresses_are_read_as_the_kernel_does() {
        let inet = [2, 0, 0x1f, 0x90, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(address(&inet), Some(Address::Inet("127.0.0.1:8080".parse().unwrap())));
        let mut inet6 = [0; 28];
        (inet6[0], inet6[3], inet6[23]) = (10, 80, 1);
        assert_eq!(address(&inet6), Some(Address::Inet("[::1]:80".parse().unwrap())));
        assert_eq!(address(b"\x01\0/run/x\0rest"), Some(Address::Unix(b"/run/x".to_vec())));
        assert_eq!(address(b"\x01\0\0name"), Some(Address::Unix(b"\0name".to_vec())));
        assert_eq!(address(b"\x01\0"), Some(Address::Unix(Vec::new())));
        assert_eq!(address(b"\x10\0\0\0"), Some(Address::Other(16)));
        for cut in [&inet[..7], &inet6[..23], &[2], &[]] {
            assert_eq!(address(cut), None);
        }
    }
}
