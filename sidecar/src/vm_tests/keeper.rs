//! What a keeper sees of trees of real processes, by each means that can be had here.

mod calls;
mod death;
mod watched;

use std::collections::BTreeSet;

use agentvm_wire::vm::{Isolation, VmConfig};

use self::watched::{EXACT, Seen, Watched, each, has_python, records_can_be_had};
use super::harness::{Vm, first_line};
use crate::init::Stdio;
use crate::keeper::{Backend, Orders, Sighting, Wanted, What};

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
    for backend in EXACT {
        let mut watched = Watched::by(*backend);
        let exact = *backend == Backend::Ptrace;
        if !has_python(&mut watched) || !exact && !records_can_be_had() {
            continue;
        }
        let seen = watched.exec(
            "/usr/bin/python3",
            &["-c", "import os\nfor i in range(50):\n p=os.fork()\n if p==0:\n  while True: pass\n os.kill(p,9); os.waitpid(p,0)"],
        );
        assert_eq!((seen.forked(), seen.ends().len()), (50, 50));
        // Whoever was reaped before anybody could look has told nobody how it ended.
        let known = seen.ends().into_iter().filter(|end| exact || *end != (None, None));
        assert!(known.inspect(|end| assert_eq!(*end, (None, Some(9)))).count() == 50 || !exact);
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
            let mut watched = Watched::of(
                Vm::with(&config),
                &Orders { wanted, ladder, require_exact: false, records: false },
            );
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
    let mut watched = Watched::with(&Orders { wanted, ladder, require_exact: false, records: false });
    let seen = watched.sh("exit 0");
    assert!(matches!(seen.all[0], Sighting::Watched { backend: Backend::Notification, .. }));
}
