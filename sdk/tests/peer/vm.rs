//! A VM's life as its handle sees it: created, shared, disposed of, dropped.

use agentvm_sdk::{
    AgentOs, AgentOsConfig, ClientError, ExecOptions, SidecarConfig, SpawnOptions,
    wire::{
        error::{Code, Rejection},
        id::VmId,
        message::{Event, Request, Scope},
        session::BUILD,
        vm::{VmState, VmStateChanged},
    },
};
use futures_util::FutureExt as _;
use tokio::join;

use crate::{
    NONE,
    scene::{caught_up, scene, stage},
    sidecar::{Heard, vm_created},
};

async fn create(sidecar: SidecarConfig) -> Result<AgentOs, ClientError> {
    AgentOs::create(AgentOsConfig::new().sidecar(sidecar)).await
}

#[test]
fn a_sidecar_of_another_build_is_refused_and_both_are_named() {
    stage(async |sidecar, peer| {
        let (created, ()) = join!(create(sidecar), peer.welcomes("0.0.1+other"));
        let error = created.unwrap_err();
        let ClientError::BuildMismatch { client, sidecar } = &error else { panic!("{error}") };
        assert_eq!((&**client, &**sidecar), (BUILD, "0.0.1+other"));
    });
}

#[test]
fn a_sidecar_that_refuses_hello_is_quoted() {
    stage(async |sidecar, peer| {
        let (created, ()) = join!(create(sidecar), async {
            let id = peer.hears_hello().await;
            peer.rejects(id, Rejection::new(Code::VERSION_MISMATCH, "protocol 7 only")).await;
        });
        assert_eq!(created.unwrap_err().to_string(), "protocol 7 only");
    });
}

#[test]
fn a_vm_that_cannot_be_built_hands_on_the_step_that_failed() {
    stage(async |sidecar, peer| {
        let (created, ()) = join!(create(sidecar), async {
            peer.welcomes(BUILD).await;
            let id = peer.hears_create().await;
            let mut rejection = Rejection::new(Code::PERMISSION_DENIED, "unshare: not permitted");
            rejection.details.step = Some("unshare".to_owned());
            peer.rejects(id, rejection).await;
        });
        let ClientError::Rejected(rejection) = created.unwrap_err() else { panic!("expected a rejection") };
        assert_eq!(rejection.details.step.as_deref(), Some("unshare"));
    });
}

#[test]
fn a_vm_that_fails_in_the_breath_of_its_creation_is_known_to_have_failed() {
    stage(async |sidecar, peer| {
        let (created, ()) = join!(create(sidecar), async {
            peer.opens().await;
            let failed = VmStateChanged { state: VmState::Failed, reason: Some("stillborn".to_owned()) };
            peer.event(Event::VmState(failed)).await;
        });
        let vm = created.unwrap();
        // Nothing is asked of it: the news may still be on its way.
        let error = vm.exec("true", ExecOptions::new()).await.unwrap_err();
        assert_eq!(error.to_string(), "VM failed: stillborn");
    });
}

#[test]
fn a_create_that_is_dropped_disposes_of_the_vm_that_comes_too_late() {
    stage(async |sidecar, peer| {
        let (sidecar, ()) = join!(AgentOs::create_sidecar(&sidecar), peer.welcomes(BUILD));
        let sidecar = sidecar.unwrap();
        let config = AgentOsConfig::new().connection(sidecar.clone());
        let mut create = Box::pin(AgentOs::create(config));
        assert!((&mut create).now_or_never().is_none());
        let id = peer.hears_create().await;
        drop(create);
        peer.answer(id, &vm_created(peer.vm)).await;
        peer.disposes().await;
    });
}

#[test]
fn a_connect_that_is_dropped_closes_the_connection() {
    stage(async |sidecar, peer| {
        // The slower of the two is dropped when the other is done.
        tokio::select! {
            _ = AgentOs::create_sidecar(&sidecar) => panic!("nobody answered"),
            _ = peer.hears_hello() => {}
        }
        peer.hears_the_end().await;
    });
}

