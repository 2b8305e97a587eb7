//! The sidecar dies, breaks the protocol, or the VM fails: everyone who waits learns why, at once, and so does
//! everyone who comes later.

use agentvm_sdk::{
    AgentOs, AgentOsConfig, ClientError, ExecOptions, ExitStatus, Output, OutputFrom, OutputStream, Overflow,
    SpawnOptions, StreamLost,
    wire::{
        error::{Code, Rejection},
        id::{StreamId, VmId},
        message::{Event, Scope},
        session::BUILD,
        stdio::Header,
        vm::{VmState, VmStateChanged},
    },
};
use futures_util::FutureExt as _;
use tokio::{
    io::AsyncWriteExt as _,
    join,
    sync::oneshot::{self, Receiver},
};

use crate::{
    NONE,
    guest::Guest,
    scene::{caught_up, scene, stage, started},
    sidecar::{Heard, Peer},
};

/// One caller of every kind that waits, told apart by what it got.
async fn everyone_waits(vm: &AgentOs, peer: &mut Peer, end: impl AsyncFnOnce(&mut Peer)) -> Vec<ClientError> {
    let (running, guest) = started(vm, peer).await;
    peer.writes(guest.stdout(), b"half").await;
    let starting = vm.spawn("late", NONE, SpawnOptions::new().on_stdout(|_| {})).unwrap();
    peer.hears_execute().await;
    caught_up(vm, peer).await;

    let handled = exit_handler(vm, running.pid());
    let (mut writer, input) = (running.stdin(), vec![0; 4 << 20]);
    let (mut dropping, mut waiting) =
        (running.stdout(), running.output_from(OutputStream::Stdout, OutputFrom::Start, Overflow::Wait));
    let (exec, snapshot, written, wait, wait_starting, heard, ()) = join!(
        vm.exec("sleep 1000", ExecOptions::new()),
        vm.all_processes(),
        writer.write_all(&input),
        running.wait(),
        vm.wait_process(starting.pid()),
        handled,
        async {
            peer.hears_execute().await;
            peer.hears_snapshot().await;
            end(peer).await;
        },
    );
    for stream in [&mut dropping, &mut waiting] {
        assert_eq!(stream.next().await, Some(Ok(Output::Data("half".into()))));
        assert_eq!(stream.next().await, Some(Err(StreamLost)));
        assert_eq!(stream.next().await, None);
    }
    assert_eq!(written.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    assert!(matches!(running.write_stdin("x"), Err(ClientError::StdinClosed)));
    for process in [&running, &starting] {
        let info = vm.get_process(process.pid()).unwrap();
        assert_eq!((info.running, info.exit_code), (false, None), "no code is invented");
        assert!(info.failure.is_some());
        process.kill();
    }
    vec![
        exec.unwrap_err(),
        snapshot.unwrap_err(),
        wait.unwrap_err(),
        wait_starting.unwrap_err(),
        heard.unwrap().unwrap_err(),
        vm.exec("true", ExecOptions::new()).await.unwrap_err(),
        vm.exec_argv("true", NONE, ExecOptions::new()).await.unwrap_err(),
        vm.spawn("true", NONE, SpawnOptions::new()).unwrap_err(),
        vm.all_processes().await.unwrap_err(),
        vm.process_tree().await.unwrap_err(),
        vm.wait_process(running.pid()).await.unwrap_err(),
    ]
}

fn exit_handler(vm: &AgentOs, pid: u32) -> Receiver<Result<ExitStatus, ClientError>> {
    let (tell, told) = oneshot::channel();
    vm.on_process_exit(pid, move |outcome| tell.send(outcome).unwrap()).unwrap().detach();
    told
}

/// The one text all of them have.
fn common(errors: &[ClientError]) -> String {
    let text = errors[0].to_string();
    assert!(errors.iter().all(|error| error.to_string() == text), "{errors:?}");
    text
}

#[test]
fn d6_d7_the_sidecar_dies_and_everyone_who_waits_or_comes_later_gets_the_same_typed_error() {
    scene(async |vm, peer| {
        let errors = everyone_waits(&vm, peer, async |peer| peer.dies()).await;
        assert!(errors.iter().all(|error| matches!(error, ClientError::Disconnected { .. })), "{errors:?}");
        let cause = common(&errors);
        let beside = AgentOsConfig::new().connection(vm.sidecar().clone());
        assert_eq!(AgentOs::create(beside).await.unwrap_err().to_string(), cause);
        vm.dispose().await.unwrap();
    });
}

#[test]
fn d6_a_process_that_has_closed_all_its_streams_is_not_forgotten_when_the_sidecar_dies() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        process.close_stdin();
        assert!(peer.hears_stdin(&guest).await.2);
        peer.finishes(guest.stdout()).await;
        peer.finishes(guest.stderr()).await;
        caught_up(&vm, peer).await;
        peer.dies();
        assert!(matches!(process.wait().await, Err(ClientError::Disconnected { .. })));
    });
}

