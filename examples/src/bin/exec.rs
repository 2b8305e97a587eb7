//! Runs its argument in a fresh VM, streams both outputs, and exits with the guest's code.
//!
//! `exec 'echo hello from $(hostname)'`; `--time` prints where the time went, `--root` runs it as the VM's root.
//! Ctrl-C ends the VM and exits with 130; so does a reader of its output that goes away, with 141.

use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::{Duration, Instant},
};

use agentvm_examples::{Terminal, end};
use agentvm_sdk::{AgentOs, AgentOsConfig, ExecOptions, SidecarConfig};
use anyhow::Context as _;
use clap::Parser;

/// Run a command line in a fresh sandboxed VM.
#[derive(Parser)]
struct Arguments {
    /// Print where the time went, on standard error.
    #[arg(long)]
    time: bool,
    /// Run as root of the VM.
    #[arg(long)]
    root: bool,
    /// The command line, given to `sh -c` in the VM.
    command: String,
}

/// 128 + SIGINT, as a shell reports it.
const INTERRUPTED: u8 = 130;

fn main() -> anyhow::Result<ExitCode> {
    agentvm_sidecar::run_if_requested();
    let arguments = Arguments::parse();
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut terminal = Terminal::default();
        let options =
            ExecOptions::new().capture_stdio(false).on_stdout(terminal.stdout()).on_stderr(terminal.stderr());
        tokio::select! {
            code = terminal.run(run(&arguments, options)) => end(code),
            interrupt = tokio::signal::ctrl_c() => {
                interrupt.context("no Ctrl-C handler")?;
                Ok(ExitCode::from(INTERRUPTED))
            }
        }
    })
}

async fn run(arguments: &Arguments, options: ExecOptions) -> anyhow::Result<ExitCode> {
    let begun = Instant::now();
    let config = AgentOsConfig::new().sidecar(SidecarConfig::CurrentExe).root(arguments.root);
    let vm = AgentOs::create(config).await?;
    let created = begun.elapsed();

    let result = vm.exec(&arguments.command, options).await?;

    let disposing = Instant::now();
    vm.dispose().await?;
    if arguments.time {
        // What the creation took beside the VM itself: launching the sidecar and shaking hands with it.
        let sidecar = created.saturating_sub(vm.boot_time());
        print_times(sidecar, vm.boot_time(), result.duration, disposing.elapsed());
    }
    Ok(ExitCode::from(u8::try_from(result.exit_code).unwrap_or(u8::MAX)))
}

fn print_times(sidecar: Duration, boot: Duration, exec: Duration, dispose: Duration) {
    let rows = [("sidecar", sidecar), ("VM", boot), ("exec", exec), ("dispose", dispose)];
    for (what, time) in rows {
        let _ = writeln!(io::stderr(), "{what:>8} {:>8.2} ms", time.as_secs_f64() * 1000.0);
    }
}
