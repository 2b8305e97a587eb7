//! What is watched runs on without its keeper.

use rustix::process::Signal;

use super::super::harness::first_line;
use super::watched::{LONG, Watched, each};
use crate::init::{StartSpec, Stdio};
use crate::keeper::Backend;

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
