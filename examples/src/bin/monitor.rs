//! Watches a command in a VM: prints its lines as events and what they wake an agent with, as they come, and how it
//! ends.
//!
//! `monitor -- 'COMMAND'` watches a shell command. With `--state FILE` the session outlives this program: run it again
//! with the same file, and what was not printed is, and a command that was cut off starts again.

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use agentvm_examples::end;
use agentvm_sdk::{
    AgentOs, AgentOsConfig, SidecarConfig,
    plugin::{
        FileStore, PluginHost,
        monitor::{
            AckWake, AckWakeArgs, MonitorFactory, MonitorSpec, MonitorStatus, MonitorUpdateBatch, Start,
            StartArgs, TakeUpdates, TakeUpdatesArgs, Wait, WaitArgs, WakeAck,
        },
    },
};
use anyhow::Context as _;
use clap::Parser;

/// Watch a command in a fresh sandboxed VM.
#[derive(Parser)]
struct Arguments {
    /// Where the session is kept for the next program.
    #[arg(long)]
    state: Option<PathBuf>,
    /// The shell command.
    #[arg(last = true)]
    command: String,
}

const SESSION: &str = "example";
const ID: &str = "watch";

fn main() -> anyhow::Result<ExitCode> {
    agentvm_sidecar::run_if_requested();
    let arguments = Arguments::parse();
    let run = async {
        let vm = AgentOs::create(AgentOsConfig::new().sidecar(SidecarConfig::CurrentExe)).await?;
        let mut builder = PluginHost::builder(&vm, SESSION).plugin(MonitorFactory::new());
        if let Some(state) = arguments.state {
            builder = builder.store(FileStore::new(state));
        }
        let host = builder.start().await?;
        let ended = tokio::select! {
            ended = watch(&host, &arguments.command) => Some(ended?),
            interrupt = tokio::signal::ctrl_c() => { interrupt.context("no Ctrl-C handler")?; None }
        };
        // What still runs ends, and is remembered.
        host.shutdown().await?;
        vm.dispose().await?;
        let code = ended.and_then(|status| status.last_exit_status).unwrap_or(1);
        Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
    };
    end(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run))
}

/// Prints what comes until the command has ended and all of it is printed.
async fn watch(host: &PluginHost, command: &str) -> anyhow::Result<MonitorStatus> {
    let mut spec = MonitorSpec::new(ID, command);
    (spec.persistent, spec.restart_on_restore) = (true, true);
    host.invoke_typed::<Start>(StartArgs { spec }).await?;
    let mut printed = None;
    loop {
        let seen = host.revision();
        // Asked first: what is taken behind it holds the end.
        let look = WaitArgs { id: ID.to_owned(), timeout_ms: 0 };
        let look = host.invoke_typed::<Wait>(look).await?;
        let batch = host.invoke_typed::<TakeUpdates>(TakeUpdatesArgs { after_sequence: printed }).await?;
        print(&batch)?;
        printed = batch.events.last().map(|event| event.sequence).or(printed);
        let read = |wake: &agentvm_sdk::plugin::monitor::MonitorWake| WakeAck {
            id: wake.monitor_id.clone(),
            through_sequence: wake.through_sequence,
        };
        let acks: Vec<WakeAck> = batch.wakes.iter().map(read).collect();
        if !acks.is_empty() {
            host.invoke_typed::<AckWake>(AckWakeArgs { acks, ids: Vec::new() }).await?;
        }
        if !look.timed_out {
            // Says that the last of it is printed.
            host.invoke_typed::<TakeUpdates>(TakeUpdatesArgs { after_sequence: printed }).await?;
            return Ok(look.status);
        }
        host.changed(seen).await;
    }
}

fn print(batch: &MonitorUpdateBatch) -> io::Result<()> {
    let mut terminal = io::stdout().lock();
    for event in &batch.events {
        writeln!(terminal, "{:>6} {}", event.sequence, event.message)?;
    }
    for wake in &batch.wakes {
        writeln!(terminal, "  wake {}", wake.text.replace('\n', "\n       "))?;
    }
    terminal.flush()
}
