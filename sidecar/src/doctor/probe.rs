//! One VM, one program in it, and the end of both.

use std::time::Duration;

use agentvm_wire::id::{ProcessId, VmId};
use agentvm_wire::vm::{Isolation, IsolationReport, VmConfig};
use serde::Serialize;

use crate::errno;
use crate::init::{Event, StartSpec};
use crate::zygote::{BootError, Booted, Zygote};

/// What is run.
const PROGRAM: &str = "true";

/// How long all of it may take; a few milliseconds on a quiet host.
const LIMIT: Duration = Duration::from_secs(30);

/// Why no VM can be had.
#[derive(Debug, Serialize)]
pub(super) struct Failure {
    /// What failed: a step of the creation, or `run`.
    step: String,
    /// Name of a Linux errno.
    #[serde(skip_serializing_if = "Option::is_none")]
    errno: Option<String>,
    /// What it was about.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// In words.
    pub(super) message: String,
    /// What would help, where that is known.
    #[serde(skip)]
    pub(super) remedy: Option<&'static str>,
}

impl From<BootError> for Failure {
    fn from(error: BootError) -> Self {
        Self {
            step: error.step().to_string(),
            errno: Some(errno::name(error.errno())),
            path: error.path().map(str::to_owned),
            message: error.cause(),
            remedy: error.hint(),
        }
    }
}

impl Failure {
    fn of_run(message: String) -> Self {
        Self { step: "run".to_owned(), errno: None, path: None, message, remedy: None }
    }
}

/// Builds a VM, runs a program in it, and ends it.
pub(super) async fn probe(zygote: &Zygote, isolation: Isolation) -> Result<IsolationReport, Failure> {
    let config = VmConfig { isolation, ..VmConfig::default() };
    let attempt = async {
        let mut booted = zygote.create_vm(VmId::random(), &config).await?;
        let ran = run(&mut booted).await;
        booted.commands.end();
        while booted.events.next().await != Event::Ended {}
        ran.map(|()| booted.report)
    };
    let in_time = tokio::time::timeout(LIMIT, attempt).await;
    in_time.unwrap_or_else(|_| Err(Failure::of_run(format!("not done within {LIMIT:?}"))))
}

async fn run(booted: &mut Booted) -> Result<(), Failure> {
    let bytes = |(key, value): (&String, &String)| (key.clone().into_bytes(), value.clone().into_bytes());
    let environment = booted.environment.iter().map(bytes).collect();
    let spec = StartSpec::new(PROGRAM, environment, &booted.cwd);
    booted.commands.start(ProcessId(1), spec);
    loop {
        match booted.events.next().await {
            Event::Exited { exit, .. } if exit.exit_code == Some(0) => return Ok(()),
            Event::Exited { exit, .. } => {
                return Err(Failure::of_run(format!("{PROGRAM} ended so: {exit:?}")));
            }
            Event::StartFailed { step, errno, .. } => {
                let why = errno::text(errno);
                return Err(Failure::of_run(format!("{PROGRAM} did not start, step {}: {why}", step.name())));
            }
            Event::Ended => return Err(Failure::of_run("the VM ended by itself".to_owned())),
            _ => {}
        }
    }
}
