//! Writes `API.md` and the lists of members it is made of, or checks that both are what they should be.

use std::{fs, path::PathBuf, process::ExitCode};

use agentvm_conformance::{
    api::{
        Api,
        members::{self, PACKAGES},
        page::Page,
    },
    install,
    target::Target,
};
use anyhow::{Context as _, Result};
use clap::Parser;

/// Tell what in our crate answers to what in the published packages.
#[derive(Parser)]
struct Arguments {
    /// Write nothing; fail if anything would change.
    #[arg(long)]
    check: bool,
    /// Install the packages that are missing, with npm.
    #[arg(long)]
    install: bool,
    /// A package that is not there fails the run.
    #[arg(long)]
    complete: bool,
    /// The folder of scenarios, drivers and targets.
    #[arg(long, default_value = env!("CARGO_MANIFEST_DIR"))]
    folder: PathBuf,
}

fn main() -> Result<ExitCode> {
    let Arguments { check, install, complete, folder } = Arguments::parse();
    let mut complaints = Vec::new();
    let mut renew = |path: PathBuf, text: String| -> Result<()> {
        if fs::read_to_string(&path).is_ok_and(|there| there == text) {
            return Ok(());
        }
        if check {
            complaints.push(format!("{} is not fresh", path.display()));
            return Ok(());
        }
        fs::write(&path, text).with_context(|| path.display().to_string())
    };
    let mut missing = 0;
    for (target, types) in PACKAGES {
        let ready = |target| install::ready(target, &folder, install);
        match ready(Target::TsClient).and_then(|()| ready(target)) {
            Ok(()) => renew(members::list(&folder, target), members::found(&folder, target, types)?)?,
            Err(reason) => {
                println!("the members of {} are not looked at: {reason}", target.name());
                missing += 1;
            }
        }
    }
    let api = Api::read(&folder)?;
    renew(folder.join("API.md"), Page(&api).to_string())?;
    complaints.extend(api.complaints());
    for complaint in &complaints {
        println!("{complaint}");
    }
    let good = complaints.is_empty() && !(complete && missing > 0);
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
