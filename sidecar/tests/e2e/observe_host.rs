//! What happens on the whole host, where the kernel tells this user.

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::Duration,
};

use agentvm_sdk::{
    AgentOs, CapabilitySupport, EventCategory, ObserverBackend, ObserverConfig, ObserverEvent,
    ObserverEventKind as Kind, ObserverSubscriber, ProcessKey, SpawnOptions, TraceScope, wire::error::Code,
};

use rustix::process::geteuid;

use crate::serve::Server;
use crate::support::{DEADLINE, until, vm, within};

/// Its main thread ends first, with 3; then another ends all with 5.
const MAIN_THREAD_FIRST: &str = "
import ctypes, os, platform, sys, threading, time
def last():
    sys.stdin.read()
    os._exit(5)
threading.Thread(target=last).start()
ctypes.CDLL(None).syscall(60 if platform.machine() == 'x86_64' else 93, 3)
";

/// Observes the host; `None` where it cannot be: that is refused then, with the reason of the matrix.
async fn host(vm: &AgentOs) -> Option<ObserverSubscriber> {
    let host = within(vm.observer_capabilities(TraceScope::SystemWide)).await.unwrap();
    for category in [EventCategory::Lifecycle, EventCategory::File, EventCategory::Network] {
        let cell = host.category(category).unwrap();
        assert_eq!(cell.support, CapabilitySupport::Unavailable);
        assert!(!cell.reason.is_empty(), "{cell:?}");
    }
    let process = host.category(EventCategory::Process).unwrap();
    let observed = within(vm.observe(&ObserverConfig::system_wide())).await;
    if process.support == CapabilitySupport::Unavailable {
        let refused = observed.unwrap_err();
        assert_eq!(refused.code(), Code::UNSUPPORTED);
        assert!(!process.reason.is_empty() && refused.to_string().contains(&process.reason), "{refused}");
        eprintln!("skipped: {}", host.render_summary());
        return None;
    }
    assert_eq!(process.backend, Some(ObserverBackend::Connector));
    for gap in ["short_programs", "stops"] {
        assert!(process.gaps.contains(&gap.to_owned()), "{process:?}");
    }
    let events = observed.unwrap();
    // Those who are there come first.
    let me = of(&events, std::process::id(), "descendant-started").await?;
    assert_eq!(me.kind, Kind::DescendantStarted { adopted: true });
    Some(events)
}

/// The next event; `None` if something was lost: for an ordinary user little waits in the kernel.
async fn next(events: &ObserverSubscriber) -> Option<ObserverEvent> {
    let event = within(events.recv()).await.unwrap();
    if event.kind.as_str() == "loss" {
        assert!(!geteuid().is_root(), "{event:?}");
        eprintln!("skipped: {event:?}");
        return None;
    }
    Some(event)
}

/// The next of a kind about a process.
async fn of(events: &ObserverSubscriber, pid: u32, kind: &str) -> Option<ObserverEvent> {
    loop {
        let event = next(events).await?;
        if event.pid == Some(pid) && event.kind.as_str() == kind {
            return Some(event);
        }
    }
}

/// A process of the host that goes on once its input ends.
struct HostProcess(Child);

impl HostProcess {
    fn start(program: &str, script: &str) -> Self {
        Self(Command::new(program).args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap())
    }

    fn id(&self) -> u32 {
        self.0.id()
    }

