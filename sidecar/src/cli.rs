//! The command line of the sidecar: what a client launches, and what an operator runs.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use agentvm_wire::vm::Isolation;
use clap::{Parser, Subcommand, ValueEnum};

use crate::doctor;
use crate::server::{Policy, Token, UnixListenerConfig, serve_unix};

/// Builds sandboxed Linux VMs and runs what its clients ask for.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve clients on a socket until SIGTERM or SIGINT.
    Serve {
        /// Where to listen: `unix:PATH`. The socket gets mode 0600; clients must be of the same user.
        #[arg(long)]
        listen: String,
        /// A file with the token that every client must know: mode 0600, at least 16 bytes.
        #[arg(long)]
        token_file: PathBuf,
        /// A level of isolation that clients may ask for; may be given several times.
        #[arg(long, value_enum, default_value = "sandbox")]
        isolation: Vec<Level>,
        /// Let clients observe every process of this host.
        #[arg(long)]
        allow_system_wide: bool,
    },
    /// Say what VMs this host can have, as this user, and what to change where something is missing: builds a VM of each
    /// level and runs a program in it. Ends with 0 if there can be sandboxes, else with 1.
    Doctor {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

/// A level of isolation.
#[derive(Clone, Copy, ValueEnum)]
enum Level {
    /// Namespaces, a root file system of its own, seccomp.
    Sandbox,
    /// Processes of the host under Landlock and seccomp.
    Confined,
    /// Plain processes of the sidecar's user.
    None,
}

impl From<Level> for Isolation {
    fn from(level: Level) -> Self {
        match level {
            Level::Sandbox => Self::Sandbox,
            Level::Confined => Self::Confined,
            Level::None => Self::None,
        }
    }
}

/// The whole program. Call it first thing in a synchronous `main`.
pub fn run() -> ExitCode {
    crate::run_if_requested();
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let ended = match arguments.command {
        Command::Serve { listen, token_file, isolation, allow_system_wide } => {
            let policy = Policy::allowing(isolation.into_iter().map(Isolation::from));
            serve(&listen, &token_file, policy.system_wide(allow_system_wide)).map(|()| ExitCode::SUCCESS)
        }
        Command::Doctor { json } => doctor(json),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("agentvm-sidecar: {error}");
        ExitCode::FAILURE
    })
}

fn doctor(json: bool) -> anyhow::Result<ExitCode> {
    let diagnosis = doctor::examine()?;
    let mut out = anstream::stdout();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(&diagnosis)?)?;
    } else {
        write!(out, "{}", doctor::Text(&diagnosis))?;
    }
    Ok(if diagnosis.has_sandboxes() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn serve(listen: &str, token_file: &std::path::Path, policy: Policy) -> anyhow::Result<()> {
    let Some(path) = listen.strip_prefix("unix:").filter(|path| !path.is_empty()) else {
        anyhow::bail!("--listen {listen}: only unix:PATH can be listened on so far");
    };
    let token =
        Token::read(token_file).map_err(|error| anyhow::anyhow!("{}: {error}", token_file.display()))?;
    Ok(serve_unix(&UnixListenerConfig { path: path.into(), token, policy })?)
}
