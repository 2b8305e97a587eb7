//! Starts a long program in a fresh VM, feeds its standard input line by line, shows its output as it comes, and
//! stops it.
//!
//! Without arguments it follows a small script of its own; `spawn PROGRAM ARGS…` runs that program with this
//! terminal's lines as its input, until they end or Ctrl-C stops it.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use agentvm_examples::{Terminal, end};
use agentvm_sdk::{AgentOs, AgentOsConfig, ByteStream, Output, Process, SidecarConfig, SpawnOptions};
use anyhow::{Context as _, bail};
use clap::Parser;
use tokio::io::{AsyncBufReadExt as _, BufReader};

/// Start a program in a fresh sandboxed VM and talk to it.
#[derive(Parser)]
struct Arguments {
    /// The program and its arguments; without it a demonstration runs.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<String>,
}

/// Answers every line, and says goodbye when it is stopped.
const GREETER: &str = r#"trap 'echo "stopped, goodbye"; exit 0' TERM
echo "ready, my shell is $$"
while read -r line; do echo "you said: $line"; done
while :; do sleep 0.1; done"#;

fn main() -> anyhow::Result<ExitCode> {
    agentvm_sidecar::run_if_requested();
    let arguments = Arguments::parse();
    let run = async {
        let vm = AgentOs::create(AgentOsConfig::new().sidecar(SidecarConfig::CurrentExe)).await?;
        let code = match arguments.program.split_first() {
            Some((program, args)) => interact(&vm, program, args).await?,
            None => demonstrate(&vm).await?,
        };
        vm.dispose().await?;
        Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
    };
    end(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run))
}

/// Two lines in, three lines out, then a polite stop.
async fn demonstrate(vm: &AgentOs) -> anyhow::Result<i32> {
    let process = vm.spawn("sh", ["-c", GREETER], SpawnOptions::new())?;
    let mut output = Lines::new(process.stdout());
    let mut terminal = io::stdout();
    writeln!(terminal, "{}", output.next().await?)?;
    for line in ["hello", "how are you"] {
        process.write_stdin(format!("{line}\n"))?;
        writeln!(terminal, "{}", output.next().await?)?;
    }
    let info = vm.get_process(process.pid())?;
    writeln!(terminal, "pid {} is {}", info.pid, if info.running { "running" } else { "gone" })?;
    process.close_stdin();
    process.stop();
    writeln!(terminal, "{}", output.next().await?)?;
    let status = process.wait().await?;
    writeln!(terminal, "exit code {}", status.code)?;
    Ok(status.code)
}

/// Output as lines, whatever the chunks it comes in.
struct Lines {
    stream: ByteStream,
    pending: Vec<u8>,
}

impl Lines {
    fn new(stream: ByteStream) -> Self {
        Self { stream, pending: Vec::new() }
    }

    async fn next(&mut self) -> anyhow::Result<String> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            match self.stream.next().await.context("the output ended early")?? {
                Output::Data(bytes) => self.pending.extend_from_slice(&bytes),
                Output::Gap { missed_bytes } => bail!("{missed_bytes} bytes of output were missed"),
            }
        }
    }
}

/// A program with this terminal's lines as its input.
async fn interact(vm: &AgentOs, program: &str, args: &[String]) -> anyhow::Result<i32> {
    let mut terminal = Terminal::default();
    let options = SpawnOptions::new().on_stdout(terminal.stdout()).on_stderr(terminal.stderr());
    let process = vm.spawn(program, args, options)?;
    let status = tokio::select! {
        status = terminal.run(async { Ok(process.wait().await?) }) => status?,
        // Resolves only on an error: the process ends by itself once its input has.
        error = feed(&process) => return Err(error),
        interrupt = tokio::signal::ctrl_c() => {
            interrupt.context("no Ctrl-C handler")?;
            process.stop();
            process.wait().await?
        }
    };
    Ok(status.code)
}

async fn feed(process: &Process) -> anyhow::Error {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    loop {
        match lines.next_line().await {
            Ok(Some(line)) => {
                // A process that has ended wants no more; its exit is awaited beside this.
                if process.write_stdin(format!("{line}\n")).is_err() {
                    break;
                }
            }
            Ok(None) => {
                process.close_stdin();
                break;
            }
            Err(error) => return anyhow::Error::new(error).context("standard input"),
        }
    }
    std::future::pending().await
}
