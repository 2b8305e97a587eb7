//! The keeper process: takes requests, has a thread for each tree it watches and one that tells the sidecar.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use agentvm_wire::id::ProcessId;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::Pid;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

use super::handshake::Waiting;
use super::means::{Means, Untaken};
use super::messages::{Request, Told};
use super::notification::Listener;
use super::polling::Poller;
use super::proc::{Proc, Seen};
use super::ptrace::Tracer;
use super::records::Records;
use super::sighting::{Backend, Loss, Orders, Running, Sighting};
use super::sink::Sink;
use crate::init::now_ns;
use crate::isolation::niceness::Niceness;
use crate::isolation::rlimits::raise_open_files;
use crate::packet::{self, Packet};
use crate::sys::notification::Inbox;
use crate::sys::schedule::compute_shortly;
use crate::sys::{exec, signals};
use crate::zygote::leave_the_sidecars_session;

/// What a keeper that is root of the host keeps of that: to look into processes of other users.
const RIGHTS: CapabilitySet = CapabilitySet::SYS_PTRACE.union(CapabilitySet::DAC_READ_SEARCH);

/// Looks at the processes of a tree until none is left: whether anything was executed.
type Look<'a> = Box<dyn FnOnce() -> bool + 'a>;

/// How long a thread that watches a tree computes at a time: the least that there is.
const SLICE_NS: u64 = 100_000;

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
    // A thread that is gone would leave a tree unanswered; a keeper that is gone does not.
    std::panic::set_hook(Box::new(|_| exec::exit_now(101)));
    // Who ignores its children cannot wait for them.
    signals::restore(libc::SIGCHLD);
    // What it watches waits for it; an ordinary user may not.
    let _ = Niceness::lower();
    // Each process that is held takes one.
    raise_open_files();
    set_no_new_privs(true)?;
    let held = capabilities(None)?;
    let (effective, permitted) = (held.effective & RIGHTS, held.permitted & RIGHTS);
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })?;
    let mut buffer = vec![0; packet::MAX_BYTES];
    let received = packet::receive::<Orders>(socket, &mut buffer, RecvFlags::empty())?;
    let orders = received.ok_or(Errno::PIPE)?.message;
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
        loop {
            let Packet { message, descriptors } =
                match packet::receive(&self.socket, &mut buffer, RecvFlags::empty()) {
                    Ok(Some(packet)) => packet,
                    Ok(None) => return Ok(()),
                    // For what came along there is no descriptor left.
                    Err(Errno::MSGSIZE) => {
                        Packet { message: packet::decode(&buffer)?, descriptors: Vec::new() }
                    }
                    Err(errno) => return Err(errno.into()),
                };
            match message {
                Request::Expect { tree } => {
                    let Some(socket) = descriptors.into_iter().next() else {
                        self.give_up(tree, Loss::TooMany, libc::EMFILE);
                        continue;
                    };
                    self.in_a_thread(tree, move |keeper| keeper.watch(tree, &socket));
                }
                Request::Adopt { tree, running } => {
                    self.in_a_thread(tree, move |keeper| keeper.adopt(tree, &running));
                }
                Request::Ping => _ = self.sink.say(&Told::Pong, &[]),
            }
        }
    }

    /// Each tree has one: what is seized belongs to it.
    fn in_a_thread(self: &Arc<Self>, tree: ProcessId, see: impl FnOnce(&Self) + Send + 'static) {
        let keeper = self.clone();
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            // Who is woken in turn with a tracee stays on its processor then.
            let _ = compute_shortly(SLICE_NS);
            see(&keeper);
        });
        if thread.is_err() {
            self.give_up(tree, Loss::TooMany, libc::EAGAIN);
        }
    }

    /// Watches a tree that runs already.
    fn adopt(&self, tree: ProcessId, running: &Running) {
        match Tracer::of_running(&self.sink, &self.proc, tree, running, self.orders.require_exact) {
            Ok(tracer) => {
                self.sink.tell_now(Sighting::Adopted { tree });
                tracer.run();
            }
            Err(loss) => self.give_up(tree, loss, libc::EPERM),
        }
        self.sink.tell_now(Sighting::Done { tree });
    }

    /// Watches one tree. A child that was killed before it executed anything is followed by
    /// another one.
    fn watch(&self, tree: ProcessId, socket: &OwnedFd) {
        while let Some(waiting) = Waiting::await_it(socket) {
            if self.watch_from(tree, waiting) {
                break;
            }
        }
        self.sink.tell_now(Sighting::Done { tree });
    }

    /// Takes a child under watch, lets it go on, and returns when nothing of its tree is left: whether there was one.
    fn watch_from(&self, tree: ProcessId, waiting: Waiting<'_>) -> bool {
        self.proc.find_namespace(waiting.pid);
        // The pid may be somebody else's only if the child was killed meanwhile.
        let seen = self.proc.see(waiting.pid).filter(|seen| seen.who.pid == Some(waiting.pid_inside));
        let Some(seen) = seen else { return false };
        match Means::take(&self.orders, &waiting)
            .and_then(|means| self.begin(tree, means, (waiting.pid, seen)))
        {
            Ok((look, listener)) => self.follow(tree, waiting, look, listener),
            Err(Untaken { errno, goes_on }) => {
                self.give_up(tree, Loss::NoBackend, errno.raw_os_error());
                if goes_on {
                    waiting.go();
                } else {
                    waiting.forsake();
                }
                true
            }
        }
    }

    fn begin(
        &self,
        tree: ProcessId,
        means: Means,
        root: (Pid, Seen),
    ) -> Result<(Option<Look<'_>>, Option<Listener<'_>>), Untaken> {
        let backend = means.backend();
        let listener = means.listener.map(|(listener, wanted)| {
            let inbox = Inbox::new()?;
            // The sidecar has it before the child can need an answer.
            self.sink.say(&Told::Listener, &[listener.as_fd(), inbox.memory()]);
            Listener::new(&self.sink, &self.proc, tree, wanted, (listener, inbox), root)
        });
        let trapped = listener.is_some();
        let records = self.orders.records && means.process == Some(Backend::Notification);
        let untaken = |errno| Untaken { errno, goes_on: !trapped };
        let mut listener = listener.transpose().map_err(untaken)?;
        // What it can do without is only told to be missed.
        if let Some(listener) = listener.as_mut().filter(|_| records)
            && Records::of(root.0).and_then(|records| listener.read(records)).is_err()
        {
            self.sink.tell(Sighting::Lost { tree: Some(tree), loss: Loss::TooMany, count: 0 });
        }
        let look: Option<Look<'_>> = match means.process {
            Some(Backend::Ptrace) => {
                let tracer = Tracer::new(&self.sink, &self.proc, tree, root);
                Some(Box::new(|| tracer.run()))
            }
            Some(Backend::Polling) => {
                let poller = Poller::new(&self.sink, &self.proc, tree, root).map_err(untaken)?;
                Some(Box::new(|| poller.run()))
            }
            Some(Backend::Notification) | None => None,
        };
        self.sink.tell(Sighting::Watched { tree, root: root.1.who, at_ns: now_ns(), backend });
        Ok((look, listener))
    }

    /// Lets it go on, in this thread for whoever seized it.
    fn follow(
        &self,
        tree: ProcessId,
        waiting: Waiting<'_>,
        look: Option<Look<'_>>,
        listener: Option<Listener<'_>>,
    ) -> bool {
        let Some(look) = look else {
            waiting.go();
            return listener.is_none_or(Listener::run);
        };
        std::thread::scope(|scope| {
            let listening = listener.map(|listener| {
                let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
                thread.spawn_scoped(scope, || listener.run())
            });
            match listening.transpose() {
                Ok(_) => waiting.go(),
                Err(error) => {
                    self.give_up(tree, Loss::TooMany, error.raw_os_error().unwrap_or(libc::EAGAIN));
                    waiting.forsake();
                }
            }
            look()
        })
    }

    fn give_up(&self, tree: ProcessId, loss: Loss, errno: i32) {
        self.sink.tell_now(Sighting::Unwatched { tree, loss, errno });
    }
}
