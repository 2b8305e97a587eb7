//! Programs that are hard to observe, by every means.

use std::{collections::BTreeSet, path::Path};

use agentvm_sdk::{
    EventCategory, NetworkAddress, ObserverBackend, ObserverConfig, ObserverEvent, ObserverEventKind as Kind,
    SpawnOptions,
};

use crate::fixture::{FIXTURE, let_in};
use crate::observed::{EXACT, Observed, codes, config, ends, shell, told};
use crate::support::{stdout, within};

fn kinds_of<'a>(events: &'a [ObserverEvent], kind: &'a str) -> impl Iterator<Item = &'a Kind> {
    events.iter().map(|event| &event.kind).filter(move |of| of.as_str() == kind)
}

#[tokio::test]
async fn every_thread_may_fork_and_execute_and_a_process_ends_once() {
    for backend in EXACT {
        let seen = Observed::by(backend, "threads").await.fixture("threads").await;
        assert_eq!(kinds_of(&seen, "descendant-started").count(), 5, "{backend}");
        assert_eq!((codes(&seen), ends(&seen)), (vec![0; 5], vec![4]), "{backend}");
        let mut programs: Vec<_> = kinds_of(&seen, "descendant-exec")
            .map(|kind| kind.argv().map(|argument| argument.to_str().unwrap()).collect::<Vec<_>>())
            .collect();
        programs.sort_unstable();
        let ours = [vec![FIXTURE, "child"], vec![FIXTURE, "threads"]];
        assert_eq!((&programs[..2], &programs[2..]), (&ours[..], &vec![vec!["true"]; 5][..]), "{backend}");
    }
}

#[tokio::test]
async fn children_that_are_killed_at_once_are_seen_or_the_gap_is_named() {
    for backend in EXACT {
        let observed = Observed::by(backend, "killed").await;
        let seen = observed.fixture("killed").await;
        let mut ends: Vec<_> = kinds_of(&seen, "descendant-exited").cloned().collect();
        if !observed.has_gap(EventCategory::Process, "killed_early").await {
            assert_eq!((kinds_of(&seen, "descendant-started").count(), ends.len()), (50, 50), "{backend}");
        }
        if observed.has_gap(EventCategory::Process, "killed_early_codes").await {
            ends.retain(|end| *end != Kind::DescendantExited { exit_code: None, signal: None });
        }
        let killed = Kind::DescendantExited { exit_code: None, signal: Some(9) };
        assert!(ends.iter().all(|end| *end == killed), "{backend}: {ends:?}");
    }
}

#[tokio::test]
async fn one_that_stops_itself_and_is_continued_by_a_sibling_ends_as_ever() {
    for backend in EXACT {
        let observed = Observed::by(backend, "stops").await;
        let seen = observed.fixture("stops").await;
        assert_eq!(ends(&seen), [5], "{backend}");
        let mut codes = codes(&seen);
        codes.sort_unstable();
        assert_eq!(codes, [0, 5], "{backend}");
        let stops = usize::from(!observed.has_gap(EventCategory::Process, "stops").await);
        for kind in ["descendant-stopped", "descendant-continued"] {
            assert_eq!(kinds_of(&seen, kind).count(), stops, "{kind} {backend}");
        }
    }
}

#[tokio::test]
async fn a_debugger_works_or_is_refused_and_the_gap_is_named() {
    for backend in EXACT {
        let observed = Observed::by(backend, "debugger").await;
        let seen = observed.fixture("traces").await;
        let refused = observed.has_gap(EventCategory::Process, "debugger").await;
        let code = if refused { rustix::io::Errno::PERM.raw_os_error() } else { 0 };
        assert_eq!((codes(&seen), ends(&seen)), (vec![code], vec![code]), "{backend}");
    }
}

