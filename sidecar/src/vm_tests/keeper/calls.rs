//! Files and sockets.

use super::watched::{EXACT, Watched, has_python};
use crate::keeper::{Address, FileAct, Network, NetworkAct, Wanted, What};

#[test]
fn what_is_done_to_files_is_seen() {
    for backend in EXACT {
        for process in [true, false] {
            let mut watched = Watched::seeing(Wanted { process, file: true, network: false }, *backend);
            let seen = watched.sh(
                "cd /tmp; echo hi > a; cat a; mv a b; ln b c; ln -s b d; mkdir e; rmdir e; truncate -s 0 b; rm b c d; cat none",
            );
            let w = libc::O_WRONLY | libc::O_CREAT;
            let expected = [
                (FileAct::Open, "/tmp/a", None, w),
                (FileAct::Open, "/tmp/a", None, 0),
                (FileAct::Rename, "/tmp/a", Some("/tmp/b"), 0),
                (FileAct::Link, "/tmp/b", Some("/tmp/c"), 0),
                (FileAct::Symlink, "/tmp/d", Some("b"), 0),
                (FileAct::MakeFolder, "/tmp/e", None, 0),
                (FileAct::RemoveFolder, "/tmp/e", None, 0),
                (FileAct::Open, "/tmp/b", None, w),
                (FileAct::Unlink, "/tmp/b", None, 0),
                (FileAct::Unlink, "/tmp/c", None, 0),
                (FileAct::Unlink, "/tmp/d", None, 0),
                (FileAct::Open, "/tmp/none", None, 0),
            ];
            let files = seen
                .acts()
                .filter_map(|(_, what)| if let What::File(file) = what { Some(file) } else { None });
            let files: Vec<_> = files
                .filter(|file| file.path.starts_with(b"/tmp/"))
                .map(|file| {
                    let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
                    let flags = file.flags.cast_signed() & (libc::O_ACCMODE | libc::O_CREAT);
                    (file.act, text(&file.path), file.to.as_ref().map(text), flags)
                })
                .collect();
            let expected =
                expected.map(|(act, path, to, flags)| (act, path.to_owned(), to.map(str::to_owned), flags));
            assert_eq!(files, expected, "{} {process}", backend.name());
            assert_eq!(seen.executed().len(), if process { 10 } else { 0 });
        }
    }
}

#[test]
fn what_is_done_with_sockets_is_seen() {
    let program = "
import os, socket
server = socket.socket()
server.bind(('127.0.0.1', 0))
server.listen()
port = server.getsockname()[1]
if os.fork() == 0:
    client = socket.create_connection(('127.0.0.1', port))
    client.send(b'x')
    datagrams = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    datagrams.sendto(b'x', ('::1', port))
    datagrams.sendmsg([b'x'], [], 0, ('::1', port))
    local = socket.socket(socket.AF_UNIX)
    local.bind('/tmp/socket')
    local = socket.socket(socket.AF_UNIX)
    try:
        local.connect(chr(0) + 'nobody')
    except OSError:
        pass
    os._exit(port % 199)
os.wait()
";
    for backend in EXACT {
        let mut watched = Watched::seeing(Wanted { process: true, file: false, network: true }, *backend);
        if !has_python(&mut watched) {
            return;
        }
        let seen = watched.exec("/usr/bin/python3", &["-c", program]);
        let done: Vec<_> = seen
            .acts()
            .filter_map(
                |(_, what)| if let What::Network(network) = what { Some(network.clone()) } else { None },
            )
            .collect();
        let Some(Address::Inet(server)) = done[2].address.clone() else { panic!("{done:?}") };
        let inet = |ip: &str, port| Some(Address::Inet(format!("{ip}:{port}").parse().unwrap()));
        let unix = |path: &[u8]| Some(Address::Unix(path.to_vec()));
        let expected = [
            (NetworkAct::Bind, inet("127.0.0.1", 0)),
            (NetworkAct::Listen, None),
            (NetworkAct::Connect, inet("127.0.0.1", server.port())),
            (NetworkAct::Send, inet("[::1]", server.port())),
            (NetworkAct::Send, inet("[::1]", server.port())),
            (NetworkAct::Bind, unix(b"/tmp/socket")),
            (NetworkAct::Connect, unix(b"\0nobody")),
        ];
        assert_eq!(done, expected.map(|(act, address)| Network { act, address }), "{}", backend.name());
        assert_eq!(seen.code_sum(), u32::from(server.port() % 199));
    }
}
