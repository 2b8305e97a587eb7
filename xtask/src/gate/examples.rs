//! The step `examples`: each example does what its name says, with the output and exit code its reader sees.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Gate;
use crate::child::{self, Streams};

const LIMIT: Duration = Duration::from_secs(60);

struct Run {
    example: &'static str,
    arguments: &'static [&'static str],
    /// A part of what must be on stdout.
    stdout: &'static str,
    code: i32,
}

const RUNS: [Run; 11] = [
    Run { example: "exec", arguments: &["echo hello"], stdout: "hello\n", code: 0 },
    Run { example: "exec", arguments: &["--time", "true"], stdout: "", code: 0 },
    Run { example: "exec", arguments: &["exit 3"], stdout: "", code: 3 },
    Run { example: "exec", arguments: &["kill -KILL $$"], stdout: "", code: 137 },
    Run { example: "spawn", arguments: &[], stdout: "stopped, goodbye\nexit code 0\n", code: 0 },
    Run {
        example: "monitor",
        arguments: &["--", "echo one; exit 4"],
        stdout: "     2 Monitor failed with status 4\n",
        code: 4,
    },
    Run {
        example: "observe",
        arguments: &["--", "sh", "-c", "/bin/true; exit 3"],
        stdout: " descendant-exec /bin/true\n",
        code: 3,
    },
    Run {
        example: "observe",
        arguments: &["--summary", "--", "sh", "-c", "echo x > made; :"],
        stdout: "wrote /workspace/made\n",
        code: 0,
    },
    Run {
        example: "observe",
        arguments: &["--json", "--", "sh", "-c", "kill -KILL $$"],
        stdout: "{\"type\":\"exited\",\"body\":{\"signal\":9}}",
        code: 137,
    },
    Run { example: "process_tree", arguments: &[], stdout: " stopped ", code: 0 },
    Run { example: "process_tree", arguments: &["--json"], stdout: "\"status\": \"exited\"", code: 0 },
];

pub(super) fn run(gate: &mut Gate) -> Result<()> {
    let built = gate.built()?;
    let examples: BTreeMap<_, _> = built
        .binaries()
        .filter(|binary| binary.package == Path::new("examples"))
        .map(|binary| (binary.name.as_str(), &binary.path))
        .collect();
    for name in examples.keys() {
        ensure!(
            RUNS.iter().any(|run| run.example == *name),
            "the example {name} has no run in the table RUNS"
        );
    }
    for run in &RUNS {
        let shown = format!("{} {:?}", run.example, run.arguments);
        let path =
            examples.get(run.example).with_context(|| format!("no example is named {}", run.example))?;
        let (end, stdout) = child::read(Command::new(path).args(run.arguments), Streams::Stdout, LIMIT)?;
        println!("   {shown}");
        ensure!(end.code() == Some(run.code), "{shown}: {end}, not {}\n{stdout}", run.code);
        ensure!(stdout.contains(run.stdout), "{shown}: its output lacks {:?}:\n{stdout}", run.stdout);
    }
    Ok(())
}
