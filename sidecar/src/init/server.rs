//! Init's event loop: requests in, children reaped, replies out; nothing in it waits for anything else.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use agentvm_wire::id::ProcessId;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::Timespec;

use super::cpu::CpuWatch;
use super::helper::{Helper, Helpers};
use super::members::Members;
use super::messages::{Reply, Request, Start};
use super::reap::now_ms;
use super::spare::Spare;
use super::start::{self, Child};
use super::table::{Process, Stage, Table};
use super::terms::Terms;
use super::tree::TreeKill;
use crate::packet::{self, Packet};
use crate::sys::{SingleThreaded, signals};

/// What an epoll event is about; a child's socket is named by its pid, which is never 0 or negative.
const SOCKET: u64 = 0;
const CHILDREN: u64 = u64::MAX;

/// Replies that may wait for the sidecar before its requests have to wait in turn.
const MAX_WAITING_REPLIES: usize = 64;

/// Requests taken in one go, so that children are never left unreaped for long.
const REQUESTS_PER_TURN: usize = 32;

/// PID 1, at work.
pub(super) struct Server<'a> {
    pub(super) terms: &'a Terms<'a>,
    pub(super) proof: SingleThreaded,
    pub(super) table: Table,
    pub(super) members: Members,
    pub(super) kills: Vec<TreeKill>,
    pub(super) cpu_watches: Vec<CpuWatch>,
    /// The VM ends when nothing is left in it.
    pub(super) terminating: bool,
    pub(super) helpers: Helpers,
    pub(super) spare: Option<Spare>,
    /// Where the sidecar hands starts to it.
    pub(super) handed: &'a OwnedFd,
    /// Who was handed a start, which may still lie there should that die.
    pub(super) handing: Option<Pid>,
    /// A start has been served, and others may follow it.
    pub(super) spare_is_due: bool,
    /// Milliseconds since the epoch.
    pub(super) machine_start_ms: u64,
    /// What a helper cannot ask for itself.
    pub(super) reaped_io: [u64; 2],
    socket: &'a OwnedFd,
    epoll: OwnedFd,
    children: OwnedFd,
    /// Replies the socket has no room for. Sidecar reads; bounded by `MAX_WAITING_REPLIES` and the number of
    /// processes; when it is full, requests are not read.
    waiting: VecDeque<Vec<u8>>,
    interest: EventFlags,
    /// Not on the stack, whose pages init shares with each child it forks, and would copy for it.
    pub(super) buffer: Vec<u8>,
}

/// The sidecar has gone: the VM ends.
pub(super) struct Gone;

/// Serves until the sidecar closes the socket; returns the exit status.
pub(super) fn serve(socket: &OwnedFd, handed: &OwnedFd, terms: &Terms<'_>, proof: SingleThreaded) -> i32 {
    match Server::new(socket, handed, terms, proof) {
        Ok(mut server) => loop {
            if let Err(Gone) = server.turn() {
                return 0;
            }
        },
        Err(_) => 1,
    }
}