#[tokio::test]
async fn connections_are_told_with_whom() {
    for backend in EXACT {
        let observed = Observed::by(backend, "connects").await;
        let_in(&observed.vm).await;
        let categories = [EventCategory::Lifecycle, EventCategory::Process, EventCategory::Network];
        let process = observed.start("connects", ObserverConfig::with_categories(categories));
        let port: u16 = stdout(&process).await.trim().parse().unwrap();
        let seen = told(&process).await;
        let connects: Vec<_> = kinds_of(&seen, "network-connect")
            .map(|kind| match kind {
                Kind::NetworkConnect { address } => address.clone(),
                other => unreachable!("{other:?}"),
            })
            .collect();
        let expected = [
            NetworkAddress::ip(([127, 0, 0, 1], port).into()),
            NetworkAddress::ip((std::net::Ipv6Addr::LOCALHOST, port).into()),
            NetworkAddress::unix(b"/tmp/nobody".to_vec()),
            NetworkAddress::unix(b"@nobody".to_vec()),
        ];
        assert_eq!(connects, expected, "{backend}");
        assert_eq!(ends(&seen), [0]);
    }
}

#[tokio::test]
async fn a_compiler_opens_every_source_and_every_header() {
    const PREPARE: &str = "mkdir src && cd src && for i in $(seq 30); do
        echo \"int h$i(void);\" > h$i.h; printf '#include <errno.h>\n#include \"h%d.h\"\nint h%d(void) { return EPERM; }\n' $i $i > f$i.c
        done";
    let files = (1..=30).flat_map(|i| [format!("f{i}.c"), format!("h{i}.h"), format!("f{i}.o")]);
    let files: BTreeSet<_> = files.map(|name| Path::new("/workspace/src").join(name)).collect();
    for backend in EXACT {
        let observed = Observed::by(backend, "compile").await;
        let prepared = observed.vm.spawn("sh", ["-c", PREPARE], SpawnOptions::new()).unwrap();
        assert!(within(prepared.wait()).await.unwrap().success());
        let categories = [EventCategory::Lifecycle, EventCategory::Process, EventCategory::File];
        let options =
            SpawnOptions::new().observe(ObserverConfig::with_categories(categories)).cwd("/workspace/src");
        let process = observed.vm.spawn("sh", ["-c", "gcc -c f*.c"], options).unwrap();
        let seen = told(&process).await;
        assert_eq!(ends(&seen), [0], "{backend}");
        let opened: Vec<_> = kinds_of(&seen, "file-open").filter_map(Kind::path).collect();
        let missing: Vec<_> = files.iter().filter(|file| !opened.contains(&file.as_path())).collect();
        assert_eq!(missing, Vec::<&std::path::PathBuf>::new(), "{backend}");
        let system = opened.iter().filter(|path| path.ends_with("include/errno.h")).count();
        assert!(system >= 30, "{system} {backend}");
        // Of each file one compiler and one assembler.
        let compilers = kinds_of(&seen, "descendant-exec").filter_map(Kind::path);
        assert_eq!(compilers.filter(|path| path.ends_with("cc1")).count(), 30, "{backend}");
        assert!(codes(&seen).iter().all(|code| *code == 0), "{backend}");
    }
}

#[tokio::test]
async fn what_lasts_is_seen_by_the_last_resort_which_names_its_gap() {
    let observed = Observed::by(ObserverBackend::Polling, "polling").await;
    for gap in ["sampled", "stops", "adopted"] {
        assert!(observed.has_gap(EventCategory::Process, gap).await, "{gap}");
    }
    let process = shell(&observed.vm, "exec 3<&0; sh -c 'read go; exit 6' <&3 & wait $!");
    let events = process.observer().unwrap();
    while !matches!(within(events.recv()).await.unwrap().kind, Kind::DescendantStarted { .. }) {}
    process.close_stdin();
    let seen = told(&process).await;
    assert_eq!((codes(&seen), ends(&seen)), (vec![6], vec![6]));
    let refused =
        observed.vm.spawn("true", [""; 0], SpawnOptions::new().observe(config().require_exact(true)));
    within(refused.unwrap().wait()).await.unwrap_err();
}
