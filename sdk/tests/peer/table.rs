//! The VM's process table as the client shows it.

use std::collections::BTreeMap;

use agentvm_sdk::{
    AgentOs, ExecOptions, ProcessInfo, ProcessStatus, ProcessTreeNode, SpawnOptions,
    wire::{
        id::ProcessId,
        message::Response,
        process::{ProcessRow, ProcessTable},
    },
};
use tokio::join;

use crate::{NONE, scene::scene, sidecar::Peer};

fn row(pid: u32, parent: u32) -> ProcessRow {
    ProcessRow {
        process: None,
        root: None,
        pid,
        ppid: parent,
        pgid: pid,
        sid: pid,
        driver: "agentvm-sidecar".to_owned(),
        command: "worker (a b)".to_owned(),
        args: vec!["worker".to_owned(), String::new(), "line\nbreak".to_owned()],
        args_b64: None,
        args_truncated: false,
        cwd: Some("/workspace".to_owned()),
        status: ProcessStatus::Running,
        exit_code: None,
        signal: None,
        started_at_ms: 5,
        exited_at_ms: None,
        rss_bytes: 4096,
        cpu_time_us: 7,
    }
}

fn of(process: u32, row: ProcessRow) -> ProcessRow {
    ProcessRow { process: Some(ProcessId(process)), ..row }
}

fn exited(row: ProcessRow) -> ProcessRow {
    ProcessRow { status: ProcessStatus::Exited, exit_code: Some(1), exited_at_ms: Some(9), ..row }
}

async fn table(vm: &AgentOs, peer: &mut Peer, rows: Vec<ProcessRow>) -> Vec<ProcessInfo> {
    join!(vm.all_processes(), peer.shows(rows)).0.unwrap()
}

async fn tree(vm: &AgentOs, peer: &mut Peer, rows: Vec<ProcessRow>) -> Vec<ProcessTreeNode> {
    join!(vm.process_tree(), peer.shows(rows)).0.unwrap()
}

/// pid, ppid, pgid, sid of every row.
fn ids(table: &[ProcessInfo]) -> Vec<[u32; 4]> {
    table.iter().map(|info| [info.pid, info.ppid, info.pgid, info.sid]).collect()
}

#[test]
fn d2_a_spawned_process_is_one_row_under_its_synthetic_pid_and_so_for_its_children() {
    scene(async |vm, peer| {
        let pid = vm.spawn("worker", NONE, SpawnOptions::new()).unwrap().pid();
        peer.starts().await;
        let child = ProcessRow { pgid: 7, sid: 7, ..row(9, 7) };
        let rows = vec![row(1, 0), of(pid, row(7, 1)), child];
        let table = table(&vm, peer, rows).await;
        assert_eq!(ids(&table), [[1, 0, 1, 1], [9, pid, pid, pid], [pid, 1, pid, pid]]);
        assert_eq!(table[2].args, ["worker", "", "line\nbreak"]);
        assert_eq!((&*table[2].command, &*table[2].cwd), ("worker (a b)", "/workspace"));
    });
}

#[test]
fn d2_a_pid_that_the_kernel_gave_away_again_belongs_to_the_living() {
    scene(async |vm, peer| {
        let rows = vec![
            row(1, 0),
            exited(of(1_000_000, row(7, 1))),
            row(7, 1),
            row(8, 7),
            exited(of(1_000_001, row(9, 1))),
            of(1_000_002, row(9, 1)),
            row(10, 9),
        ];
        let table = table(&vm, peer, rows).await;
        let parents: Vec<_> = table.iter().map(|info| (info.pid, info.ppid)).collect();
        assert_eq!(
            parents,
            [(1, 0), (7, 1), (8, 7), (10, 1_000_002), (1_000_000, 1), (1_000_001, 1), (1_000_002, 1)]
        );
    });
}

