//! One executable, several processes: which of them this one is.
//!
//! A client launches the sidecar by executing a program that holds it under the sidecar's name; the sidecar starts its
//! zygote by executing the same file again under another. Whatever program holds the sidecar therefore asks
//! [`run_if_requested`] first, before it starts any thread.

use std::os::fd::OwnedFd;

use agentvm_wire::launch::{INHERITED_ARG, SIDECAR_ARG0};

use crate::sys::descriptors::standard_input;
use crate::{keeper, packet, server, supervisor, zygote};

/// The name a zygote and its inits go by: their `argv[0]`.
pub(crate) const ZYGOTE_NAME: &str = "agentvm-init";

/// The name a supervisor and its init go by.
pub(crate) const SUPERVISOR_NAME: &str = "agentvm-supervisor";

/// The name a keeper goes by.
pub(crate) const KEEPER_NAME: &str = "agentvm-keeper";

/// Returns at once in the ordinary case. In a process that was executed as a sidecar or as a zygote it does that work
/// and never returns.
///
/// Call it first thing in a synchronous `main`; where there is none of one's own (`#[tokio::main]`, tests), use
/// [`before_main!`](crate::before_main). A sidecar in which threads already run ends with an error that says so.
pub fn run_if_requested() {
    let mut arguments = std::env::args_os();
    let (name, first, second) = (arguments.next(), arguments.next(), arguments.next());
    match (name, first, second) {
        (Some(name), None, _) if name == ZYGOTE_NAME => run_with_socket(zygote::run),
        (Some(name), None, _) if name == SUPERVISOR_NAME => run_with_socket(supervisor::run),
        (Some(name), None, _) if name == KEEPER_NAME => run_with_socket(keeper::run),
        (Some(name), Some(argument), None) if name == SIDECAR_ARG0 && argument == INHERITED_ARG => {
            run_sidecar()
        }
        _ => {}
    }
}

fn run_with_socket(run: fn(&OwnedFd) -> !) -> ! {
    // Whoever typed the name by hand has no socket there.
    if packet::is_packet_socket(standard_input())
        && let Ok(socket) = take_standard_input(3)
    {
        run(&socket);
    }
    crate::sys::exec::exit_now(2);
}

fn run_sidecar() -> ! {
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads > 1 {
        eprintln!(
            "agentvm-sidecar: {threads} threads run already: call run_if_requested() first thing in main"
        );
        std::process::exit(2);
    }
    // Called before `main`, the standard library has not done this yet: a closed pipe is an error, not a death.
    crate::sys::signals::ignore(libc::SIGPIPE);
    crate::isolation::rlimits::adapt_sidecar();
    // Standard error is the launching client's to show.
    let result = server::serve_inherited().inspect_err(|error| eprintln!("agentvm-sidecar: {error}"));
    std::process::exit(i32::from(result.is_err()));
}

/// Moves the socket that came as standard input out of the way of the standard streams, `silenced` of which become
/// `/dev/null`: the input alone in a sidecar, whose standard error its client reads; all three in a zygote, a supervisor or
/// a keeper.
pub(crate) fn take_standard_input(silenced: i32) -> std::io::Result<OwnedFd> {
    let socket = rustix::io::fcntl_dupfd_cloexec(standard_input(), 3)?;
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    for number in 0..silenced {
        crate::sys::descriptors::put_at(&null, number)?;
    }
    Ok(socket)
}

/// Calls [`run_if_requested`] before `main`, for programs and tests that have no `main` of their own.
///
/// Write it once, at the top level of the executable: `agentvm_sidecar::before_main!();`
#[macro_export]
macro_rules! before_main {
    () => {
        #[used]
        // SAFETY: the section is an array of functions that libc calls in order before `main`, with one thread and
        // with the standard library's own initialiser (which has an earlier place) done.
        #[unsafe(link_section = ".init_array")]
        static AGENTVM_BEFORE_MAIN: extern "C" fn() = {
            extern "C" fn before_main() {
                $crate::run_if_requested();
            }
            before_main
        };
    };
}
