//! Two channels, one order.

use super::*;

const ROOT: Subject = Subject { key: Key { host_pid: 700, start_ticks: 10 }, pid: Some(2) };
const CHILD: Subject = Subject { key: Key { host_pid: 701, start_ticks: 11 }, pid: Some(3) };

fn watch() -> Watch {
    Watch::new(ProcessId(1_000_000), Wanted::default())
}

fn forked() -> What {
    What::Forked { parent: ROOT.key }
}

fn exited() -> What {
    What::Exited { code: Some(7), signal: None }
}

#[test]
fn what_is_seen_before_init_tells_of_the_start_waits_for_that() {
    let mut watch = watch();
    watch.watched(ROOT, ObserverBackend::Ptrace);
    assert_eq!(watch.saw(CHILD, 0, forked()), None);
    let told = watch.started();
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].pid, told[0].parent_key), (Some(3), Some(ProcessKey { pid: 2, start_ticks: 10 })));
    assert_eq!(watch.saw(CHILD, 0, exited()).map(|event| event.kind.folded_code()), Some(Some(7)));
}

#[test]
fn init_may_be_faster_than_the_keeper() {
    let mut watch = watch();
    assert_eq!(watch.started(), []);
    watch.watched(ROOT, ObserverBackend::Ptrace);
    assert!(watch.saw(CHILD, 0, forked()).is_some());
}

#[test]
fn a_root_that_was_killed_before_it_became_anything_is_forgotten_for_the_next() {
    let mut watch = watch();
    watch.watched(ROOT, ObserverBackend::Ptrace);
    watch.saw(ROOT, 0, exited());
    assert!(watch.root_has_ended());
    watch.watched(CHILD, ObserverBackend::Ptrace);
    assert!(!watch.root_has_ended());
    assert_eq!(watch.started(), []);
}

#[test]
fn the_end_of_the_root_is_init_s_to_tell() {
    let mut watch = watch();
    watch.watched(ROOT, ObserverBackend::Ptrace);
    watch.started();
    watch.saw(CHILD, 0, forked());
    assert!(!watch.root_has_ended());
    assert_eq!(watch.saw(ROOT, 0, exited()), None);
    assert!(watch.root_has_ended());
    let orphans: Vec<_> = watch.orphans().iter().map(|event| event.pid).collect();
    assert_eq!(orphans, [Some(3)]);
    watch.finish();
    assert!(watch.is_done() && watch.orphans().is_empty());
}

#[test]
fn who_comes_later_is_told_of_no_parent_that_has_ended() {
    const GRANDCHILD: Subject = Subject { key: Key { host_pid: 702, start_ticks: 12 }, pid: Some(4) };
    let mut watch = watch();
    watch.watched(ROOT, ObserverBackend::Ptrace);
    watch.started();
    watch.saw(CHILD, 0, forked());
    watch.saw(GRANDCHILD, 0, What::Forked { parent: CHILD.key });
    let told = |watch: &Watch| watch.adopted().iter().map(|event| event.parent_key).collect::<Vec<_>>();
    let [root, child] = [(2, 10), (3, 11)].map(|(pid, start_ticks)| Some(ProcessKey { pid, start_ticks }));
    assert_eq!(told(&watch), [root, child]);
    watch.saw(CHILD, 0, exited());
    assert_eq!(told(&watch), [None]);
}

#[test]
fn the_root_is_called_as_the_client_calls_it() {
    let mut watch = watch();
    watch.watched(ROOT, ObserverBackend::Ptrace);
    watch.started();
    let event = watch.saw(ROOT, 0, What::Continued).unwrap();
    assert_eq!((event.pid, event.key), (Some(1_000_000), Some(ProcessKey { pid: 2, start_ticks: 10 })));
    assert_eq!(event.backend, ObserverBackend::Ptrace);
}