#[test]
fn d6_a_sidecar_that_closes_the_connection_is_quoted() {
    scene(async |vm, peer| {
        let errors = everyone_waits(&vm, peer, async |peer| peer.closes(1001, "going down").await).await;
        assert_eq!(common(&errors), "disconnected: sidecar closed the connection: 1001 going down");
    });
}

#[test]
fn d6_a_dispose_that_waits_while_the_sidecar_dies_returns() {
    scene(async |vm, peer| {
        let (disposed, ()) = join!(vm.dispose(), async {
            peer.hears_dispose().await;
            peer.dies();
        });
        disposed.unwrap();
        assert!(matches!(vm.all_processes().await, Err(ClientError::Disposed)));
    });
}

#[test]
fn d6_a_create_that_waits_while_the_sidecar_dies_fails() {
    stage(async |sidecar, peer| {
        let (created, ()) = join!(AgentOs::create(AgentOsConfig::new().sidecar(sidecar)), async {
            peer.welcomes(BUILD).await;
            peer.hears_create().await;
            peer.dies();
        });
        assert!(matches!(created.unwrap_err(), ClientError::Disconnected { .. }));
    });
}

#[test]
fn a_vm_that_fails_tells_its_reason_to_everyone_and_the_connection_lives_on() {
    scene(async |vm, peer| {
        let failed = VmStateChanged { state: VmState::Failed, reason: Some("init was killed".to_owned()) };
        let errors = everyone_waits(&vm, peer, async |peer| peer.event(Event::VmState(failed)).await).await;
        assert_eq!(common(&errors), "VM failed: init was killed");
        vm.dispose().await.unwrap();
        let later = vm.spawn("true", NONE, SpawnOptions::new()).unwrap_err();
        assert_eq!(later.to_string(), "VM failed: init was killed", "the first cause counts");

        let beside = AgentOsConfig::new().connection(vm.sidecar().clone());
        let (other, ()) = join!(AgentOs::create(beside), async {
            peer.opens_vm(VmId::random()).await;
        });
        other.unwrap();
    });
}

#[test]
fn dispose_ends_everyone_who_waits_without_waiting_for_the_sidecar() {
    scene(async |vm, peer| {
        let disposer = vm.clone();
        let dispose = async |peer: &mut Peer| {
            // The answer comes when everyone else has been told.
            assert!(disposer.dispose().now_or_never().is_none());
            peer.hears_dispose().await;
        };
        let errors = everyone_waits(&vm, peer, dispose).await;
        assert_eq!(common(&errors), "VM is disposed");
    });
}

#[test]
fn an_exit_whose_output_was_all_here_is_still_told_when_the_sidecar_dies() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let _unread = process.output_from(OutputStream::Stdout, OutputFrom::Start, Overflow::Wait);
        peer.writes(guest.stdout(), b"all").await;
        peer.exits(&guest, 0).await;
        caught_up(&vm, peer).await;
        peer.dies();
        assert_eq!(process.wait().await.unwrap().code, 0);
        assert_eq!(vm.get_process(process.pid()).unwrap().failure, None);
    });
}

#[test]
fn d7_an_exit_whose_output_never_came_is_not_told() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        peer.exited(guest.exit(3, 0)).await;
        peer.writes(guest.stdout(), b"ha").await;
        caught_up(&vm, peer).await;
        peer.dies();
        assert!(matches!(process.wait().await, Err(ClientError::Disconnected { .. })));
    });
}

