//! Runs a program in a fresh VM, tells what it and its descendants do, and exits with its code.
//!
//! `observe -- make test` prints a line for each event as it happens, `--json` the events themselves, `--summary` at the
//! end a tree of what ran: how each process ended, how long it took, which files it opened for writing and where it
//! connected to. All of that goes to standard output; what the program writes goes to standard error.

mod summary;

use std::{ffi::OsString, io::Write as _, process::ExitCode};

use agentvm_examples::{Terminal, end};
use agentvm_sdk::{
    AgentOs, AgentOsConfig, ClientError, EventCategory, ObserverConfig, ObserverEvent, ObserverEventKind,
    SidecarConfig, SpawnOptions,
};
use anyhow::Context as _;
use clap::Parser;
use summary::Summary;

/// Observe a program in a fresh sandboxed VM.
#[derive(Parser)]
struct Arguments {
    /// Print a tree of what ran, once it has ended.
    #[arg(long, conflicts_with = "json")]
    summary: bool,
    /// Print each event as a line of JSON.
    #[arg(long)]
    json: bool,
    /// The program.
    program: OsString,
    /// Its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

fn main() -> anyhow::Result<ExitCode> {
    agentvm_sidecar::run_if_requested();
    let arguments = Arguments::parse();
    let mut terminal = Terminal::default();
    let options = SpawnOptions::new()
        .stream_stdin(false)
        .on_stdout(terminal.stderr())
        .on_stderr(terminal.stderr())
        .observe(ObserverConfig::with_categories(EventCategory::ALL.iter().copied()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    end(runtime.block_on(terminal.run(run(&arguments, options))))
}

async fn run(arguments: &Arguments, options: SpawnOptions) -> anyhow::Result<ExitCode> {
    let vm = AgentOs::create(AgentOsConfig::new().sidecar(SidecarConfig::CurrentExe)).await?;
    let process = vm.spawn_os(&arguments.program, &arguments.args, options)?;
    let events = process.observer().context("it is observed")?;
    let (mut summary, mut output) = (Summary::default(), anstream::stdout());
    while let Some(event) = events.recv().await {
        if arguments.json {
            writeln!(output, "{}", serde_json::to_string(&event)?)?;
        } else if arguments.summary {
            summary.add(&event);
        } else {
            writeln!(output, "{}", line(&event))?;
        }
        output.flush()?;
    }
    summary.write(&mut output)?;
    let code = match process.wait().await {
        Ok(status) => status.code,
        Err(ClientError::SpawnFailed { .. }) => 127,
        Err(error) => return Err(error.into()),
    };
    vm.dispose().await?;
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}

/// When, who and what.
fn line(event: &ObserverEvent) -> String {
    let who = event.pid.map_or_else(String::new, |pid| pid.to_string());
    let what = event.kind.as_str();
    let (seconds, millis) = (event.timestamp_ms / 1000 % 86_400, event.timestamp_ms % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let line =
        format!("{hour:02}:{minute:02}:{second:02}.{millis:03} {who:>7} {what} {}", detail(&event.kind));
    line.trim_end().to_owned()
}

fn detail(kind: &ObserverEventKind) -> String {
    match kind {
        ObserverEventKind::DescendantExec { .. } => command(kind),
        ObserverEventKind::Loss { reason, count } => format!("{reason} ({count})"),
        ObserverEventKind::NetworkConnect { address }
        | ObserverEventKind::NetworkBind { address }
        | ObserverEventKind::NetworkSend { address } => address.to_string(),
        _ => match (kind.folded_code(), kind.from_path(), kind.path()) {
            (Some(code), ..) => code.to_string(),
            (_, Some(from), Some(to)) => format!("{} -> {}", from.display(), to.display()),
            (_, _, Some(path)) => path.display().to_string(),
            _ => String::new(),
        },
    }
}

/// The command line of an executed program, fit for one line.
fn command(kind: &ObserverEventKind) -> String {
    let words: Vec<_> = kind.argv().map(|word| word.to_string_lossy().into_owned()).collect();
    words.join(" ").chars().map(|c| if c.is_control() { ' ' } else { c }).take(100).collect()
}
