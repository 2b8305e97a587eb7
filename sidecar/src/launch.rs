//! One executable, several processes: which of them this one is.
//!
//! The sidecar starts its zygote by executing its own file again under another name. Whatever program holds the
//! sidecar therefore asks [`run_zygote_if_requested`] first, before it starts any thread.

use crate::sys::descriptors::standard_input;
use crate::{packet, zygote};

/// The name a zygote and its inits go by: their `argv[0]`.
pub(crate) const ZYGOTE_NAME: &str = "agentvm-init";

/// Returns at once, except in a process that was executed as the zygote: there it never returns.
///
/// Call it first thing in `main`; where there is no `main` of one's own (`#[tokio::main]`, tests), use
/// [`before_main!`](crate::before_main).
pub fn run_zygote_if_requested() {
    let mut arguments = std::env::args_os();
    if arguments.next().is_none_or(|name| name != ZYGOTE_NAME) || arguments.next().is_some() {
        return;
    }
    // Whoever typed the name by hand has no socket there.
    if packet::is_packet_socket(standard_input())
        && let Ok(socket) = take_standard_input()
    {
        zygote::run(&socket);
    }
    crate::sys::exec::exit_now(2);
}

/// Moves the control socket out of the way of the standard streams, which become `/dev/null`.
fn take_standard_input() -> std::io::Result<std::os::fd::OwnedFd> {
    let socket = rustix::io::fcntl_dupfd_cloexec(standard_input(), 3)?;
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    for number in 0..3 {
        crate::sys::descriptors::put_at(&null, number)?;
    }
    Ok(socket)
}

/// Calls [`run_zygote_if_requested`] before `main`, for programs and tests that have no `main` of their own.
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
                $crate::run_zygote_if_requested();
            }
            before_main
        };
    };
}