#[test]
fn what_stands_behind_an_exec_keeps_the_pid_it_has_in_the_vm() {
    scene(async |vm, peer| {
        let (result, ()) = join!(vm.exec("ps", ExecOptions::new()), async {
            let guest = peer.starts().await;
            let table = table(&vm, peer, vec![row(1, 0), of(guest.id().0, row(7, 1))]).await;
            assert_eq!(ids(&table), [[1, 0, 1, 1], [7, 1, 7, 7]]);
            peer.exits(&guest, 0).await;
        });
        result.unwrap();
    });
}

#[test]
fn a_real_pid_among_the_synthetic_ones_is_shown_elsewhere() {
    scene(async |vm, peer| {
        let rows = vec![row(1_000_000, 1), of(1_000_000, row(7, 1_000_000))];
        let table = table(&vm, peer, rows).await;
        let shown = 1_001_000_000;
        assert_eq!(ids(&table), [[1_000_000, shown, 1_000_000, 1_000_000], [shown, 1, shown, shown]]);
    });
}

#[test]
fn pages_are_read_to_the_last() {
    scene(async |vm, peer| {
        let (table, ()) = join!(vm.all_processes(), async {
            for (after, next) in [(None, Some(1)), (Some(1), Some(2)), (Some(2), None)] {
                let (id, page) = peer.hears_snapshot().await;
                assert_eq!(page.after, after);
                let rows = vec![row(after.unwrap_or(0) + 1, 0)];
                peer.answer(id, &Response::ProcessTable(ProcessTable { rows, next })).await;
            }
        });
        assert_eq!(table.unwrap().iter().map(|info| info.pid).collect::<Vec<_>>(), [1, 2, 3]);
    });
}

#[test]
fn exited_rows_carry_their_code_and_times() {
    scene(async |vm, peer| {
        let table = table(&vm, peer, vec![exited(of(1_000_000, row(7, 1)))]).await;
        let info = &table[0];
        assert_eq!((info.status, info.exit_code), (ProcessStatus::Exited, Some(1)));
        assert_eq!((info.start_time_ms, info.exit_time_ms), (5, Some(9)));
        let json = serde_json::to_value(info).unwrap();
        assert_eq!(json["exitCode"], 1);
        assert_eq!((&json["startTime"], &json["exitTime"]), (&5.into(), &9.into()));
        assert_eq!(json["status"], "exited");
    });
}

/// How often each pid appears anywhere in a forest.
fn count(forest: &[ProcessTreeNode]) -> BTreeMap<u32, usize> {
    let mut counts = BTreeMap::new();
    let mut pending: Vec<_> = forest.iter().collect();
    while let Some(node) = pending.pop() {
        *counts.entry(node.info.pid).or_default() += 1;
        pending.extend(&node.children);
    }
    counts
}

#[test]
fn d22_no_row_of_the_table_ever_vanishes_from_the_tree() {
    scene(async |vm, peer| {
        let rows = vec![
            row(1, 1),   // its own parent
            row(2, 999), // an unknown one
            row(3, 5),   // a cycle of three
            row(4, 3),
            row(5, 4),
            row(6, 4), // which has a child
            row(7, 2),
            row(7, 2), // and one that is there twice
        ];
        let forest = tree(&vm, peer, rows).await;
        assert_eq!(forest.iter().map(|node| node.info.pid).collect::<Vec<_>>(), [1, 2, 3]);
        let expected = [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 2)];
        assert_eq!(count(&forest), BTreeMap::from(expected));
    });
}

#[test]
fn a_tree_node_serialises_as_its_process_with_children() {
    scene(async |vm, peer| {
        let forest = tree(&vm, peer, vec![row(1, 0), row(2, 1)]).await;
        let json = serde_json::to_value(&forest).unwrap();
        let mut info = serde_json::to_value(&forest[0].info).unwrap();
        info["children"] = serde_json::to_value(&forest[0].children).unwrap();
        assert_eq!(json[0], info);
        assert_eq!(json[0]["children"][0]["pid"], 2);
    });
}
