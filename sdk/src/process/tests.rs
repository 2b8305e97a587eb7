//! The lifecycle over every short sequence of events, the table's pids, and the forest over any rows at all.

use agentvm_wire::{
    id::ProcessId,
    process::{ExitCause, ProcessRow, ProcessStatus, StreamEnds},
};
use proptest::{collection::vec, prelude::*};

use super::{
    exit::ExitStatus,
    lifecycle::{Event, Lifecycle, Progress},
    table::table,
    tree::{ProcessTreeNode, forest},
};
use crate::error::ClientError;

// ---- lifecycle ----

#[derive(Debug, Clone, Copy)]
enum Told {
    Started,
    StartFailed,
    Exited,
    ExitedAndDrains,
    Drained,
    SomeProgress,
    AllDelivered,
    LostOnTheWay,
    LostWithAllReceived,
}

const ALPHABET: [Told; 9] = [
    Told::Started,
    Told::StartFailed,
    Told::Exited,
    Told::ExitedAndDrains,
    Told::Drained,
    Told::SomeProgress,
    Told::AllDelivered,
    Told::LostOnTheWay,
    Told::LostWithAllReceived,
];

const LONGEST: u32 = 5;
const END: StreamEnds = StreamEnds { stdout: Some(10), stderr: None };

/// An exit whose code tells which event of the sequence it was.
fn status(code: usize) -> ExitStatus {
    ExitStatus {
        code: i32::try_from(code).unwrap(),
        signal: None,
        cause: ExitCause::Exited,
        core_dumped: false,
        user_time: std::time::Duration::ZERO,
        system_time: std::time::Duration::ZERO,
        max_rss_bytes: 0,
        exited_at_ms: 0,
    }
}

