//! A tree seen by seccomp user notification (`seccomp_unotify(2)`): every thread of it waits for a moment before a call that
//! is asked about.
//!
//! Processes are met at the first such call, their own or that by which their parent ends, and are then held by a pidfd,
//! which tells their end and code. A fork is never asked about, nor is what shells cannot have interrupted; so a child
//! that is killed before its first call is only seen where the kernel records forks ([`Records`]). What was executed is
//! looked up once it has been: a call to execute may fail.

mod execution;

use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use agentvm_wire::id::ProcessId;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::time::Timespec;

use super::alarm::Alarm;
use super::calls::{self, Kind, Reader};
use super::held::Held;
use super::proc::{Proc, Seen, pid_of};
use super::records::{Record, Records};
use super::sighting::{Key, Loss, Sighting, Subject, Wanted, What};
use super::sink::Sink;
use crate::init::{now_ns, ticks_at};
use crate::sys::notification::{self, Call, Inbox};

/// What an epoll event is about; else it is a process, whose pid it is not.
const RECORDS: u64 = u64::MAX;

/// Until those are looked at that ended while others asked.
const SOON: Duration = Duration::from_millis(5);

/// Until those are looked for that were made and ask for nothing: to be woken for each takes the time of who makes it.
const LATER: Duration = Duration::from_millis(200);

/// Of whom nobody knows how it has ended.
const UNKNOWN_END: What = What::Exited { code: None, signal: None };

/// Ancestors that are met together at most.
const MAX_DEPTH: usize = 64;

/// Who takes a tree's calls.
pub(super) struct Listener<'a> {
    sink: &'a Sink,
    proc: &'a Proc,
    tree: ProcessId,
    wanted: Wanted,
    socket: OwnedFd,
    inbox: Inbox,
    epoll: OwnedFd,
    alarm: Alarm,
    root: Key,
    /// Whose child the root is: whoever gets that parent later has lost his own.
    outside: u32,
    processes: HashMap<Pid, Process>,
    /// Threads of those that are no main threads.
    threads: HashMap<Pid, Pid>,
    records: Option<Records>,
    /// Those of whom a record tells that they were made, but who were over before anybody could look.
    gone: HashMap<Pid, Subject>,
    /// The kernel tells how somebody has ended also who looks later.
    told_late: bool,
    /// The last that ended, while that is not known.
    last: Option<Held>,
    /// When to look at whom.
    looks: BTreeSet<(Instant, i32)>,
    executed: bool,
}

struct Process {
    held: Held,
    /// What it tried to execute, and how often it was looked whether it has.
    tried: Option<(Vec<u8>, u32)>,
    /// It is about to exit with this, since that moment.
    leaving: Option<(u8, u64)>,
}

