//! Runs its argument in a fresh VM, streams both outputs, and exits with the guest's code.
//!
//! `exec 'echo hello from $(hostname)'`; `--time` prints where the time went, `--root` runs it as the VM's root.
//! Ctrl-C ends the VM and exits with 130.

use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::{Duration, Instant},
};

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
        tokio::select! {
            code = run(&arguments) => code,
            interrupt = tokio::signal::ctrl_c() => {
                interrupt.context("no Ctrl-C handler")?;
                Ok(ExitCode::from(INTERRUPTED))
            }
        }
    })
}

async fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let begun = Instant::now();
    let config = AgentOsConfig::new().sidecar(SidecarConfig::CurrentExe).root(arguments.root);
    let vm = AgentOs::create(config).await?;
    let created = begun.elapsed();

    let options = ExecOptions::new()
        .capture_stdio(false)
        .on_stdout(|bytes| write_all(&mut io::stdout(), bytes))
        .on_stderr(|bytes| write_all(&mut io::stderr(), bytes));
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

/// A reader of ours that has gone away is no reason to disturb the guest.
fn write_all(output: &mut impl io::Write, bytes: &[u8]) {
    let _ = output.write_all(bytes).and_then(|()| output.flush());
}

fn print_times(sidecar: Duration, boot: Duration, exec: Duration, dispose: Duration) {
    let rows = [("sidecar", sidecar), ("VM", boot), ("exec", exec), ("dispose", dispose)];
    for (what, time) in rows {
        let _ = writeln!(io::stderr(), "{what:>8} {:>8.2} ms", time.as_secs_f64() * 1000.0);
    }
}
