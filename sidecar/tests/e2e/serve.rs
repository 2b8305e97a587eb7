//! `agentvm-sidecar serve --listen unix:PATH`: who may connect, and what is left when it ends.

use std::{
    fs,
    io::Read as _,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use agentvm_sdk::{
    AgentOs, AgentOsConfig, ClientError, ExecOptions, Isolation, SidecarConfig, wire::error::Code,
};
use futures_util::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{DEADLINE, all_gone, out, program, tree, until, within, within_limit};

pub(crate) const TOKEN: &str = "a token of sixteen bytes and more";

/// A serving sidecar in a folder of its own.
pub(crate) struct Server {
    folder: PathBuf,
    child: Child,
}

impl Server {
    pub(crate) async fn start(name: &str) -> Self {
        Self::start_allowing(name, &[]).await
    }

    /// With this variable in its environment.
    pub(crate) async fn start_with(name: &str, (variable, value): (&str, &str)) -> Self {
        let mut command = sidecar();
        command.env(variable, value);
        Self::launch(name, Vec::new(), command).await
    }

    /// By a program that executes the rest of its arguments.
    pub(crate) async fn start_by(name: &str, levels: &[&str], mut command: Command) -> Self {
        command.arg(program("agentvm-sidecar"));
        Self::launch(name, options(levels), command).await
    }

    /// Whose clients may observe the host.
    pub(crate) async fn start_system_wide(name: &str) -> Self {
        Self::launch(name, vec!["--allow-system-wide".to_owned()], sidecar()).await
    }

    /// Allows levels of isolation; without any, the default.
    async fn start_allowing(name: &str, levels: &[&str]) -> Self {
        Self::launch(name, options(levels), sidecar()).await
    }

    async fn launch(name: &str, options: Vec<String>, command: Command) -> Self {
        let folder = std::env::temp_dir().join(format!("agentvm-serve-{name}-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        write_token(&folder.join("token"), 0o600);
        let server = Self { child: Self::spawn(command, &folder, options), folder };
        // The file is there a moment before anybody listens.
        let listens = || async { tokio::net::UnixStream::connect(server.socket()).await.is_ok() };
        until("it listens", DEADLINE, listens).await;
        server
    }

    fn spawn(mut command: Command, folder: &std::path::Path, options: Vec<String>) -> Child {
        command
            .arg("serve")
            .arg("--listen")
            .arg(format!("unix:{}", folder.join("socket").display()))
            .arg("--token-file")
            .arg(folder.join("token"))
            .args(options)
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    fn config(&self, token: &str) -> SidecarConfig {
        SidecarConfig::Remote { url: format!("unix:{}", self.socket().display()), token: token.into() }
    }

    pub(crate) async fn vm(&self) -> AgentOs {
        self.vm_with(AgentOsConfig::new()).await
    }

    pub(crate) async fn vm_with(&self, config: AgentOsConfig) -> AgentOs {
        within(AgentOs::create(config.sidecar(self.config(TOKEN)))).await.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have been ended by the test.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn sidecar() -> Command {
    Command::new(program("agentvm-sidecar"))
}

fn options(levels: &[&str]) -> Vec<String> {
    levels.iter().map(|level| format!("--isolation={level}")).collect()
}

fn write_token(path: &std::path::Path, mode: u32) {
    let mut file = fs::File::options().write(true).create_new(true).mode(mode).open(path).unwrap();
    std::io::Write::write_all(&mut file, format!("{TOKEN}\n").as_bytes()).unwrap();
}

#[tokio::test]
async fn a_client_with_the_token_gets_a_vm_and_handles_share_one_connection() {
    let server = Server::start("share").await;
    let mode = fs::metadata(server.socket()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let (one, two) = (server.vm().await, server.vm().await);
    assert_eq!(out(&one, "echo one").await, "one\n");
    assert_eq!(out(&two, "echo two").await, "two\n");
    // Seen from outside: one session's VMs are listed together.
    assert_ne!(one.id(), two.id());
    assert_eq!(one.sidecar().pid(), None, "this program has not launched it");
}

#[tokio::test]
async fn a_client_without_the_token_learns_nothing_but_that() {
    let server = Server::start("token").await;
    for token in ["", "wrong", "a token of sixteen bytes and mor", "a token of sixteen bytes and more!"] {
        let error = within(AgentOs::create_sidecar(&server.config(token))).await.unwrap_err();
        assert_eq!(error.code(), Code::UNAUTHENTICATED, "{error:?}");
        assert_eq!(error.to_string(), "unauthenticated");
    }
    assert_eq!(out(&server.vm().await, "echo fine").await, "fine\n");
}

#[tokio::test]
async fn what_is_said_before_hello_is_bounded() {
    let server = Server::start("flood").await;
    let mut stranger = tokio::net::UnixStream::connect(server.socket()).await.unwrap();
    let flood = async {
        let chunk = vec![b'x'; 16 << 10];
        let mut sent = 0_usize;
        while stranger.write_all(&chunk).await.is_ok() {
            sent += chunk.len();
        }
        sent
    };
    let sent = within(flood).await;
    // What the socket itself holds comes on top.
    assert!(sent < 1 << 20, "{sent} bytes were taken");
    assert_eq!(out(&server.vm().await, "echo fine").await, "fine\n");
}

#[tokio::test]
async fn a_silent_stranger_is_turned_out_after_five_seconds() {
    let server = Server::start("silent").await;
    let mut stranger = tokio::net::UnixStream::connect(server.socket()).await.unwrap();
    let mut nothing = Vec::new();
    within_limit(Duration::from_secs(8), stranger.read_to_end(&mut nothing)).await.unwrap();
    assert_eq!(nothing, b"");
}

const HANDSHAKE: &[u8] = b"GET / HTTP/1.1\r\nHost: agentvm\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Protocol: agentvm.v1\r\n\r\n";

/// A client that gets as far as one can without the token.
async fn stranger(server: &Server) -> tokio::net::UnixStream {
    let mut stranger = tokio::net::UnixStream::connect(server.socket()).await.unwrap();
    stranger.write_all(HANDSHAKE).await.unwrap();
    assert_eq!(stranger.read_u8().await.unwrap(), b'H');
    stranger
}

#[tokio::test]
async fn e115_a_web_page_is_turned_away_at_the_handshake() {
    let server = Server::start("origin").await;
    let handshake = String::from_utf8(HANDSHAKE.to_vec()).unwrap();
    let from_a_page = handshake.replace("Host:", "Origin: https://example.com\r\nHost:");
    for (request, status) in [(&from_a_page, "403"), (&handshake, "101")] {
        let mut stranger = tokio::net::UnixStream::connect(server.socket()).await.unwrap();
        stranger.write_all(request.as_bytes()).await.unwrap();
        let mut line = [0; 12];
        within(stranger.read_exact(&mut line)).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&line), format!("HTTP/1.1 {status}"));
    }
}

#[tokio::test]
async fn strangers_have_sixty_four_places_until_they_say_hello() {
    let server = Server::start("strangers").await;
    let vm = server.vm().await;
    let mut strangers = Vec::new();
    for _ in 0..64 {
        strangers.push(within(stranger(&server)).await);
    }
    // The next is served once a place is free again: when the first of them is turned out.
    let _late = within_limit(Duration::from_secs(12), stranger(&server)).await;
    let mut turned_out = 0;
    for mut stranger in strangers {
        let mut rest = Vec::new();
        turned_out += usize::from(stranger.read_to_end(&mut rest).now_or_never().is_some());
    }
    assert!(turned_out > 0, "all sixty-four were still there");
    assert_eq!(out(&vm, "echo fine").await, "fine\n");
}

#[tokio::test]
async fn sigterm_ends_the_server_its_vms_and_its_socket() {
    let mut server = Server::start("term").await;
    let vm = server.vm().await;
    let pending = vm.exec("sleep 600", ExecOptions::new());
    let everything = tree(server.child.id());
    let pid = rustix::process::Pid::from_child(&server.child);
    let end = async { rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap() };
    let (error, ()) = within(async { tokio::join!(pending, end) }).await;
    let Err(ClientError::Disconnected { reason, .. }) = error else { panic!("{error:?}") };
    assert_eq!(reason, "sidecar closed the connection: 1001 the sidecar shuts down");
    assert!(server.child.wait().unwrap().success());
    all_gone(&everything, Duration::from_secs(1)).await;
    assert!(!server.socket().exists());
}

#[tokio::test]
async fn a_client_that_is_gone_takes_its_vms_with_it_and_no_others() {
    let server = Server::start("gone").await;
    let one = within(AgentOs::create_sidecar(&server.config(TOKEN))).await.unwrap();
    let two = within(AgentOs::create_sidecar(&server.config(TOKEN))).await.unwrap();
    let first = within(AgentOs::create(AgentOsConfig::new().connection(one))).await.unwrap();
    let before = tree(server.child.id());
    let second = within(AgentOs::create(AgentOsConfig::new().connection(two))).await.unwrap();
    let mut of_second = tree(server.child.id());
    of_second.retain(|pid| !before.contains(pid));
    assert!(!of_second.is_empty());
    drop(second);
    all_gone(&of_second, Duration::from_secs(1)).await;
    assert_eq!(out(&first, "echo here").await, "here\n");
}

#[tokio::test]
async fn a_dead_sidecars_socket_is_replaced_and_a_live_ones_is_not() {
    let mut server = Server::start("stale").await;
    let mut second = Server::spawn(sidecar(), &server.folder, Vec::new());
    assert!(!second.wait().unwrap().success(), "somebody listens there");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    assert!(server.socket().exists(), "nobody could remove it");
    server.child = Server::spawn(sidecar(), &server.folder, Vec::new());
    let connects = || async { AgentOs::create_sidecar(&server.config(TOKEN)).await.is_ok() };
    until("the new one listens", DEADLINE, connects).await;
}

#[test]
fn a_token_file_that_others_may_read_is_refused() {
    let folder = std::env::temp_dir().join(format!("agentvm-serve-mode-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    write_token(&folder.join("token"), 0o640);
    let output = Command::new(program("agentvm-sidecar"))
        .args(["serve", "--listen", "unix:/nowhere/socket", "--token-file"])
        .arg(folder.join("token"))
        .output()
        .unwrap();
    fs::remove_dir_all(&folder).unwrap();
    assert!(!output.status.success());
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.contains("0640") && words.contains("chmod 600"), "{words}");
}

#[test]
fn a_sidecar_without_a_client_says_why_it_ends() {
    let mut command = Command::new(program("agentvm-sidecar"));
    std::os::unix::process::CommandExt::arg0(&mut command, "agentvm-sidecar");
    let mut child =
        command.arg("serve-inherited").stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut words = String::new();
    child.stderr.take().unwrap().read_to_string(&mut words).unwrap();
    assert!(!child.wait().unwrap().success());
    assert!(words.contains("standard input is not the socket of a client"), "{words}");
}

#[tokio::test]
async fn clients_get_the_levels_of_isolation_that_the_operator_allows() {
    let create = async |server: &Server, isolation| {
        let config = AgentOsConfig::new().isolation(isolation).sidecar(server.config(TOKEN));
        within(AgentOs::create(config)).await
    };
    let by_default = Server::start_allowing("default-level", &[]).await;
    for isolation in [Isolation::Confined, Isolation::None] {
        let refused = create(&by_default, isolation).await.map(drop).unwrap_err();
        assert_eq!(refused.code(), Code::PERMISSION_DENIED, "{refused:?}");
    }
    assert_eq!(out(&create(&by_default, Isolation::Sandbox).await.unwrap(), "echo in").await, "in\n");
    let confined = Server::start_allowing("confined-level", &["confined"]).await;
    for isolation in [Isolation::Sandbox, Isolation::None] {
        let refused = create(&confined, isolation).await.map(drop).unwrap_err();
        assert_eq!(refused.code(), Code::PERMISSION_DENIED, "{refused:?}");
    }
    assert_eq!(out(&create(&confined, Isolation::Confined).await.unwrap(), "echo in").await, "in\n");
}
