//! What a keeper sees of trees of real processes, by each means that can be had here.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

use agentvm_wire::id::ProcessId;
use agentvm_wire::vm::{Isolation, VmConfig};
use rustix::process::Signal;

use super::harness::{Vm, first_line};
use crate::init::{Event, StartSpec, Stdio};
use crate::keeper::{
    Address, Backend, Executed, FileAct, Keeper, Key, Network, NetworkAct, Orders, Sighting, Sightings,
    Wanted, What,
};

/// Means that miss nothing.
const EXACT: &[Backend] = &[Backend::Ptrace, Backend::Notification];

/// Says that it runs, and does so for a while.
const LONG: &str =
    "echo on; i=0; while [ $i -lt 200 ]; do /bin/true || exit 1; (:); i=$((i+1)); done; echo end; exit 6";

/// A VM with a keeper.
struct Watched {
    vm: Vm,
    keeper: Keeper,
    sightings: Sightings,
}

/// What was seen of one tree, from its beginning to its end.
#[derive(Debug, Default)]
struct Seen {
    all: Vec<Sighting>,
}

impl Watched {
    fn by(backend: Backend) -> Self {
        Self::seeing(Wanted { process: true, ..Wanted::default() }, backend)
    }

    fn seeing(wanted: Wanted, backend: Backend) -> Self {
        Self::with(&Orders { wanted, ladder: vec![backend], require_exact: false })
    }

    fn with(orders: &Orders) -> Self {
        Self::of(Vm::new(), orders)
    }

    fn of(vm: Vm, orders: &Orders) -> Self {
        let (keeper, sightings) = vm.run(async { Keeper::start(orders) }).unwrap();
        Self { vm, keeper, sightings }
    }

    /// Starts a watched process.
    fn start(&mut self, command: &str, args: &[&str], stdout: Stdio) -> ProcessId {
        let id = self.vm.id();
        let watcher = Some(self.keeper.expect(id).unwrap());
        let spec = StartSpec { stdout, watcher, ..self.vm.spec(command, args) };
        self.vm.booted.commands.start(id, spec);
        id
    }

    fn next(&mut self) -> Vec<Sighting> {
        let sightings = &mut self.sightings;
        self.vm.run(sightings.next()).unwrap_or_else(|| panic!("the keeper lives: {sightings:?}"))
    }

    /// Everything up to the end of a tree.
    fn follow(&mut self, tree: ProcessId) -> Seen {
        let mut seen = Seen::default();
        self.follow_on(tree, &mut seen);
        seen
    }

    /// What comes behind something that was seen.
    fn follow_on(&mut self, tree: ProcessId, seen: &mut Seen) {
        while seen.all.last() != Some(&Sighting::Done { tree }) {
            seen.all.extend(self.next());
        }
        seen.check_order();
    }

    /// The keeper's end is told, and a process that runs [`LONG`] ends as it would have.
    fn runs_on(&mut self, tree: ProcessId, output: &OwnedFd) {
        let Self { vm, sightings, .. } = self;
        vm.run(async { while sightings.next().await.is_some() {} });
        assert_eq!(first_line(output), "end");
        let exit = loop {
            if let Event::Exited { process, exit } = self.vm.event()
                && process == tree
            {
                break exit;
            }
        };
        assert_eq!(exit.exit_code, Some(6));
    }

    fn exec(&mut self, command: &str, args: &[&str]) -> Seen {
        let id = self.start(command, args, Stdio::Null);
        self.follow(id)
    }

    fn sh(&mut self, script: &str) -> Seen {
        self.exec("/bin/sh", &["-c", script])
    }
}

impl Seen {
    fn acts(&self) -> impl Iterator<Item = (Key, &What)> {
        self.all.iter().filter_map(|sighting| match sighting {
            Sighting::Saw { who, what, .. } => Some((who.key, what)),
            _ => None,
        })
    }

    fn root(&self) -> Key {
        match &self.all[0] {
            Sighting::Watched { root, .. } => root.key,
            other => panic!("a tree begins with its root, not {other:?}"),
        }
    }

    fn forked(&self) -> usize {
        self.acts().filter(|(_, what)| matches!(what, What::Forked { .. })).count()
    }