fn event(told: Told, index: usize) -> Event {
    let upto = |bytes| StreamEnds { stdout: Some(bytes), stderr: Some(0) };
    let some = Progress { received: upto(9), delivered: upto(5) };
    let received = Progress { received: upto(10), delivered: upto(5) };
    let delivered = Progress { received: upto(10), delivered: upto(10) };
    let error = ClientError::Disposed;
    match told {
        Told::Started => Event::Started,
        Told::StartFailed => Event::StartFailed(ClientError::StdinClosed),
        Told::Exited => Event::Exited { status: status(index), end: END, drains: false },
        Told::ExitedAndDrains => Event::Exited { status: status(index), end: END, drains: true },
        Told::Drained => Event::Drained(END),
        Told::SomeProgress => Event::Progress(some),
        Told::AllDelivered => Event::Progress(delivered),
        Told::LostOnTheWay => Event::Lost { error, progress: some },
        Told::LostWithAllReceived => Event::Lost { error, progress: received },
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Ending {
    Exit(i32),
    StartFailed,
    Lost,
}

/// At which event a process ends and how, told flatly: the first exit counts, and it is published only with its output
/// here and, where that was asked for, drained.
fn predicted(story: &[Told]) -> Option<(usize, Ending)> {
    let (mut exit, mut drain_due) = (None, false);
    for (index, told) in story.iter().enumerate() {
        let known = exit.filter(|_| !drain_due).map(Ending::Exit);
        let ending = match told {
            Told::StartFailed => Some(Ending::StartFailed),
            Told::LostOnTheWay => Some(Ending::Lost),
            Told::LostWithAllReceived => Some(known.unwrap_or(Ending::Lost)),
            Told::AllDelivered => known,
            _ => None,
        };
        if let Some(ending) = ending {
            return Some((index, ending));
        }
        match told {
            Told::Exited | Told::ExitedAndDrains if exit.is_none() => {
                exit = Some(i32::try_from(index).unwrap());
                drain_due = matches!(told, Told::ExitedAndDrains);
            }
            Told::Drained => drain_due = false,
            _ => {}
        }
    }
    None
}

fn played(story: &[Told]) -> Option<(usize, Ending)> {
    let mut lifecycle = Lifecycle::Starting;
    let mut ending = None;
    for (index, told) in story.iter().enumerate() {
        let Some(outcome) = lifecycle.step(event(*told, index)) else { continue };
        assert!(ending.is_none(), "two outcomes of {story:?}");
        assert!(lifecycle.has_ended());
        ending = Some((
            index,
            match outcome {
                Ok(status) => Ending::Exit(status.code),
                Err(ClientError::StdinClosed) => Ending::StartFailed,
                Err(_) => Ending::Lost,
            },
        ));
    }
    ending
}

#[test]
fn whatever_is_told_in_whatever_order_there_is_one_outcome_and_it_is_never_invented() {
    for length in 0..=LONGEST {
        for number in 0..ALPHABET.len().pow(length) {
            let digit = |place| number / ALPHABET.len().pow(place) % ALPHABET.len();
            let story: Vec<_> = (0..length).map(|place| ALPHABET[digit(place)]).collect();
            assert_eq!(played(&story), predicted(&story), "{story:?}");
        }
    }
}

#[test]
fn where_its_own_output_ended_is_known_from_the_exit_on() {
    let mut lifecycle = Lifecycle::Starting;
    lifecycle.step(event(Told::Started, 0));
    assert_eq!(lifecycle.own_end(), StreamEnds::default());
    lifecycle.step(event(Told::Exited, 1));
    assert_eq!(lifecycle.own_end(), END);
    lifecycle.step(event(Told::AllDelivered, 2)).unwrap().unwrap();
    assert_eq!(lifecycle.own_end(), END);
}

// ---- table and forest ----

fn row(pid: u32, parent: u32, process: Option<u32>, status: ProcessStatus) -> ProcessRow {
    ProcessRow {
        process: process.map(ProcessId),
        root: None,
        pid,
        ppid: parent,
        pgid: pid,
        sid: parent,
        driver: String::new(),
        command: String::new(),
        args: Vec::new(),
        args_b64: None,
        args_truncated: false,
        cwd: None,
        status,
        exit_code: None,
        signal: None,
        started_at_ms: 0,
        exited_at_ms: None,
        rss_bytes: 0,
        cpu_time_us: 0,
    }
}

fn running(pid: u32, parent: u32) -> ProcessRow {
    row(pid, parent, None, ProcessStatus::Running)
}

/// Pid and parent of every row of a forest; children are checked against their parent on the way.
fn flat(forest: &[ProcessTreeNode]) -> Vec<(u32, u32)> {
    let mut rows = Vec::new();
    let mut pending = vec![forest];
    while let Some(siblings) = pending.pop() {
        assert!(siblings.is_sorted_by_key(|node| node.info.pid));
        for node in siblings {
            rows.push((node.info.pid, node.info.ppid));
            assert!(node.children.iter().all(|child| child.info.ppid == node.info.pid));
            pending.push(&node.children);
        }
    }
    rows.sort_unstable();
    rows
}

/// Whether a walk from parent to parent comes back.
fn is_in_a_cycle(rows: &[(u32, u32)], pid: u32) -> bool {
    let parent = |pid: u32| rows.iter().find(|row| row.0 == pid).map(|row| row.1);
    let mut walk = std::iter::successors(parent(pid), |pid| parent(*pid)).take(rows.len());
    walk.any(|met| met == pid)
}

#[test]
fn d22_a_chain_a_hundred_thousand_deep_overflows_no_stack() {
    const DEEP: u32 = 100_000;
    let forest = forest(table((1..=DEEP).map(|pid| running(pid, pid - 1)).collect()));
    let [root] = &forest[..] else { panic!("{} roots", forest.len()) };
    assert!((0..).zip(1..=DEEP).eq(root.walk().map(|(depth, info)| (depth, info.pid))));

    let copy = root.clone();
    assert!(copy == *root);
    assert!(format!("{copy:?}").ends_with("})]"));
    let json = serde_json::to_string(&copy).unwrap();
    assert_eq!(json.matches("children").count(), DEEP as usize);
}

#[test]
fn trees_that_differ_in_shape_alone_are_not_equal() {
    let child_of = |parent| forest(table(vec![running(1, 0), running(2, 1), running(3, parent)]));
    let without_parents = |mut forest: Vec<ProcessTreeNode>| {
        let mut pending: Vec<&mut ProcessTreeNode> = forest.iter_mut().collect();
        while let Some(node) = pending.pop() {
            node.info.ppid = 0;
            pending.extend(&mut node.children);
        }
        forest
    };
    assert_eq!(without_parents(child_of(1)), without_parents(child_of(1)));
    assert_ne!(without_parents(child_of(1)), without_parents(child_of(2)));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_row_is_in_the_forest_exactly_once(mut rows in vec((0_u32..12, 0_u32..14), 0..24)) {
        let table = table(rows.iter().map(|(pid, ppid)| running(*pid, *ppid)).collect());
        rows.sort_unstable();
        let forest = forest(table);
        prop_assert_eq!(flat(&forest), rows);
        prop_assert_eq!(forest.clone(), forest);
    }

    #[test]
    fn only_a_row_without_a_parent_or_in_a_cycle_is_a_root(rows in vec(0_u32..40, 0..30)) {
        let rows: Vec<_> = (0..).zip(rows).collect();
        let forest = forest(table(rows.iter().map(|(pid, ppid)| running(*pid, *ppid)).collect()));
        for root in &forest {
            let known = rows.iter().any(|row| row.0 == root.info.ppid);
            prop_assert!(!known || is_in_a_cycle(&rows, root.info.pid), "{} is a root", root.info.pid);
        }
        // One root for each cycle, or there would be none at all.
        prop_assert_eq!(forest.is_empty(), rows.is_empty());
    }

    #[test]
    fn every_live_process_has_one_pid_and_its_children_know_it_by_that(
        parents in vec(0_usize..20, 1..20),
        spawned in vec(any::<bool>(), 20),
        exited in vec(1_u32..20, 0..10),
    ) {
        let pid = |index: usize| u32::try_from(index + 1).unwrap();
        let synthetic = |index: usize| spawned[index].then(|| ProcessId::FIRST_SPAWNED + pid(index));
        let live = parents
            .iter()
            .enumerate()
            .map(|(index, parent)| row(pid(index), pid(*parent), synthetic(index), ProcessStatus::Running));
        // Exited ones with pids that may have been given to the living since.
        let gone = (ProcessId::FIRST_SPAWNED + 100..)
            .zip(exited)
            .map(|(process, pid)| row(pid, 1, Some(process), ProcessStatus::Exited));
        let table = table(gone.chain(live).collect());

        prop_assert!(table.is_sorted_by_key(|info| info.pid));
        prop_assert!(table.windows(2).all(|pair| pair[0].pid != pair[1].pid));
        let shown = |index: usize| synthetic(index).unwrap_or_else(|| pid(index));
        for (index, parent) in parents.iter().enumerate().filter(|(_, parent)| **parent < parents.len()) {
            let info = table.iter().find(|info| info.pid == shown(index)).expect("it is shown");
            prop_assert_eq!((info.ppid, info.pgid), (shown(*parent), shown(index)));
        }
    }
}