impl<'a> Server<'a> {
    fn new(
        socket: &'a OwnedFd,
        handed: &'a OwnedFd,
        terms: &'a Terms<'a>,
        proof: SingleThreaded,
    ) -> rustix::io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let children = signals::child_changes()?;
        let interest = EventFlags::IN;
        epoll::add(&epoll, socket, EventData::new_u64(SOCKET), interest)?;
        epoll::add(&epoll, &children, EventData::new_u64(CHILDREN), EventFlags::IN)?;
        Ok(Self {
            terms,
            proof,
            table: Table::default(),
            members: Members::of_vm(terms.plan.isolation)?,
            kills: Vec::new(),
            cpu_watches: Vec::new(),
            terminating: false,
            helpers: Helpers::new(),
            spare: None,
            handed,
            handing: None,
            spare_is_due: false,
            machine_start_ms: 0,
            reaped_io: [0; 2],
            socket,
            epoll,
            children,
            waiting: VecDeque::new(),
            interest,
            buffer: vec![0; packet::MAX_BYTES],
        })
    }

    fn turn(&mut self) -> Result<(), Gone> {
        let mut events = Vec::with_capacity(16);
        let timeout = self.next_deadline().map(until);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Err(Gone),
        }
        for event in events {
            match event.data.u64() {
                SOCKET => self.talk(event.flags)?,
                CHILDREN => self.reap_all()?,
                pid => {
                    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                        self.finish_start(pid)?;
                    }
                }
            }
        }
        self.give_up_late_starts();
        self.give_up_late_helpers();
        self.kill_trees()?;
        self.watch_cpu()?;
        if self.terminating && self.waiting.is_empty() && self.members.are_gone() {
            return Err(Gone);
        }
        self.make_spare_if_due();
        Ok(())
    }

    fn talk(&mut self, flags: EventFlags) -> Result<(), Gone> {
        if flags.contains(EventFlags::OUT) {
            self.send_waiting()?;
        }
        for _ in 0..REQUESTS_PER_TURN {
            if self.waiting.len() >= MAX_WAITING_REPLIES {
                break;
            }
            match packet::receive(self.socket, &mut self.buffer, RecvFlags::DONTWAIT) {
                Ok(Some(Packet { message, descriptors })) => self.handle(message, descriptors)?,
                Err(Errno::AGAIN) => break,
                // It has gone, or does not speak our language and cannot be served.
                Ok(None) | Err(_) => return Err(Gone),
            }
        }
        self.update_interest()
    }

    fn handle(&mut self, request: Request, descriptors: Vec<OwnedFd>) -> Result<(), Gone> {
        match request {
            Request::Start { process, start, handed } => {
                if self.table.by_id(process).is_some() {
                    self.refuse(handed);
                    return self.reply(&Reply::StartFailed {
                        process,
                        step: super::StartStep::Request,
                        errno: libc::EEXIST,
                    });
                }
                self.start(process, Packet { message: start, descriptors }, handed)
            }
            Request::Signal { token, process, signal, target } => self.signal(token, process, signal, target),
            Request::Expire { process } => self.expire(process),
            Request::Terminate => {
                self.terminating = true;
                self.members.signal_everybody(Signal::TERM);
                Ok(())
            }
            Request::Read { token, what, max_bytes, deadline_ms } => {
                self.read(token, what, max_bytes, Duration::from_millis(deadline_ms), descriptors)
            }
        }
    }

    /// Watches a child until it has executed its command.
    pub(super) fn watch(
        &mut self,
        id: ProcessId,
        Child { pid, socket }: Child,
        deadline: Instant,
        cpu_limit_us: Option<u64>,
        again: Option<Packet<Start>>,
    ) {
        let name = EventData::new_u64(u64::from(pid.as_raw_nonzero().get().unsigned_abs()));
        // No interest but the socket's end, which is always reported. Should it not be watchable, the deadline or the
        // child's end decides.
        let _ = epoll::add(&self.epoll, &socket, name, EventFlags::empty());
        let stage = Stage::Starting {
            socket,
            deadline,
            held: VecDeque::new(),
            again,
            cpu_limit: cpu_limit_us.map(Duration::from_micros),
            expired: false,
        };
        self.table.insert(Process { id, pid, started_at_ms: now_ms(), stage });
    }

    /// Sends a reply, or keeps it until the socket has room.
    pub(super) fn reply(&mut self, reply: &Reply) -> Result<(), Gone> {
        self.waiting.push_back(packet::encode(reply));
        if self.waiting.len() == 1 {
            self.send_waiting()?;
        }
        self.update_interest()
    }

    fn send_waiting(&mut self) -> Result<(), Gone> {
        while let Some(bytes) = self.waiting.front() {
            match packet::send(self.socket, bytes, &[]) {
                Ok(()) => drop(self.waiting.pop_front()),
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => break,
                Err(_) => return Err(Gone),
            }
        }
        Ok(())
    }

    fn update_interest(&mut self) -> Result<(), Gone> {
        let mut interest = EventFlags::empty();
        if self.waiting.len() < MAX_WAITING_REPLIES {
            interest |= EventFlags::IN;
        }
        if !self.waiting.is_empty() {
            interest |= EventFlags::OUT;
        }
        if interest != self.interest {
            epoll::modify(&self.epoll, self.socket, EventData::new_u64(SOCKET), interest)
                .map_err(|_| Gone)?;
            self.interest = interest;
        }
        Ok(())
    }

    /// Descriptor that is readable while children may have changed.
    pub(super) fn children(&self) -> &OwnedFd {
        &self.children
    }

    fn next_deadline(&self) -> Option<Instant> {
        let starts = self.table.iter().filter_map(|process| match process.stage {
            Stage::Starting { deadline, .. } => Some(deadline),
            Stage::Running => None,
        });
        let helpers = self.helpers.values().filter_map(Helper::deadline);
        let kills = self.kills.iter().map(|kill| kill.next);
        let cpu = self.cpu_watches.iter().map(|watch| watch.next);
        starts.chain(helpers).chain(kills).chain(cpu).min()
    }

    /// The time of a process is up: it ends with its tree, or is not started.
    fn expire(&mut self, id: ProcessId) -> Result<(), Gone> {
        let Some(process) = self.table.by_id(id) else { return Ok(()) };
        let Stage::Starting { deadline, expired, .. } = &mut process.stage else {
            return self.signal_tree(None, id, Signal::KILL);
        };
        *expired = true;
        *deadline = Instant::now();
        Ok(())
    }

    /// Kills children that are late; their end then tells the sidecar.
    fn give_up_late_starts(&mut self) {
        let now = Instant::now();
        for process in self.table.iter_mut() {
            if let Stage::Starting { deadline, again, .. } = &mut process.stage
                && *deadline <= now
            {
                *deadline = now + start::DEADLINE;
                *again = None;
                // It is our unreaped child, so the pid is its own.
                let _ = kill_process(process.pid, Signal::KILL);
            }
        }
    }
}

fn until(deadline: Instant) -> Timespec {
    let left = deadline.saturating_duration_since(Instant::now());
    Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    }
}
