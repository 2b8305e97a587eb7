//! A VM with a keeper, and what that saw of one tree.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

use agentvm_wire::id::ProcessId;

use super::super::harness::{Vm, first_line};
use crate::init::{Event, StartSpec, Stdio};
use crate::keeper::{Backend, Executed, Keeper, Key, Orders, Sighting, Sightings, Wanted, What};

/// Means that miss nothing.
pub(super) const EXACT: &[Backend] = &[Backend::Ptrace, Backend::Notification];

/// Says that it runs, and does so for a while.
pub(super) const LONG: &str =
    "echo on; i=0; while [ $i -lt 200 ]; do /bin/true || exit 1; (:); i=$((i+1)); done; echo end; exit 6";

/// A VM with a keeper.
pub(super) struct Watched {
    pub(super) vm: Vm,
    pub(super) keeper: Keeper,
    pub(super) sightings: Sightings,
}

/// What was seen of one tree, from its beginning to its end.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) all: Vec<Sighting>,
}

impl Watched {
    pub(super) fn by(backend: Backend) -> Self {
        Self::seeing(Wanted { process: true, ..Wanted::default() }, backend)
    }

    pub(super) fn seeing(wanted: Wanted, backend: Backend) -> Self {
        let records = records_can_be_had();
        Self::with(&Orders { wanted, ladder: vec![backend], require_exact: false, records })
    }

    pub(super) fn with(orders: &Orders) -> Self {
        Self::of(Vm::new(), orders)
    }

    pub(super) fn of(vm: Vm, orders: &Orders) -> Self {
        let (keeper, sightings) = vm.run(async { Keeper::start(orders) }).unwrap();
        Self { vm, keeper, sightings }
    }

    /// Starts a watched process.
    pub(super) fn start(&mut self, command: &str, args: &[&str], stdout: Stdio) -> ProcessId {
        let id = self.vm.id();
        let watcher = Some(self.keeper.expect(id).unwrap());
        let spec = StartSpec { stdout, watcher, ..self.vm.spec(command, args) };
        self.vm.booted.commands.start(id, spec);
        id
    }

    pub(super) fn next(&mut self) -> Vec<Sighting> {
        let sightings = &mut self.sightings;
        self.vm.run(sightings.next()).unwrap_or_else(|| panic!("the keeper lives: {sightings:?}"))
    }

    /// Everything up to the end of a tree.
    pub(super) fn follow(&mut self, tree: ProcessId) -> Seen {
        let mut seen = Seen::default();
        self.follow_on(tree, &mut seen);
        seen
    }

    /// What comes behind something that was seen.
    pub(super) fn follow_on(&mut self, tree: ProcessId, seen: &mut Seen) {
        while seen.all.last() != Some(&Sighting::Done { tree }) {
            seen.all.extend(self.next());
        }
        seen.check_order();
    }

    /// The keeper's end is told, and a process that runs [`LONG`] ends as it would have.
    pub(super) fn runs_on(&mut self, tree: ProcessId, output: &OwnedFd) {
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

    pub(super) fn exec(&mut self, command: &str, args: &[&str]) -> Seen {
        let id = self.start(command, args, Stdio::Null);
        self.follow(id)
    }

    pub(super) fn sh(&mut self, script: &str) -> Seen {
        self.exec("/bin/sh", &["-c", script])
    }
}

impl Seen {
    pub(super) fn acts(&self) -> impl Iterator<Item = (Key, &What)> {
        self.all.iter().filter_map(|sighting| match sighting {
            Sighting::Saw { who, what, .. } => Some((who.key, what)),
            _ => None,
        })
    }

    pub(super) fn root(&self) -> Key {
        match &self.all[0] {
            Sighting::Watched { root, .. } => root.key,
            other => panic!("a tree begins with its root, not {other:?}"),
        }
    }

    pub(super) fn forked(&self) -> usize {
        self.acts().filter(|(_, what)| matches!(what, What::Forked { .. })).count()
    }

    pub(super) fn executed(&self) -> Vec<&Executed> {
        self.acts()
            .filter_map(|(_, what)| if let What::Executed(executed) = what { Some(executed) } else { None })
            .collect()
    }

    /// How everybody but the root ended.
    pub(super) fn ends(&self) -> Vec<(Option<u8>, Option<i32>)> {
        self.acts()
            .filter(|(key, _)| *key != self.root())
            .filter_map(
                |(_, what)| {
                    if let What::Exited { code, signal } = *what { Some((code, signal)) } else { None }
                },
            )
            .collect()
    }

    pub(super) fn code_sum(&self) -> u32 {
        self.ends().into_iter().filter_map(|(code, _)| code).map(u32::from).sum()
    }

    pub(super) fn signals(&self) -> BTreeSet<i32> {
        self.ends().into_iter().filter_map(|(_, signal)| signal).collect()
    }

    /// Parents begin before children; nobody does anything before its beginning or after its end; everybody ends once.
    pub(super) fn check_order(&self) {
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
pub(super) fn each(test: fn(Watched)) {
    for backend in EXACT {
        println!("{}", backend.name());
        test(Watched::by(*backend));
    }
}

pub(super) fn records_can_be_had() -> bool {
    let had = crate::keeper::records_can_be_had();
    if !had {
        eprintln!("without perf_event_open(2)");
    }
    had
}

pub(super) fn has_python(watched: &mut Watched) -> bool {
    watched.vm.python("").is_some()
}
