//! A session that outlives its program: the file that keeps it, and a client that is stopped for a while.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use agentvm_sdk::{
    AgentOs,
    plugin::{
        FileStore, PluginHost,
        monitor::{MonitorFactory, MonitorState},
    },
};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    monitor::{ended, events_until, lasting, start, status, stop, take},
    monitor_flood::soak_or_gate,
    support::{program, vm, within},
};

/// A folder of a test's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("agentvm-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

async fn kept(vm: &AgentOs, path: &Path) -> PluginHost {
    let host = PluginHost::builder(vm, "session").plugin(MonitorFactory::new()).store(FileStore::new(path));
    within(host.start()).await.unwrap()
}

#[tokio::test]
async fn a_session_goes_on_in_a_new_program_and_a_new_vm() {
    let folder = Folder::new("session");
    let path = folder.0.join("state.json");
    {
        let vm = vm().await;
        let host = kept(&vm, &path).await;
        let mut spec = lasting("goes-on", "echo \"token $TOKEN\"; sleep 600");
        spec.env.insert("TOKEN".to_owned(), "secret".to_owned());
        spec.restart_on_restore = true;
        start(&host, spec).await;
        events_until(&host, |event| event.message == "token secret").await;
        take(&host).await;
        start(&host, lasting("stopped", "sleep 600")).await;
        stop(&host, "stopped").await;
        start(&host, lasting("done", "echo untaken; exit 4")).await;
        ended(&host, "done").await;
        start(&host, lasting("cut-off", "sleep 600")).await;
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // Killed: nothing is saved in order, and the last start was saved before it was answered.
    }
    let vm = vm().await;
    let host = kept(&vm, &path).await;
    let events = events_until(&host, |event| event.message == "token secret").await;
    let told: Vec<(&str, &str)> =
        events.iter().map(|event| (event.monitor_id.as_str(), event.message.as_str())).collect();
    let interrupted = "Monitor interrupted: its session ended";
    let expected = [
        ("stopped", "Monitor stopped"),
        ("done", "untaken"),
        ("done", "Monitor failed with status 4"),
        ("cut-off", interrupted),
        ("goes-on", interrupted),
        ("goes-on", "token secret"),
    ];
    assert_eq!(told, expected);
    assert!(events.is_sorted_by_key(|event| event.sequence));
    let states = [
        ("goes-on", MonitorState::Running),
        ("stopped", MonitorState::Stopped),
        ("done", MonitorState::Failed),
        ("cut-off", MonitorState::Idle),
    ];
    for (id, state) in states {
        assert_eq!(status(&host, id).await.state, state, "{id}");
    }
    let wakes = take(&host).await.wakes;
    let done = wakes.iter().find(|wake| wake.monitor_id == "done").unwrap();
    assert_eq!(done.text, "Monitor event \"done\": untaken\nMonitor failed with status 4");
    within(host.shutdown()).await.unwrap();
}

/// The example, watching a command.
struct Watching {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Watching {
    fn start(state: &Path, command: &str) -> Self {
        let mut child = Command::new(program("monitor"))
            .arg("--state")
            .arg(state)
            .args(["--", command])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The text of the next event; `None` at the end of the program.
    fn event(&mut self) -> Option<String> {
        loop {
            let line = self.lines.next()?.unwrap();
            // Wakes stand further in.
            if let Some((number, text)) = line.trim_start().split_once(' ')
                && number.parse::<u64>().is_ok()
                && !line.starts_with("       ")
            {
                return Some(text.to_owned());
            }
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs what blocks on a child's output.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    within(tokio::task::spawn_blocking(work)).await.unwrap()
}

#[tokio::test]
async fn the_example_survives_its_own_end_with_a_state() {
    let folder = Folder::new("example");
    let state = folder.0.join("state.json");
    blocking(move || {
        let command = "echo begun; while :; do sleep 0.05; done";
        let mut first = Watching::start(&state, command);
        assert_eq!(first.event().as_deref(), Some("begun"));
        first.child.kill().unwrap();
        first.child.wait().unwrap();
        let mut second = Watching::start(&state, command);
        let mut told = vec![second.event().unwrap(), second.event().unwrap()];
        // Printed and not yet told to be: printed again rather than never.
        if told[0] == "begun" {
            told = vec![told.remove(1), second.event().unwrap()];
        }
        assert_eq!(told, ["Monitor interrupted: its session ended", "begun"]);
        second.signal(Signal::INT);
        assert_eq!(second.child.wait().unwrap().code(), Some(1));
        let mut third = Watching::start(&state, "exit 4");
        let mut last = None;
        while let Some(text) = third.event() {
            last = Some(text);
        }
        assert_eq!(last.as_deref(), Some("Monitor failed with status 4"));
        assert_eq!(third.child.wait().unwrap().code(), Some(4));
    })
    .await;
}

#[tokio::test]
async fn c76_a_client_that_is_stopped_for_a_while_goes_on_without_loss() {
    let (pause, numbers) = soak_or_gate((Duration::from_secs(60), 350), (Duration::from_secs(2), 30));
    let folder = Folder::new("stopped");
    let state = folder.0.join("state.json");
    let command = format!("n=0; while [ $n -lt {numbers} ]; do n=$((n + 1)); echo $n; sleep 0.2; done");
    let mut watching = blocking(move || {
        let mut watching = Watching::start(&state, &command);
        assert_eq!(watching.event().as_deref(), Some("1"));
        watching.signal(Signal::STOP);
        watching
    })
    .await;
    tokio::time::sleep(pause).await;
    watching.signal(Signal::CONT);
    blocking(move || {
        for number in 2..=numbers {
            assert_eq!(watching.event(), Some(number.to_string()));
        }
        assert_eq!(watching.event().as_deref(), Some("Monitor exited"));
        assert_eq!(watching.event(), None);
    })
    .await;
}
