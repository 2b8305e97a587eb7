//! What the tests share: a VM in a sidecar of its own, deadlines, and a look at the host's processes.

use std::{
    collections::HashSet,
    fs,
    future::Future,
    path::PathBuf,
    time::{Duration, Instant},
};

use agentvm_sdk::{
    AgentOs, AgentOsConfig, ExecOptions, ExecResult, Output, Process, Sidecar, SidecarConfig, SpawnOptions,
};

/// Nothing here takes long, however busy the machine; what does not end hangs.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Where the programs of this workspace are: the gate says so, else two folders up from this test.
pub(crate) fn program(name: &str) -> PathBuf {
    let folder = std::env::var_os("AGENTVM_TEST_BIN_DIR").map_or_else(
        || {
            let test = std::env::current_exe().expect("this test has a path");
            test.ancestors().nth(2).expect("target/debug/deps/test").to_owned()
        },
        PathBuf::from,
    );
    folder.join(name)
}

/// A sidecar of this test's own, so that tests that run beside it see nothing of it.
pub(crate) async fn sidecar() -> Sidecar {
    let config = SidecarConfig::Binary(program("agentvm-sidecar"));
    within(AgentOs::create_sidecar(&config)).await.expect("the sidecar starts")
}

/// A VM in a sidecar of its own.
pub(crate) async fn vm() -> AgentOs {
    vm_with(AgentOsConfig::new()).await
}

pub(crate) async fn vm_with(config: AgentOsConfig) -> AgentOs {
    let config = config.connection(sidecar().await);
    within(AgentOs::create(config)).await.expect("the VM starts")
}

/// Runs a command line and expects it to end.
pub(crate) async fn sh(vm: &AgentOs, command: &str) -> ExecResult {
    within(vm.exec(command, ExecOptions::new())).await.expect("exec succeeds")
}

/// What a command line that succeeds writes to standard output.
pub(crate) async fn out(vm: &AgentOs, command: &str) -> String {
    let result = sh(vm, command).await;
    assert_eq!(result.exit_code, 0, "{command}: {}", result.stderr);
    result.stdout
}

/// Waits until a process has written a line to standard output.
pub(crate) async fn said(process: &Process, line: &str) {
    let mut stream = process.stdout();
    let mut text = String::new();
    while !text.lines().any(|seen| seen == line) {
        match within(stream.next()).await {
            Some(Ok(Output::Data(bytes))) => text.push_str(&String::from_utf8_lossy(&bytes)),
            other => panic!("{other:?} after {text:?}"),
        }
    }
}

/// Its child writes as soon as the shell has gone.
pub(crate) const HEAD_AND_TAIL: &str = "mkfifo held; (read end < held; echo tail) & exec 3> held; echo head";

/// A future that must end.
#[track_caller]
pub(crate) fn within<T>(future: impl Future<Output = T>) -> impl Future<Output = T> {
    within_limit(DEADLINE, future)
}

#[track_caller]
pub(crate) fn within_limit<T>(limit: Duration, future: impl Future<Output = T>) -> impl Future<Output = T> {
    let place = std::panic::Location::caller();
    async move {
        let in_time = tokio::time::timeout(limit, future).await;
        in_time.unwrap_or_else(|_| panic!("not done within {limit:?}: {place}"))
    }
}

/// Asks again until the answer is yes: a named state with a limit, never a pause that hopes. Not all the time, which would
/// take from those it waits for.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, limit: Duration, mut ask: impl FnMut() -> F) {
    let begun = Instant::now();
    let mut again = tokio::time::interval(Duration::from_millis(1));
    while !ask().await {
        assert!(begun.elapsed() < limit, "not within {limit:?}: {what}");
        again.tick().await;
    }
}

/// A process and all its descendants, by the kernel's own lists.
pub(crate) fn tree(root: u32) -> HashSet<u32> {
    let mut found = HashSet::from([root]);
    let mut pending = vec![root];
    while let Some(pid) = pending.pop() {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for child in children.split_whitespace().filter_map(|text| text.parse().ok()) {
                if found.insert(child) {
                    pending.push(child);
                }
            }
        }
    }
    found
}

/// Whether a process of the host still does anything: a zombie that waits for its reaper is gone.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// How many descriptors a process of the host holds.
pub(crate) fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").count()
}

/// Descriptors that a sidecar opens when it first needs them, and keeps: its `/dev/null`.
pub(crate) const OPENED_ONCE: usize = 1;

/// Resident memory that is a process's own, in KiB: shared pages come and go with others.
pub(crate) fn memory_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

pub(crate) async fn all_gone(pids: &HashSet<u32>, limit: Duration) {
    until("all processes are gone", limit, || async { !pids.iter().any(|pid| is_alive(*pid)) }).await;
}

pub(crate) fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is ours to kill");
}

pub(crate) fn spawn(vm: &AgentOs, script: &str) -> Process {
    vm.spawn("sh", ["-c", script], SpawnOptions::new()).expect("spawn is accepted")
}

pub(crate) async fn stdout(process: &Process) -> String {
    String::from_utf8(within(process.stdout().collect()).await.unwrap()).unwrap()
}

/// Waits until no live process of the VM has an argument.
pub(crate) async fn no_process_has_argument(vm: &agentvm_sdk::AgentOs, argument: &str) {
    until("the tree is gone", Duration::from_secs(5), || async {
        let table = within(vm.all_processes()).await.unwrap();
        !table.iter().any(|row| row.exit_code.is_none() && row.args.iter().any(|arg| arg == argument))
    })
    .await;
}

/// The host pids of the inits in a sidecar: children of its zygote.
pub(crate) fn inits(sidecar: u32) -> HashSet<u32> {
    let zygotes = children(sidecar);
    zygotes.into_iter().flat_map(children).collect()
}

pub(crate) fn children(pid: u32) -> HashSet<u32> {
    let parent = |child: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.split(' ').nth(1) == Some(&pid.to_string()))
    };
    tree(pid).into_iter().filter(parent).collect()
}

/// Runs a test once more in a process of its own, where others beside it are not seen. True in that process.
pub(crate) async fn apart(name: &str, limit: Duration) -> bool {
    if std::env::args().any(|argument| argument == name) {
        return true;
    }
    let mut test = std::process::Command::new(std::env::current_exe().unwrap());
    test.args(["--exact", name, "--nocapture"]);
    let ended = tokio::task::spawn_blocking(move || test.output().unwrap());
    let output = within_limit(limit, ended).await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    print!("{said}");
    assert!(output.status.success());
    false
}

/// Polls a future on this thread, which has no runtime.
pub(crate) fn block_on_without_runtime<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    assert!(tokio::runtime::Handle::try_current().is_err());
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(done) => return done,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

/// Chances that are the same each time: `SplitMix64`, from a seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}