impl<'a> Listener<'a> {
    /// For a root that still waits to go.
    pub(super) fn new(
        sink: &'a Sink,
        proc: &'a Proc,
        tree: ProcessId,
        wanted: Wanted,
        (listener, inbox): (OwnedFd, Inbox),
        root: (Pid, Seen),
    ) -> rustix::io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        notification::wake_in_step(&listener);
        let (pid, seen) = root;
        let mut watch = Self {
            sink,
            proc,
            tree,
            wanted,
            socket: listener,
            inbox,
            epoll,
            alarm: Alarm::new()?,
            root: seen.who.key,
            outside: seen.parent,
            processes: HashMap::new(),
            threads: HashMap::new(),
            records: None,
            gone: HashMap::new(),
            told_late: false,
            last: None,
            looks: BTreeSet::new(),
            executed: !wanted.process,
        };
        watch.hold(pid, seen)?;
        Ok(watch)
    }

    /// Reads records, too.
    pub(super) fn read(&mut self, records: Records) -> rustix::io::Result<()> {
        for ring in records.watched() {
            epoll::add(&self.epoll, ring, EventData::new_u64(RECORDS), EventFlags::IN)?;
        }
        self.records = Some(records);
        Ok(())
    }

    /// Answers until nobody is left: whether anything was executed, as far as that is looked at.
    pub(super) fn run(mut self) -> bool {
        let (mut listening, mut busy) = (true, false);
        while listening || !self.processes.is_empty() {
            let Ok((socket, rings)) = self.wait(listening, busy) else { break };
            // Whoever asks, or has ended, was made before.
            self.take_records();
            if self.look_at_ends().is_err() {
                break;
            }
            if rings {
                self.alarm.quiet();
                self.look();
                busy = false;
            }
            if socket.contains(PollFlags::IN) {
                self.answer();
                busy = self.told_late;
            } else if !socket.is_empty() {
                listening = false;
                self.take_records();
            }
            if busy || !self.looks.is_empty() {
                self.alarm.set(SOON);
            } else if self.records.is_some() {
                self.alarm.set(LATER);
            }
        }
        for (_, who) in std::mem::take(&mut self.gone) {
            self.tell_process(who, UNKNOWN_END);
        }
        self.executed
    }

    /// Waits until something happens: what that is at the socket, and whether the alarm rings. Who has asked will soon do so
    /// again, so nothing else is waited for then but the end of the root: to wake somebody takes the time of who ends, or
    /// forks.
    fn wait(&self, listening: bool, busy: bool) -> rustix::io::Result<(PollFlags, bool)> {
        let root = pid_of(self.root.host_pid).and_then(|root| self.processes.get(&root)).filter(|_| busy);
        let others = root.map_or(&self.epoll, |root| &root.held.pidfd);
        let mut watched = vec![PollFd::new(others, PollFlags::IN), PollFd::new(&self.alarm, PollFlags::IN)];
        if listening {
            watched.push(PollFd::new(&self.socket, PollFlags::IN));
        }
        rustix::io::retry_on_intr(|| poll(&mut watched, None))?;
        let state = |watched: &PollFd<'_>| watched.revents();
        Ok((watched.get(2).map_or(PollFlags::empty(), state), !state(&watched[1]).is_empty()))
    }

    /// Takes what has ended since the last time.
    fn look_at_ends(&mut self) -> rustix::io::Result<()> {
        if let Some(last) = self.last.take() {
            self.told_late = last.is_told();
        }
        let mut events = Vec::with_capacity(32);
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&Timespec::default()))?;
        for event in events {
            if let Some(pid) = i32::try_from(event.data.u64()).ok().and_then(Pid::from_raw) {
                self.ended(pid);
            }
        }
        Ok(())
    }

    /// Takes what was recorded since the last time.
    fn take_records(&mut self) {
        let records = self.records.as_mut().map_or_else(Vec::new, Records::take);
        for record in records {
            match record {
                Record::Forked { pid, parent, at_ns } => self.forked(pid, parent, at_ns),
                Record::Ended { pid, at_ns } => {
                    if let Some(who) = self.gone.remove(&pid) {
                        self.sink.tell(self.sighting_at(who, at_ns, UNKNOWN_END));
                    }
                }
                Record::Lost { count } => {
                    self.sink.tell(Sighting::Lost { tree: Some(self.tree), loss: Loss::Overflow, count });
                }
            }
        }
    }

    /// Meets a process that a record tells of, if that is still to be had.
    fn forked(&mut self, pid: Pid, parent: u32, at_ns: u64) {
        if self.processes.contains_key(&pid) {
            return;
        }
        // One that began later only has the same pid.
        let start_ticks = ticks_at(at_ns);
        let seen = self.proc.see(pid).filter(|seen| seen.who.key.start_ticks <= start_ticks);
        let met = seen.is_some_and(|seen| self.meet(pid, Seen { parent, ..seen }, MAX_DEPTH));
        if !met {
            let key = Key { host_pid: pid.as_raw_nonzero().get().unsigned_abs(), start_ticks };
            let who = seen.map_or(Subject { key, pid: None }, |seen| seen.who);
            self.sink.tell(self.sighting_at(who, at_ns, self.beginning(pid_of(parent))));
            self.gone.insert(pid, who);
        }
    }

    fn answer(&mut self) {
        let Ok(call) = self.inbox.receive(&self.socket) else { return };
        if let Some(thread) = pid_of(call.thread)
            && let Some(process) = self.process_of(thread)
        {
            self.take(thread, process, &call);
        }
        // It fails if the thread was killed, or made to do something else first.
        let _ = notification::let_go(&self.socket, call.id);
    }

    fn take(&mut self, thread: Pid, process: Pid, call: &Call) {
        self.settle(process);
        let Some(known) = self.processes.get_mut(&process) else { return };
        let who = known.held.who;
        let reader = Reader { proc: self.proc, thread, call };
        let what = match calls::kind(call) {
            Some(Kind::Execute) => {
                let program = reader.program();
                self.tries(process, program);
                None
            }
            Some(Kind::Exit(code)) => {
                known.leaving = Some((code, now_ns()));
                // Else they are known.
                if self.records.is_none() {
                    self.meet_children(process);
                }
                None
            }
            Some(Kind::File(act, path, to, flags)) => reader.file(act, path, to, flags).map(What::File),
            Some(Kind::Network(act, address)) => reader.network(act, address).map(What::Network),
            None => None,
        };
        // Else the thread that was read from may have been another one.
        if let Some(what) = what
            && notification::is_valid(&self.socket, call.id)
        {
            self.saw(who, what);
        }
    }

    /// The process of a thread; one that was not known is met.
    fn process_of(&mut self, thread: Pid) -> Option<Pid> {
        if self.processes.contains_key(&thread) {
            return Some(thread);
        }
        if let Some(process) =
            self.threads.get(&thread).filter(|process| self.processes.contains_key(process))
        {
            return Some(*process);
        }
        let Some(seen) = self.proc.see(thread) else {
            if self.proc.ran_short() {
                self.sink.lose(self.tree);
            }
            return None;
        };
        let process = pid_of(seen.who.key.host_pid)?;
        self.meet(process, seen, MAX_DEPTH);
        if seen.is_thread {
            self.threads.insert(thread, process);
        }
        Some(process)
    }

    /// Meets a process, and first its parent; false if it was killed meanwhile.
    fn meet(&mut self, pid: Pid, seen: Seen, depth: usize) -> bool {
        if self.processes.contains_key(&pid) {
            return true;
        }
        match self.hold(pid, seen) {
            Ok(()) => {}
            Err(Errno::SRCH) => return false,
            Err(_) => {
                self.sink.lose(self.tree);
                return true;
            }
        }
        let parent = pid_of(seen.parent).filter(|_| seen.parent != self.outside && depth > 0);
        if let Some(parent) = parent
            && !self.processes.contains_key(&parent)
            && let Some(seen) = self.proc.see(parent)
        {
            self.meet(parent, seen, depth - 1);
        }
        // It forked it before or after it executed something; who was asked about nothing since has done so before.
        if let Some(parent) = parent {
            self.settle(parent);
        }
        self.tell_process(seen.who, self.beginning(parent));
        true
    }

    fn beginning(&self, parent: Option<Pid>) -> What {
        let known = |pid| {
            self.processes.get(&pid).map(|known| known.held.who).or_else(|| self.gone.get(&pid).copied())
        };
        let parent = parent.and_then(known).map(|parent| parent.key);
        parent.map_or(What::Adopted { parent: None }, |parent| What::Forked { parent })
    }

    fn meet_children(&mut self, pid: Pid) {
        for child in self.proc.children(pid) {
            // One that has ended was known before, or nobody knows what it did.
            if !self.processes.contains_key(&child)
                && let Some(seen) = self.proc.see(child).filter(|seen| !seen.is_zombie)
            {
                self.meet(child, seen, MAX_DEPTH);
            }
        }
    }

    fn hold(&mut self, pid: Pid, seen: Seen) -> rustix::io::Result<()> {
        let held = Held::hold(pid, seen)?;
        let about = EventData::new_u64(seen.who.key.host_pid.into());
        epoll::add(&self.epoll, &held.pidfd, about, EventFlags::IN)?;
        self.processes.insert(pid, Process { held, tried: None, leaving: None });
        Ok(())
    }

    /// A process is a zombie, or has been one.
    fn ended(&mut self, pid: Pid) {
        let Some(mut process) = self.processes.remove(&pid) else { return };
        self.threads.retain(|_, process| *process != pid);
        if !self.wanted.process {
            return;
        }
        let who = process.held.who;
        let end = process.held.end(self.proc, pid, process.leaving.map(|(code, _)| code));
        let killed = matches!(end, What::Exited { signal: Some(_), .. });
        self.settle_at_end(pid, &mut process, killed);
        // It is noticed later.
        let at_ns = process.leaving.filter(|_| !killed).map_or_else(now_ns, |(_, at_ns)| at_ns);
        let saw = self.sighting_at(who, at_ns, end);
        self.sink.tell_end(saw, who.key == self.root);
        if !self.told_late {
            self.last = Some(process.held);
        }
    }

    /// Tells it, unless somebody else tells of processes.
    fn tell_process(&self, who: Subject, what: What) {
        if self.wanted.process {
            self.saw(who, what);
        }
    }

    fn saw(&self, who: Subject, what: What) {
        self.sink.tell(self.sighting(who, what));
    }

    fn sighting(&self, who: Subject, what: What) -> Sighting {
        self.sighting_at(who, now_ns(), what)
    }

    fn sighting_at(&self, who: Subject, at_ns: u64, what: What) -> Sighting {
        Sighting::Saw { tree: Some(self.tree), who, at_ns, what }
    }
}
