//! The keeper process: takes requests, has a thread for each tree it watches and one that tells the sidecar.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use agentvm_wire::id::ProcessId;
use rustix::net::RecvFlags;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

use super::handshake::Waiting;
use super::messages::{Request, Told};
use super::proc::Proc;
use super::ptrace;
use super::sighting::{Backend, Loss, Orders, Sighting};
use super::sink::Sink;
use crate::packet::{self, Packet};
use crate::sys::{exec, signals};
use crate::zygote::leave_the_sidecars_session;

/// What a keeper that is root of the host keeps of that: to look into processes of other users.
const RIGHTS: CapabilitySet = CapabilitySet::SYS_PTRACE.union(CapabilitySet::DAC_READ_SEARCH);

/// Bytes of the stack of a thread that watches a tree.
const STACK_BYTES: usize = 256 << 10;

/// Is the keeper until the sidecar closes its end of `socket`; what it watched then runs on.
pub(crate) fn run(socket: &OwnedFd) -> ! {
    let status = prepare(socket).and_then(Keeper::serve);
    exec::exit_now(i32::from(status.is_err()))
}

struct Keeper {
    orders: Orders,
    socket: Arc<OwnedFd>,
    sink: Sink,
    proc: Proc,
}

fn prepare(socket: &OwnedFd) -> std::io::Result<Arc<Keeper>> {
    leave_the_sidecars_session(socket).map_err(|fault| std::io::Error::from_raw_os_error(fault.errno))?;
    rustix::thread::set_name(c"agentvm-keeper")?;
    // Who ignores its children cannot wait for them.
    signals::restore(libc::SIGCHLD);
    set_no_new_privs(true)?;
    let held = capabilities(None)?;
    let (effective, permitted) = (held.effective & RIGHTS, held.permitted & RIGHTS);
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })?;
    let mut buffer = vec![0; packet::MAX_BYTES];
    let received = packet::receive::<Orders>(socket, &mut buffer, RecvFlags::empty())?;
    let orders = received.ok_or(rustix::io::Errno::PIPE)?.message;
    let socket = Arc::new(rustix::io::fcntl_dupfd_cloexec(socket, 3)?);
    let sink = Sink::new(socket.clone());
    Ok(Arc::new(Keeper { orders, socket, sink, proc: Proc::open()? }))
}

impl Keeper {
    fn serve(self: Arc<Self>) -> std::io::Result<()> {
        let teller = self.clone();
        std::thread::Builder::new().spawn(move || teller.sink.run())?;
        self.sink.say(&Told::Ready, &[]);
        let mut buffer = vec![0; packet::MAX_BYTES];
        while let Some(Packet { message, descriptors }) =
            packet::receive(&self.socket, &mut buffer, RecvFlags::empty())?
        {
            match message {
                Request::Expect { tree } => {
                    let Some(socket) = descriptors.into_iter().next() else { continue };
                    let keeper = self.clone();
                    let watch = move || keeper.watch(tree, &socket);
                    if std::thread::Builder::new().stack_size(STACK_BYTES).spawn(watch).is_err() {
                        self.give_up(tree, Loss::TooMany, libc::EAGAIN);
                    }
                }
                Request::Ping => _ = self.sink.say(&Told::Pong, &[]),
            }
        }
        Ok(())
    }

    /// Watches one tree, in a thread of its own. A child that was killed before it executed anything is followed by
    /// another one.
    fn watch(&self, tree: ProcessId, socket: &OwnedFd) {
        while let Some(waiting) = Waiting::await_it(socket) {
            match self.try_ladder(tree, waiting) {
                Ok(executed) if !executed => {}
                _ => break,
            }
        }
        self.sink.tell_now(Sighting::Done { tree });
    }

    fn try_ladder(&self, tree: ProcessId, mut waiting: Waiting<'_>) -> Result<bool, ()> {
        let mut refused = libc::EOPNOTSUPP;
        for backend in &self.orders.ladder {
            let watched = match backend {
                Backend::Ptrace => {
                    ptrace::watch(&self.sink, &self.proc, tree, waiting, self.orders.require_exact)
                }
                _ => continue,
            };
            match watched {
                Ok(executed) => return Ok(executed),
                Err((again, errno)) => (waiting, refused) = (again, errno.raw_os_error()),
            }
        }
        waiting.go();
        self.give_up(tree, Loss::NoBackend, refused);
        Err(())
    }

    fn give_up(&self, tree: ProcessId, loss: Loss, errno: i32) {
        self.sink.tell_now(Sighting::Unwatched { tree, loss, errno });
    }
}
