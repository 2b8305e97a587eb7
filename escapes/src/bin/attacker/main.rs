//! The attacker: a guest program that tries, by direct system calls, what must not work, one JSON line each.
//!
//! ```text
//! attacker guest FACTS      tries everything where it stands, in a VM
//! attacker control FACTS    the positive control: tries the same in throw-away namespaces of its own, with all
//!                           capabilities over them, no filter, and an empty tmpfs for a root
//! attacker storm NAME       takes all there is of something, says `raging`, and goes on until it is killed
//! attacker hold KEY         makes System V shared memory and a message queue, and removes them at the end of its input
//! ```
//!
//! It knows nothing of what is expected. FACTS are what it cannot find out by itself: `facts.rs`.

mod attempts;
mod control;
mod errno;
mod facts;
mod hold;
mod storm;
mod sys;
mod trial;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["guest", facts] => {
            facts::know(facts).and_then(|()| trial::all(|attempt| trial::outcome(attempt.run)))
        }
        ["control", facts] => facts::know(facts).and_then(|()| trial::all(control::of)),
        ["storm", name] => storm::rage(name),
        // What a storm has started, whatever else it was told.
        ["idle", ..] => storm::wait_to_be_killed(),
        ["hold", key] => hold::until_end_of_input(key),
        _ => Err(std::io::Error::other("guest FACTS, control FACTS, storm NAME or hold KEY")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("attacker: {error}");
            ExitCode::FAILURE
        }
    }
}
