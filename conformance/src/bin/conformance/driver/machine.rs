//! The VM that the steps are done to, and what they have named in it.

use std::{collections::HashMap, time::Duration};

use agentvm_conformance::{
    report::{Blob, Failure, Report},
    scenario::{
        Action,
        action::{Create, Exec, ExecArgv, Of, Output, SendSignal, Spawn, Stream, Target},
        data::Data,
    },
};
use agentvm_sdk::{
    AgentOs, AgentOsConfig, ClientError, ExecBytes, ExecOptions, ExitStatus, SidecarConfig, SignalTarget,
    SpawnOptions,
};
use anyhow::{Context as _, Result, anyhow, bail};
use serde::Serialize;
use tokio::{
    sync::oneshot,
    task::{JoinSet, yield_now},
};

use super::watched::Watched;

/// Everything the steps refer to.
#[derive(Default)]
pub(crate) struct Machine {
    vm: Option<AgentOs>,
    spawned: HashMap<String, Watched>,
    execs: HashMap<String, JoinSet<Result<ExecBytes, ClientError>>>,
}

/// What a call that failed reports.
pub(crate) fn failed(error: &anyhow::Error) -> Report {
    let code = error.downcast_ref::<ClientError>().map(|error| error.code().to_string());
    Report { error: Some(Failure { message: error.to_string(), code }), ..Report::default() }
}

impl Machine {
    pub(crate) async fn perform(&mut self, action: Action) -> Result<Report> {
        match action {
            Action::Create(create) => self.create(create).await,
            Action::Exec(Exec { command, name, env, cwd, stdin, timeout_ms, capture }) => {
                let options = exec_options(env, cwd, stdin, timeout_ms, capture)?;
                let vm = self.vm()?.clone();
                self.run(name, async move { vm.exec_bytes(&command, options).await }).await
            }
            Action::ExecArgv(ExecArgv { command, args, name, env, cwd, stdin, timeout_ms, capture }) => {
                let options = exec_options(env, cwd, stdin, timeout_ms, capture)?;
                let vm = self.vm()?.clone();
                self.run(name, async move { vm.exec_argv_bytes(&command, args, options).await }).await
            }
            Action::Join(join) => {
                let mut exec = self.execs.remove(&join.exec).context("no exec has this name")?;
                Ok(executed(exec.join_next().await.context("an exec was started")???))
            }
            Action::Spawn(spawn) => self.spawn(spawn),
            Action::WriteStdin(write) => {
                self.vm()?.write_process_stdin(self.pid(&write.process)?, write.data.bytes()?)?;
                Ok(Report::default())
            }
            Action::CloseStdin(of) => {
                self.vm()?.close_process_stdin(self.pid(&of.process)?)?;
                Ok(Report::default())
            }
            Action::Output(output) => self.output(output).await,
            Action::Wait(of) => self.wait(&of).await,
            Action::OnExit(of) => {
                let (sender, outcome) = oneshot::channel();
                let handler = |outcome| _ = sender.send(outcome);
                let subscription = self.vm()?.on_process_exit(self.pid(&of.process)?, handler)?;
                let status = outcome.await??;
                drop(subscription);
                Ok(exited(status))
            }
            Action::Stop(of) => {
                self.vm()?.stop_process(self.pid(&of.process)?)?;
                Ok(Report::default())
            }
            Action::Kill(of) => {
                self.vm()?.kill_process(self.pid(&of.process)?)?;
                Ok(Report::default())
            }
            Action::Signal(SendSignal { process, signal }) => {
                let pid = self.pid(&process)?;
                self.vm()?.signal_process(pid, signal.parse()?, SignalTarget::Process)?;
                Ok(Report::default())
            }
            Action::Get(of) => {
                let process = self.vm()?.get_process(self.pid(&of.process)?)?;
                Ok(Report { process: Some(serde_json::to_value(process)?), ..Report::default() })
            }
            Action::List(_) => listed(self.vm()?.list_processes()),
            Action::AllProcesses(_) => listed(self.vm()?.all_processes().await?),
            Action::Tree(_) => listed(self.vm()?.process_tree().await?),
            Action::Dispose(_) => {
                self.vm()?.dispose().await?;
                Ok(Report::default())
            }
            _ => bail!("this SDK does not let one speak the protocol"),
        }
    }

