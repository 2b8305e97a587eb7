//! `cargo xtask fuzz [SECONDS]`: the coverage-guided fuzzers of `fuzz/`, one after the other.

use std::fs;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cargo::{cargo, workspace_root};
use crate::child;

/// How long each runs unless the caller says otherwise.
const SECONDS: u64 = 60;
const BUILD_LIMIT: Duration = Duration::from_secs(30 * 60);
/// What a fuzzer may take beside its time: reading what it has found so far.
const MARGIN: Duration = Duration::from_secs(10 * 60);

/// What cargo-fuzz passes, as far as a stable compiler takes it.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                        -Cllvm-args=-sanitizer-coverage-pc-table \
                        -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing";

/// What is found goes to `target/fuzz/TARGET-…`; what reaches new code is kept in `target/fuzz/corpus`.
pub(crate) fn run(seconds: Option<u64>) -> Result<ExitCode> {
    let seconds = seconds.unwrap_or(SECONDS);
    let root = workspace_root()?;
    let (target_folder, host) = (root.join("target/fuzz"), host()?);
    // Named, so that the flags are not for build scripts.
    let mut build = cargo()?;
    build.args(["build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", &host]);
    build.arg("--target-dir").arg(&target_folder).env("RUSTFLAGS", COVERAGE);
    child::succeed(&mut build, BUILD_LIMIT)?;
    let mut names: Vec<String> = fs::read_dir(root.join("fuzz/fuzz_targets"))?
        .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_string_lossy().into_owned()))
        .collect();
    names.sort_unstable();
    for name in names {
        println!("── {name}");
        let corpus = target_folder.join("corpus").join(&name);
        fs::create_dir_all(&corpus)?;
        let mut fuzzer = Command::new(target_folder.join(&host).join("release").join(&name));
        fuzzer.arg(format!("-max_total_time={seconds}")).arg("-verbosity=0").arg("-print_final_stats=1");
        fuzzer.arg(format!("-artifact_prefix={}/{name}-", target_folder.display()));
        fuzzer.arg(corpus).arg(root.join("sidecar/fuzz-seeds").join(&name));
        child::succeed(&mut fuzzer, Duration::from_secs(seconds) + MARGIN)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The triple that this compiler makes programs for unless told otherwise.
fn host() -> Result<String> {
    let mut rustc = Command::new("rustc");
    let about = child::stdout_of(rustc.arg("-vV"), Duration::from_secs(60))?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc does not say what its host is")
}
