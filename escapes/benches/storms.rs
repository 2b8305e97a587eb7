//! What an exec costs in a VM while its neighbour rages, beside what it costs while all is quiet and beside a plain
//! process started in the same moments: `cargo xtask bench -- storms`. Figures never gate a test.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agentvm_escapes::Scene;
use agentvm_sdk::{AgentOs, AgentOsConfig, ExecOptions};
use anyhow::{Context as _, Result};

const ROUNDS: usize = 200;
const STORMS: [&str; 9] =
    ["fork", "threads", "cpu", "output", "disk", "descriptors", "inflight", "stop", "argv"];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    // cargo adds `--bench`; everything else names what to run.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name || word == "storms");
    let programs = Path::new(env!("CARGO_BIN_EXE_attacker")).parent().context("programs lie in a folder")?;
    for storm in STORMS.into_iter().filter(|name| wants(name)) {
        let scene = Scene::set(programs, AgentOsConfig::new()).await?;
        let quiet = Figures::take(&scene.calm).await?;
        let process = scene.raise(storm).await?;
        let beside = Figures::take(&scene.calm).await?;
        scene.end(&process).await?;
        println!("{storm:<12} exec {} quiet {}", beside.exec, quiet.exec);
        println!("{:<12} plain {} quiet {}", "", beside.plain, quiet.plain);
        println!(
            "{:<12} exec ratio p50 {:.2}, plain ratio p50 {:.2}",
            "",
            beside.exec.median() / quiet.exec.median(),
            beside.plain.median() / quiet.plain.median()
        );
    }
    Ok(())
}

/// What two things cost in turn.
struct Figures {
    exec: Samples,
    plain: Samples,
}

impl Figures {
    async fn take(vm: &AgentOs) -> Result<Self> {
        let (mut exec, mut plain) = (Samples::default(), Samples::default());
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            vm.exec_argv("/bin/true", [""; 0], ExecOptions::new()).await?;
            exec.0.push(begun.elapsed());
            let begun = Instant::now();
            Command::new("/bin/true").stdin(Stdio::null()).status()?;
            plain.0.push(begun.elapsed());
        }
        Ok(Self { exec, plain })
    }
}

#[derive(Default)]
struct Samples(Vec<Duration>);

impl Samples {
    fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted[(sorted.len() - 1) * percent / 100].as_secs_f64() * 1000.0
    }

    fn median(&self) -> f64 {
        self.percentile(50)
    }
}

impl std::fmt::Display for Samples {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "p50 {:7.3} ms  p95 {:7.3} ms ", self.median(), self.percentile(95))
    }
}