    async fn create(&mut self, create: Create) -> Result<Report> {
        let mut config = AgentOsConfig::new().sidecar(SidecarConfig::CurrentExe);
        for (key, value) in create.env {
            config = config.env(key, value);
        }
        self.vm = Some(AgentOs::create(config).await?);
        Ok(Report::default())
    }

    /// Runs an exec to its end, or beside the next steps if it has a name.
    async fn run(
        &mut self,
        name: Option<String>,
        exec: impl Future<Output = Result<ExecBytes, ClientError>> + Send + 'static,
    ) -> Result<Report> {
        let Some(name) = name else { return Ok(executed(exec.await?)) };
        self.execs.entry(name).or_default().spawn(exec);
        // It has sent its request when the next step begins.
        yield_now().await;
        Ok(Report::default())
    }

    fn spawn(&mut self, spawn: Spawn) -> Result<Report> {
        let vm = self.vm()?;
        let mut options = SpawnOptions::new().envs(spawn.env);
        if let Some(cwd) = spawn.cwd {
            options = options.cwd(cwd);
        }
        if let Some(timeout) = spawn.timeout_ms {
            options = options.timeout(Duration::from_millis(timeout));
        }
        let watched = Watched::spawn(vm, &spawn.command, spawn.args, options)?;
        let pid = watched.pid();
        self.spawned.insert(spawn.name, watched);
        Ok(Report { pid: Some(pid), ..Report::default() })
    }

    async fn output(&mut self, output: Output) -> Result<Report> {
        let Output { process, stream, until } = output;
        let watched = self.watched(&process).context("only the output of a named process is collected")?;
        let bytes = Some(Blob(watched.collected(stream, until.as_deref()).await?));
        Ok(match stream {
            Stream::Stdout => Report { stdout: bytes, ..Report::default() },
            Stream::Stderr => Report { stderr: bytes, ..Report::default() },
        })
    }

    async fn wait(&mut self, of: &Of) -> Result<Report> {
        let status = self.vm()?.process(self.pid(&of.process)?)?.wait().await?;
        let so_far = |stream| self.watched(&of.process).map(|watched| Blob(watched.so_far(stream)));
        Ok(Report { stdout: so_far(Stream::Stdout), stderr: so_far(Stream::Stderr), ..exited(status) })
    }

    fn vm(&self) -> Result<&AgentOs> {
        self.vm.as_ref().context("no VM was created")
    }

    fn watched(&self, target: &Target) -> Option<&Watched> {
        match target {
            Target::Name(name) => self.spawned.get(name),
            Target::Pid(_) => None,
        }
    }

    fn pid(&self, target: &Target) -> Result<u32> {
        match target {
            Target::Pid(pid) => Ok(*pid),
            Target::Name(name) => {
                let watched = self.spawned.get(name).ok_or_else(|| anyhow!("nothing is named {name}"))?;
                Ok(watched.pid())
            }
        }
    }
}

fn exec_options(
    env: impl IntoIterator<Item = (String, String)>,
    cwd: Option<String>,
    stdin: Option<Data>,
    timeout_ms: Option<u64>,
    capture: Option<bool>,
) -> Result<ExecOptions> {
    let mut options = ExecOptions::new().envs(env);
    if let Some(cwd) = cwd {
        options = options.cwd(cwd);
    }
    if let Some(stdin) = stdin {
        options = options.stdin(stdin.bytes()?);
    }
    if let Some(timeout) = timeout_ms {
        options = options.timeout(Duration::from_millis(timeout));
    }
    if let Some(capture) = capture {
        options = options.capture_stdio(capture);
    }
    Ok(options)
}

fn executed(result: ExecBytes) -> Report {
    Report {
        exit_code: Some(result.exit_code),
        signal: result.signal,
        stdout: Some(Blob(result.stdout.into())),
        stderr: Some(Blob(result.stderr.into())),
        ..Report::default()
    }
}

fn exited(status: ExitStatus) -> Report {
    Report { exit_code: Some(status.code), signal: status.signal, ..Report::default() }
}

fn listed(processes: impl Serialize) -> Result<Report> {
    Ok(Report { processes: Some(serde_json::to_value(processes)?), ..Report::default() })
}
