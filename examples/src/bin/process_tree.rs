//! Starts a small process family in a fresh VM and draws the forest: pid, state, command; in colour on a terminal,
//! as JSON with `--json`.

use std::{io::Write as _, process::ExitCode};

use agentvm_examples::{end, forest};
use agentvm_sdk::{AgentOs, AgentOsConfig, Output, ProcessInfo, ProcessStatus, SidecarConfig, SpawnOptions};
use anstyle::{AnsiColor, Style};
use anyhow::Context as _;
use clap::Parser;

/// Draw the process forest of a fresh sandboxed VM.
#[derive(Parser)]
struct Arguments {
    /// Print the forest as JSON.
    #[arg(long)]
    json: bool,
}

/// A family of three generations, one of them stopped; it says so when all are there.
const FAMILY: &str = "sleep 300 & \
    sh -c 'sleep 301 & sleep 302 & wait' & \
    sh -c 'kill -STOP $$; :' & stopped=$!; \
    until grep -q '^State:.T' /proc/$stopped/status; do :; done; \
    until [ $(grep -l '^sleep$' /proc/[0-9]*/comm 2>/dev/null | wc -l) -ge 3 ]; do :; done; \
    echo complete; wait";

fn main() -> anyhow::Result<ExitCode> {
    agentvm_sidecar::run_if_requested();
    let arguments = Arguments::parse();
    let run = async {
        let vm = AgentOs::create(AgentOsConfig::new().sidecar(SidecarConfig::CurrentExe)).await?;
        let exited = vm.spawn("sh", ["-c", "exit 3"], SpawnOptions::new())?;
        exited.wait().await?;
        let family = vm.spawn("sh", ["-c", FAMILY], SpawnOptions::new())?;
        match family.stdout().next().await.context("the family ended early")?? {
            Output::Data(_) | Output::Gap { .. } => {}
        }
        let forest = vm.process_tree().await?;
        if arguments.json {
            writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(&forest)?)?;
        } else {
            forest::draw(
                &mut anstream::stdout(),
                forest.iter(),
                |node| node.children.iter().collect(),
                |node| line(&node.info),
            )?;
        }
        vm.dispose().await?;
        Ok(ExitCode::SUCCESS)
    };
    end(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run))
}

fn line(info: &ProcessInfo) -> String {
    let (state, color) = match info.status {
        ProcessStatus::Running => ("running".to_owned(), AnsiColor::Green),
        ProcessStatus::Stopped => ("stopped".to_owned(), AnsiColor::Yellow),
        ProcessStatus::Zombie => ("zombie".to_owned(), AnsiColor::Magenta),
        ProcessStatus::Exited => {
            let code = info.exit_code.map_or_else(String::new, |code| format!(" {code}"));
            (format!("exited{code}"), AnsiColor::BrightBlack)
        }
    };
    let style = Style::new().fg_color(Some(color.into()));
    let command = if info.args.is_empty() { info.command.clone() } else { info.args.join(" ") };
    let short: String = command.chars().map(|c| if c.is_control() { ' ' } else { c }).take(60).collect();
    format!("{} {style}{state}{style:#} {short}", info.pid)
}