    fn executed(&self) -> Vec<&Executed> {
        self.acts()
            .filter_map(|(_, what)| if let What::Executed(executed) = what { Some(executed) } else { None })
            .collect()
    }

    /// How everybody but the root ended.
    fn ends(&self) -> Vec<(Option<u8>, Option<i32>)> {
        self.acts()
            .filter(|(key, _)| *key != self.root())
            .filter_map(
                |(_, what)| {
                    if let What::Exited { code, signal } = *what { Some((code, signal)) } else { None }
                },
            )
            .collect()
    }

    fn code_sum(&self) -> u32 {
        self.ends().into_iter().filter_map(|(code, _)| code).map(u32::from).sum()
    }

    fn signals(&self) -> BTreeSet<i32> {
        self.ends().into_iter().filter_map(|(_, signal)| signal).collect()
    }

    /// Parents begin before children; nobody does anything before its beginning or after its end; everybody ends once.
    fn check_order(&self) {
        let mut alive: BTreeMap<Key, bool> = BTreeMap::from([(self.root(), true)]);
        for (key, what) in self.acts() {
            match what {
                What::Forked { parent } => {
                    assert!(alive.contains_key(parent), "{key:?} begins after its parent {parent:?}");
                    assert_eq!(alive.insert(key, true), None, "{key:?} begins once");
                }
                What::Exited { .. } => assert_eq!(alive.insert(key, false), Some(true), "{key:?} ends once"),
                // Without the process category nobody tells of beginnings.
                What::File(_) | What::Network(_) if !alive.contains_key(&key) => {}
                _ => assert_eq!(alive.get(&key), Some(&true), "{key:?} lives when it does {what:?}"),
            }
        }
        let ends = self.acts().any(|(_, what)| matches!(what, What::Exited { .. }));
        assert!(!ends || alive.values().all(|alive| !alive), "all have ended");
    }
}

/// Runs a test for each means that is exact.
fn each(test: fn(Watched)) {
    for backend in EXACT {
        println!("{}", backend.name());
        test(Watched::by(*backend));
    }
}

#[test]
fn every_short_lived_child_is_seen_with_its_command_and_code() {
    each(|mut watched| {
        let seen = watched.sh("i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i+1)); done");
        assert_eq!((seen.forked(), seen.ends()), (300, vec![(Some(0), None); 300]));
        let executed = seen.executed();
        assert_eq!(executed.len(), 301);
        assert_eq!(executed[0].argv[..2], [b"/bin/sh".to_vec(), b"-c".to_vec()]);
        assert_eq!(executed[300].argv, [b"/bin/true"]);
        assert_eq!(executed[300].cwd, b"/workspace");
        assert!(executed[300].path.ends_with(b"/bin/true"), "{:?}", executed[300]);
    });
}

#[test]
fn children_in_the_background_are_seen_all() {
    each(|mut watched| {
        let seen = watched.sh("i=0; while [ $i -lt 300 ]; do /bin/true & i=$((i+1)); done; wait");
        assert_eq!((seen.forked(), seen.ends().len(), seen.executed().len()), (300, 300, 301));
    });
}