#[test]
fn a_second_dispose_is_a_no_op_and_later_calls_are_disposed() {
    scene(async |vm, peer| {
        let process = vm.spawn("worker", NONE, SpawnOptions::new()).unwrap();
        peer.starts().await;
        let (disposed, ()) = join!(vm.dispose(), peer.disposes());
        disposed.unwrap();
        vm.dispose().await.unwrap();

        assert!(matches!(vm.exec("true", ExecOptions::new()).await, Err(ClientError::Disposed)));
        assert!(matches!(vm.spawn("true", NONE, SpawnOptions::new()), Err(ClientError::Disposed)));
        assert!(matches!(vm.all_processes().await, Err(ClientError::Disposed)));
        assert!(matches!(vm.process_tree().await, Err(ClientError::Disposed)));
        assert!(matches!(process.wait().await, Err(ClientError::Disposed)));
        process.kill();
        assert!(!vm.list_processes()[0].running);
        drop(vm);
        // Nothing was asked for in vain, and the VM is not disposed of twice.
        while !matches!(peer.hears().await, Heard::Closed(_)) {}
    });
}

#[test]
fn a_dispose_that_is_dropped_still_ends_the_vm() {
    scene(async |vm, peer| {
        assert!(vm.dispose().now_or_never().is_none());
        peer.disposes().await;
        assert!(matches!(vm.all_processes().await, Err(ClientError::Disposed)));
    });
}

#[test]
fn d28_the_last_handle_takes_the_vm_and_the_connection_with_it_whatever_else_is_held() {
    scene(async |vm, peer| {
        let options = SpawnOptions::new().on_stdout(|_| {});
        let process = vm.spawn("worker", NONE, options).unwrap();
        let guest = peer.starts().await;
        let stdout = process.stdout();
        vm.on_process_exit(process.pid(), |_| {}).unwrap().detach();
        let clone = vm.clone();
        drop(vm);
        caught_up(&clone, peer).await;

        drop(clone);
        peer.hears_dispose().await;
        loop {
            match peer.hears().await {
                Heard::Closed(code) => break assert_eq!(code, Some(1000)),
                Heard::Reset(_) | Heard::Stop(_) => {}
                other => panic!("nobody asked for {other:?}"),
            }
        }
        assert!(matches!(process.wait().await, Err(ClientError::Disposed)));
        drop((stdout, guest));
    });
}

#[test]
fn d28_a_sidecar_that_reads_nothing_any_more_is_left_all_the_same() {
    stage(async |sidecar, peer| {
        let (vm, ()) = join!(create(sidecar), peer.opens());
        let vm = vm.unwrap();
        let process = vm.spawn("cat", NONE, SpawnOptions::new()).unwrap();
        // More than the socket holds: the writer is stuck in the middle of it.
        process.write_stdin(vec![0; 256 << 10]).unwrap();
        drop(vm);
        peer.is_left().await;
    });
}

#[test]
fn vms_of_one_connection_live_and_die_apart() {
    scene(async |vm, peer| {
        let other_id = VmId::random();
        let beside = AgentOsConfig::new().connection(vm.sidecar().clone());
        let (other, ()) = join!(AgentOs::create(beside), peer.opens_vm(other_id));
        let other = other.unwrap();
        let mine = vm.spawn("mine", NONE, SpawnOptions::new()).unwrap();
        let my_guest = peer.starts().await;
        let theirs = other.spawn("theirs", NONE, SpawnOptions::new()).unwrap();
        let (request, scope, Request::Execute(execute)) = peer.request().await else {
            panic!("expected execute")
        };
        assert_eq!(scope, Scope::vm(other_id));
        assert_eq!(mine.pid(), theirs.pid(), "each VM counts for itself");
        peer.started(&crate::guest::Guest { request, execute }).await;

        let failed = VmStateChanged { state: VmState::Failed, reason: Some("alone".to_owned()) };
        peer.event_in(Scope::vm(other_id), Event::VmState(failed)).await;
        assert_eq!(theirs.wait().await.unwrap_err().to_string(), "VM failed: alone");
        peer.exits(&my_guest, 0).await;
        assert_eq!(mine.wait().await.unwrap().code, 0);
    });
}
