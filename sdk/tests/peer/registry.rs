//! The registry of what a handle spawned.

use agentvm_sdk::{AgentOs, ClientError, ExecOptions, Process, ProcessLimits, SpawnOptions};
use tokio::{join, sync::oneshot};

use crate::{
    NONE,
    guest::{EXITED_AT_MS, Guest, STARTED_AT_MS},
    scene::{caught_up, scene, scene_with},
    sidecar::Peer,
};

fn at_most(spawned: u64) -> ProcessLimits {
    let mut limits = ProcessLimits::default();
    limits.spawned = spawned;
    limits
}

fn spawn(vm: &AgentOs) -> Result<Process, ClientError> {
    vm.spawn("worker", NONE, SpawnOptions::new())
}

async fn spawned(vm: &AgentOs, peer: &mut Peer) -> (u32, Guest) {
    let pid = spawn(vm).unwrap().pid();
    (pid, peer.starts().await)
}

fn pids(vm: &AgentOs) -> Vec<u32> {
    vm.list_processes().iter().map(|info| info.pid).collect()
}

#[test]
fn d27_the_list_is_in_spawn_order() {
    scene(async |vm, peer| {
        for _ in 0..300 {
            spawned(&vm, peer).await;
        }
        assert_eq!(pids(&vm), (1_000_000..1_000_300).collect::<Vec<_>>());
    });
}

#[test]
fn an_entry_tells_the_whole_story_of_its_process() {
    scene(async |vm, peer| {
        let pid = vm.spawn("worker", ["-v", ""], SpawnOptions::new()).unwrap().pid();
        let guest = peer.starts().await;
        caught_up(&vm, peer).await;
        let info = vm.get_process(pid).unwrap();
        assert_eq!(
            (info.pid, &*info.command, &*info.args),
            (pid, "worker", &["-v".into(), String::new()][..])
        );
        assert!(info.running && info.exit_code.is_none() && info.failure.is_none());

        peer.exits(&guest, 5).await;
        vm.wait_process(pid).await.unwrap();
        let json = serde_json::to_value(vm.get_process(pid).unwrap()).unwrap();
        assert_eq!((&json["running"], &json["exitCode"]), (&false.into(), &5.into()));
        assert_eq!((&json["startedAt"], &json["exitedAt"]), (&STARTED_AT_MS.into(), &EXITED_AT_MS.into()));
    });
}

#[test]
fn d20_at_the_limit_the_oldest_ended_entries_make_room_and_live_ones_never_do() {
    scene_with(at_most(3), async |vm, peer| {
        let (live, _) = spawned(&vm, peer).await;
        let mut ended = Vec::new();
        for _ in 0..2 {
            let (pid, guest) = spawned(&vm, peer).await;
            peer.exits(&guest, 0).await;
            caught_up(&vm, peer).await;
            ended.push(pid);
        }
        let (newest, _) = spawned(&vm, peer).await;
        assert_eq!(pids(&vm), [live, ended[1], newest]);
        assert!(matches!(vm.get_process(ended[0]), Err(ClientError::ProcessNotFound(_))));

        let (last, _) = spawned(&vm, peer).await;
        assert_eq!(pids(&vm), [live, newest, last]);
    });
}

#[test]
fn d20_where_every_entry_is_live_a_spawn_is_refused_with_the_limit() {
    scene_with(at_most(2), async |vm, peer| {
        spawned(&vm, peer).await;
        let (_, guest) = spawned(&vm, peer).await;
        let error = spawn(&vm).unwrap_err();
        assert!(matches!(error, ClientError::ResourceLimit { limit: 2, observed: 2, .. }), "{error}");

        peer.exits(&guest, 0).await;
        caught_up(&vm, peer).await;
        spawn(&vm).unwrap();
    });
}

#[test]
fn d20_an_entry_that_a_handle_holds_is_kept() {
    scene_with(at_most(2), async |vm, peer| {
        let held = spawn(&vm).unwrap();
        let guest = peer.starts().await;
        peer.exits(&guest, 0).await;
        held.wait().await.unwrap();
        let (other, guest) = spawned(&vm, peer).await;
        peer.exits(&guest, 0).await;
        vm.wait_process(other).await.unwrap();

        let (new, guest) = spawned(&vm, peer).await;
        assert_eq!(pids(&vm), [held.pid(), new]);
        let again = vm.process(held.pid()).unwrap();
        drop(held);
        assert!(matches!(spawn(&vm), Err(ClientError::ResourceLimit { .. })), "a second handle holds it");

        drop(again);
        peer.exits(&guest, 0).await;
        spawned(&vm, peer).await;
        assert_eq!(pids(&vm).len(), 2);
    });
}

#[test]
fn a_callback_ends_with_its_entry_though_a_descendant_still_holds_the_output() {
    scene_with(at_most(1), async |vm, peer| {
        let (held, freed) = oneshot::channel::<()>();
        let options = SpawnOptions::new().on_stdout(move |_| assert!(!held.is_closed()));
        let pid = vm.spawn("worker", NONE, options).unwrap().pid();
        let guest = peer.starts().await;
        peer.exits(&guest, 0).await;
        vm.wait_process(pid).await.unwrap();
        let (_, other) = spawned(&vm, peer).await;
        freed.await.unwrap_err();
        peer.exits(&other, 0).await;
    });
}

#[test]
fn an_exec_takes_no_slot_and_no_pid_of_the_registry() {
    scene_with(at_most(1), async |vm, peer| {
        spawned(&vm, peer).await;
        let (result, process) = join!(vm.exec("true", ExecOptions::new()), async {
            let guest = peer.starts().await;
            peer.exits(&guest, 0).await;
            guest.id().0
        });
        result.unwrap();
        assert!(matches!(vm.get_process(process), Err(ClientError::ProcessNotFound(_))));
        assert!(matches!(vm.kill_process(process), Err(ClientError::ProcessNotFound(_))));
    });
}

#[test]
fn a_pid_that_was_never_given_is_not_found_by_any_method() {
    scene(async |vm, _| {
        let not_found = |error| match error {
            ClientError::ProcessNotFound(99) => "Process not found: 99",
            other => panic!("{other}"),
        };
        not_found(vm.get_process(99).unwrap_err());
        not_found(vm.process(99).unwrap_err());
        not_found(vm.write_process_stdin(99, "x").unwrap_err());
        not_found(vm.close_process_stdin(99).unwrap_err());
        not_found(vm.on_process_stdout(99).unwrap_err());
        not_found(vm.on_process_stderr(99).unwrap_err());
        not_found(vm.on_process_exit(99, |_| {}).unwrap_err());
        not_found(vm.stop_process(99).unwrap_err());
        not_found(vm.kill_process(99).unwrap_err());
        let error = vm.wait_process(99).await.unwrap_err();
        let text = error.to_string();
        assert_eq!(text, not_found(error));
    });
}