#[test]
fn codes_and_signals_are_exact() {
    each(|mut watched| {
        let seen = watched.sh("i=0; while [ $i -lt 1000 ]; do (exit $((i%200))); i=$((i+1)); done
             sh -c 'kill -9 $$'; sh -c 'kill -15 $$'; exit 3");
        assert_eq!((seen.code_sum(), seen.signals()), (99_500, BTreeSet::from([9, 15])));
        assert!(seen.acts().any(|act| act == (seen.root(), &What::Exited { code: Some(3), signal: None })));
    });
}

#[test]
fn subshells_that_execute_nothing_are_seen() {
    each(|mut watched| {
        let seen = watched.sh("i=0; while [ $i -lt 500 ]; do (:); i=$((i+1)); done");
        assert_eq!((seen.forked(), seen.ends().len()), (500, 500));
    });
}

#[test]
fn children_that_are_killed_at_once_are_seen() {
    let mut watched = Watched::by(Backend::Ptrace);
    if has_python(&mut watched) {
        let seen = watched.exec(
            "/usr/bin/python3",
            &["-c", "import os\nfor i in range(50):\n p=os.fork()\n if p==0:\n  while True: pass\n os.kill(p,9); os.waitpid(p,0)"],
        );
        assert_eq!((seen.forked(), seen.ends()), (50, vec![(None, Some(9)); 50]));
    }
}

#[test]
fn orphans_are_seen_to_their_end() {
    each(|mut watched| {
        let seen = watched.sh("i=0; while [ $i -lt 200 ]; do ( (exit 7) & ) ; i=$((i+1)); done");
        assert_eq!((seen.forked(), seen.code_sum()), (400, 1400));
    });
}

#[test]
fn a_tree_outlives_its_root() {
    each(|mut watched| {
        let (read, write) = watched.vm.pipe();
        let tree =
            watched.start("/bin/sh", &["-c", "setsid sh -c 'echo on; read x; exit 9' & "], Stdio::Fd(write));
        assert_eq!(first_line(&read), "on");
        let mut seen = Seen::default();
        let root_ended = |seen: &Seen| {
            seen.acts().any(|(key, what)| key == seen.root() && matches!(what, What::Exited { .. }))
        };
        while seen.all.is_empty() || !root_ended(&seen) {
            seen.all.extend(watched.next());
        }
        watched.vm.kill_tree(tree);
        watched.follow_on(tree, &mut seen);
    });
}

#[test]
fn threads_are_no_processes_and_their_children_are() {
    each(|mut watched| {
        if !has_python(&mut watched) {
            return;
        }
        let program = "
import os, subprocess, threading
def work():
    subprocess.run(['/bin/true'])
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
threading.Thread(target=lambda: os.execv('/bin/sh', ['sh', '-c', '/bin/true; exit 4'])).start()
threading.Event().wait()
";
        let seen = watched.exec("/usr/bin/python3", &["-c", program]);
        assert_eq!((seen.forked(), seen.ends().len()), (5, 5));
        assert!(seen.acts().any(|act| act == (seen.root(), &What::Exited { code: Some(4), signal: None })));
    });
}

#[test]
fn a_stop_and_what_follows_are_seen() {
    let mut watched = Watched::by(Backend::Ptrace);
    let script = "sh -c 'kill -STOP $$; exit 5' & until [ -e /tmp/go ]; do :; done; kill -CONT $!; wait $!";
    let tree = watched.start("/bin/sh", &["-c", script], Stdio::Null);
    let mut seen = Seen::default();
    let stop = What::Stopped { signal: libc::SIGSTOP };
    while !seen.acts().any(|(_, what)| *what == stop) {
        seen.all.extend(watched.next());
    }
    watched.vm.sh("touch /tmp/go");
    watched.follow_on(tree, &mut seen);
    assert!(seen.acts().any(|(_, what)| *what == What::Continued));
    assert!(seen.acts().any(|act| act == (seen.root(), &What::Exited { code: Some(5), signal: None })));
}

#[test]
fn job_control_goes_on_working_without_ptrace() {
    let mut watched = Watched::by(Backend::Notification);
    let seen = watched.sh(
        "sh -c 'kill -STOP $$; exit 5' & until grep -q '^State:.T' /proc/$!/status; do :; done; kill -CONT $!; wait $!",
    );
    assert!(seen.acts().any(|act| act == (seen.root(), &What::Exited { code: Some(5), signal: None })));
}

#[test]
fn pipelines_neither_hang_nor_fail() {
    each(|mut watched| {
        let (read, write) = watched.vm.pipe();
        let script = "i=0; while [ $i -lt 100 ]; do echo $i | cat | cat > /dev/null || exit 1; i=$((i+1)); done 2>&1; echo done";
        let tree = watched.start("/bin/sh", &["-c", script], Stdio::Fd(write));
        let seen = watched.follow(tree);
        assert_eq!(first_line(&read), "done");
        assert!(seen.ends().iter().all(|end| *end == (Some(0), None)));
        assert_eq!(seen.ends().len(), 300);
    });
}

#[test]
fn what_is_watched_runs_on_when_its_keeper_is_killed() {
    // At whatever the keeper is just doing.
    for _ in 0..8 {
        each(killed_while_it_watches);
    }
}

fn killed_while_it_watches(mut watched: Watched) {
    let (read, write) = watched.vm.pipe();
    let tree = watched.start("/bin/sh", &["-c", LONG], Stdio::Fd(write));
    assert_eq!(first_line(&read), "on");
    watched.keeper.kill();
    watched.runs_on(tree, &read);
}

#[test]
fn what_a_dead_keeper_should_watch_runs() {
    let mut watched = Watched::by(Backend::Ptrace);
    let (read, write) = watched.vm.pipe();
    let id = watched.vm.id();
    let socket = watched.keeper.expect(id).unwrap();
    watched.keeper.kill();
    let Watched { vm, sightings, .. } = &mut watched;
    vm.run(async { while sightings.next().await.is_some() {} });
    let spec =
        StartSpec { stdout: Stdio::Fd(write), watcher: Some(socket), ..vm.spec("/bin/sh", &["-c", LONG]) };
    vm.booted.commands.start(id, spec);
    assert_eq!(first_line(&read), "on");
    watched.runs_on(id, &read);
}

#[test]
fn a_keeper_that_hangs_is_killed() {
    each(|mut watched| {
        let (read, write) = watched.vm.pipe();
        let tree = watched.start("/bin/sh", &["-c", LONG], Stdio::Fd(write));
        assert_eq!(first_line(&read), "on");
        watched.keeper.signal(Signal::STOP);
        watched.runs_on(tree, &read);
    });
}

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

#[test]
fn a_start_that_fails_ends_its_tree() {
    each(|mut watched| {
        let tree = watched.start("/not/there", &[], Stdio::Null);
        let seen = watched.follow(tree);
        assert_eq!((seen.forked(), seen.executed().len()), (0, 0));
    });
}

#[test]
fn looking_again_and_again_sees_what_lasts() {
    let mut watched = Watched::by(Backend::Polling);
    let script = "sh -c 'until [ -e /tmp/go ]; do :; done; exit 6' & wait $!";
    let tree = watched.start("/bin/sh", &["-c", script], Stdio::Null);
    let mut seen = Seen::default();
    while seen.executed().len() < 2 {
        seen.all.extend(watched.next());
    }
    watched.vm.sh("touch /tmp/go");
    watched.follow_on(tree, &mut seen);
    assert_eq!((seen.forked(), seen.ends()), (1, vec![(Some(6), None)]));
    assert_eq!(seen.executed()[1].argv[..2], [b"sh".to_vec(), b"-c".to_vec()]);
    assert!(seen.acts().any(|act| act == (seen.root(), &What::Exited { code: Some(6), signal: None })));
}

#[test]
fn without_namespaces_the_same_is_seen() {
    for isolation in [Isolation::Confined, Isolation::None] {
        for backend in EXACT {
            println!("{isolation:?} {}", backend.name());
            let wanted = Wanted { process: true, file: true, network: false };
            // Without `no_new_privs` a listener is not for everybody.
            let ladder = vec![*backend, Backend::Ptrace];
            let config = VmConfig { isolation, ..VmConfig::default() };
            let mut watched =
                Watched::of(Vm::with(&config), &Orders { wanted, ladder, require_exact: false });
            let seen = watched.sh("/bin/true; (exit 7); ( (exit 8) & ); cat none");
            assert_eq!((seen.forked(), seen.executed().len()), (5, 3));
            assert_eq!((seen.ends().len(), seen.code_sum()), (5, 16));
        }
    }
}

#[test]
fn the_first_means_that_can_be_had_is_taken() {
    let ladder = vec![Backend::Notification, Backend::Ptrace];
    let wanted = Wanted { process: true, ..Wanted::default() };
    let mut watched = Watched::with(&Orders { wanted, ladder, require_exact: false });
    let seen = watched.sh("exit 0");
    assert!(matches!(seen.all[0], Sighting::Watched { backend: Backend::Notification, .. }));
}

fn has_python(watched: &mut Watched) -> bool {
    watched.vm.python("").is_some()
}