#[test]
fn the_news_that_come_after_the_end_change_nothing() {
    scene(async |vm, peer| {
        let process = vm.spawn("late", NONE, SpawnOptions::new()).unwrap();
        let guest = peer.hears_execute().await;
        let failed = VmStateChanged { state: VmState::Failed, reason: Some("first".to_owned()) };
        peer.event(Event::VmState(failed)).await;
        process.wait().await.unwrap_err();
        peer.finds_nothing_to_start(&guest).await;
        let failed = VmStateChanged { state: VmState::Failed, reason: Some("second".to_owned()) };
        peer.event(Event::VmState(failed)).await;
        let beside = AgentOsConfig::new().connection(vm.sidecar().clone());
        let (other, ()) = join!(AgentOs::create(beside), peer.opens_vm(VmId::random()));
        other.unwrap();

        assert_eq!(vm.get_process(process.pid()).unwrap().failure.unwrap(), "VM failed: first");
        assert_eq!(process.wait().await.unwrap_err().to_string(), "VM failed: first");
    });
}

/// What comes of a started process when its sidecar breaks a rule.
fn violation(rule: &str, broken: impl AsyncFnOnce(&mut Peer, &Guest)) {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let _unread = process.output_from(OutputStream::Stderr, OutputFrom::Start, Overflow::Wait);
        broken(peer, &guest).await;
        let error = process.wait().await.unwrap_err();
        assert!(matches!(error, ClientError::Disconnected { .. }), "{error}");
        assert!(error.to_string().contains(rule), "{error}");
        assert_eq!(vm.all_processes().await.unwrap_err().to_string(), error.to_string());
        let closed = loop {
            if let Heard::Closed(code) = peer.hears().await {
                break code;
            }
        };
        assert_eq!(closed, Some(1002), "the sidecar is told why");
    });
}

#[test]
fn a_hole_in_a_stream_ends_the_connection() {
    violation("has a hole: 5 follows 0", async |peer, guest| {
        peer.frame(Header { stream: guest.stdout(), offset: 5, fin: false }, b"late").await;
    });
}

#[test]
fn data_beyond_credit_ends_the_connection() {
    violation("credit is 262144", async |peer, guest| {
        peer.floods(guest.stderr(), 256 << 10).await;
        peer.writes(guest.stderr(), b"x").await;
    });
}

#[test]
fn data_for_a_stream_that_was_never_opened_ends_the_connection() {
    violation("stream 99 was never opened", async |peer, _| {
        peer.frame(Header { stream: StreamId(99), offset: 0, fin: false }, b"x").await;
    });
}

#[test]
fn text_that_is_no_message_ends_the_connection() {
    violation("a text message is a JSON object", async |peer, _| peer.text("no JSON".to_owned()).await);
}

#[test]
fn what_a_later_version_may_say_is_let_pass() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        peer.unknown_event().await;
        let state = VmStateChanged { state: VmState::Ready, reason: None };
        peer.event(Event::VmState(state)).await;
        peer.exits(&guest, 0).await;
        assert_eq!(process.wait().await.unwrap().code, 0);
    });
}

#[test]
fn d19_what_is_said_of_a_foreign_vm_or_an_unknown_process_is_not_believed() {
    scene(async |vm, peer| {
        let (process, guest) = started(&vm, peer).await;
        let exit = || Event::ProcessExited(guest.exit(0, 0));
        let failed =
            || Event::VmState(VmStateChanged { state: VmState::Failed, reason: Some("lie".to_owned()) });
        for scope in [Scope::SESSION, Scope::vm(VmId::random())] {
            peer.event_in(scope, exit()).await;
            peer.event_in(scope, failed()).await;
        }
        let mut unknown = guest.exit(0, 0);
        unknown.process.0 += 1;
        peer.exited(unknown).await;
        caught_up(&vm, peer).await;
        assert!(vm.get_process(process.pid()).unwrap().running);

        peer.exits(&guest, 6).await;
        assert_eq!(process.wait().await.unwrap().code, 6);
    });
}

#[test]
fn a_request_that_is_rejected_hands_its_code_on() {
    scene(async |vm, peer| {
        let (rows, ()) = join!(vm.all_processes(), async {
            let (id, _) = peer.hears_snapshot().await;
            peer.rejects(id, Rejection::new(Code::DEADLINE_EXCEEDED, "the table is stuck")).await;
        });
        let error = rows.unwrap_err();
        assert_eq!(error.code(), Code::DEADLINE_EXCEEDED);
        assert_eq!(error.to_string(), "the table is stuck");

        let (result, ()) = join!(vm.exec("true", ExecOptions::new()), async {
            let guest = peer.hears_execute().await;
            peer.rejects(guest.request, Rejection::new(Code::RESOURCE_EXHAUSTED, "too many")).await;
        });
        assert_eq!(result.unwrap_err().code(), Code::RESOURCE_EXHAUSTED);
    });
}