    fn end_input(&mut self) {
        drop(self.0.stdin.take());
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split(' ').nth(19).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_process_of_the_host_is_told_with_program_and_code() {
    async {
        let vm = vm().await;
        let events = host(&vm).await?;
        let mut child = HostProcess::start("sh", "read line; exit 9");
        let pid = child.id();
        let key = ProcessKey { pid, start_ticks: start_ticks(pid) };
        let parent = ProcessKey { pid: std::process::id(), start_ticks: start_ticks(std::process::id()) };
        let started = of(&events, pid, "descendant-started").await?;
        assert_eq!((&started.kind, started.key), (&Kind::DescendantStarted { adopted: false }, Some(key)));
        assert_eq!((started.parent_key, started.category), (Some(parent), EventCategory::Process));
        let executed = of(&events, pid, "descendant-exec").await?;
        assert!(executed.kind.argv().eq(["sh", "-c", "read line; exit 9"]), "{executed:?}");
        assert!(executed.kind.path().unwrap().is_absolute(), "{executed:?}");
        child.end_input();
        let exited = of(&events, pid, "descendant-exited").await?;
        assert_eq!(
            (exited.kind.folded_code(), exited.key, exited.parent_key),
            (Some(9), Some(key), Some(parent))
        );

        let mut killed = HostProcess::start("sh", "read line");
        killed.0.kill().unwrap();
        assert_eq!(of(&events, killed.id(), "descendant-exited").await?.kind.folded_code(), Some(-9));

        within(vm.dispose_with_grace(Duration::from_secs(30))).await.unwrap();
        let mut last = None;
        while let Some(event) = within(events.recv()).await {
            last = Some(event.kind);
        }
        assert_eq!(last, Some(Kind::Complete), "it ends with the VM that it was asked of");
        Some(())
    }
    .await;
}

#[tokio::test]
async fn the_end_of_a_main_thread_is_not_that_of_its_process() {
    async {
        let vm = vm().await;
        let events = host(&vm).await?;
        let mut child = HostProcess::start("python3", MAIN_THREAD_FIRST);
        of(&events, child.id(), "descendant-exec").await?;
        let main_thread_has_ended = || async {
            fs::read_to_string(format!("/proc/{}/stat", child.id())).is_ok_and(|stat| stat.contains(") Z "))
        };
        until("the main thread has ended", DEADLINE, main_thread_has_ended).await;
        child.end_input();
        assert_eq!(of(&events, child.id(), "descendant-exited").await?.kind.folded_code(), Some(5));
        let behind = HostProcess::start("sh", "read line");
        loop {
            let event = next(&events).await?;
            assert_ne!(event.pid, Some(child.id()), "{event:?}");
            if event.pid == Some(behind.id()) {
                break;
            }
        }
        Some(())
    }
    .await;
}

#[tokio::test]
async fn one_reader_serves_all_and_goes_with_the_last() {
    async {
        let server = Server::start_system_wide("host-reader").await;
        let vm = server.vm().await;
        let one = host(&vm).await?;
        let other = host(&vm).await?;
        let readers = || async {
            let threads = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
            let names =
                threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("comm")).ok());
            names.filter(|name| name == "host-events\n").count()
        };
        assert_eq!(readers().await, 1);
        drop(one);
        let child = HostProcess::start("sh", "exit 4");
        assert_eq!(of(&other, child.id(), "descendant-exited").await?.kind.folded_code(), Some(4));
        drop(other);
        until("the reader is gone", DEADLINE, || async { readers().await == 0 }).await;
        Some(())
    }
    .await;
}

#[tokio::test]
async fn clients_of_others_see_the_host_only_where_that_is_allowed() {
    let server = Server::start("host-forbidden").await;
    let vm = server.vm().await;
    let host = within(vm.observer_capabilities(TraceScope::SystemWide)).await.unwrap();
    for cell in &host.categories {
        assert_eq!(cell.support, CapabilitySupport::Unavailable);
        assert!(cell.reason.contains("--allow-system-wide"), "{cell:?}");
    }
    let refused = within(vm.observe(&ObserverConfig::system_wide())).await.unwrap_err();
    assert_eq!(refused.code(), Code::PERMISSION_DENIED);
    assert!(refused.to_string().contains("--allow-system-wide"), "{refused}");
}

#[tokio::test]
async fn one_process_is_not_the_whole_host() {
    let vm = vm().await;
    let options = SpawnOptions::new().observe(ObserverConfig::system_wide());
    let refused = vm.spawn("true", [""; 0], options).unwrap_err();
    assert_eq!(refused.code(), Code::INVALID_ARGUMENT);
}
