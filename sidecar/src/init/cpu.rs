//! The limit on the CPU time of a tree.
//!
//! The kernel counts CPU time per process, with the children it has waited for. So each look adds up what the members
//! have used; what members that are gone were last seen with is kept, unless a parent that waited for them now has it.
//! A tree can use no more than all processors give, so the next look comes when it could have reached its limit.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use agentvm_wire::id::ProcessId;
use rustix::process::{Pid, Signal};

use super::members::Members;
use super::messages::Reply;
use super::place::Place;
use super::server::{Gone, Server};
use super::stat::{Stat, TICKS_PER_SECOND};
use super::table::Mark;

/// Between two looks.
const SOONEST: Duration = Duration::from_millis(10);
const LATEST: Duration = Duration::from_millis(100);

/// A tree whose CPU time is limited.
#[derive(Debug)]
pub(super) struct CpuWatch {
    id: ProcessId,
    mark: Mark,
    /// Keeps the mark from becoming that of another tree.
    _pin: OwnedFd,
    limit: Duration,
    account: Account,
    /// When it is looked at next.
    pub(super) next: Instant,
}

/// What a tree has used, in clock ticks.
#[derive(Debug, Default)]
struct Account {
    members: BTreeMap<i32, Member>,
    /// What members that are gone had used, and nobody waited for.
    lost: u64,
}

/// A process as it was last seen.
#[derive(Debug, Clone, Copy)]
struct Member {
    start_ticks: u64,
    own: u64,
    children: u64,
}

impl From<&Stat> for Member {
    fn from(stat: &Stat) -> Self {
        Self { start_ticks: stat.start_ticks, own: stat.cpu_ticks, children: stat.children_cpu_ticks }
    }
}

impl Account {
    /// Takes what was found now; returns the sum.
    fn update(&mut self, found: BTreeMap<i32, Member>) -> u64 {
        let is_same = |a: &Member, b: &Member| a.start_ticks == b.start_ticks;
        let before = std::mem::take(&mut self.members);
        let gone = |(pid, was): &(&i32, &Member)| !found.get(pid).is_some_and(|is| is_same(is, was));
        let vanished: u64 = before.iter().filter(gone).map(|(_, was)| was.own + was.children).sum();
        let inherited = |(pid, is): (&i32, &Member)| {
            let was = before.get(pid).filter(|was| is_same(is, was)).map_or(0, |was| was.children);
            is.children.saturating_sub(was)
        };
        let inherited: u64 = found.iter().map(inherited).sum();
        self.lost += vanished.saturating_sub(inherited);
        self.members = found;
        self.lost + self.members.values().map(|member| member.own + member.children).sum::<u64>()
    }
}

impl CpuWatch {
    /// Looks at every member; `None` if there is none any more, else whether the limit is reached.
    fn look(&mut self, members: &Members) -> Option<bool> {
        let living = members.of_tree(self.mark);
        if living.is_empty() {
            return None;
        }
        // A zombie belongs to no tree any more, but still holds what it used until its parent waits for it.
        let known = self.account.members.iter().filter_map(|(pid, was)| {
            let stat = read_stat(members, Pid::from_raw(*pid)?)?;
            (stat.start_ticks == was.start_ticks).then_some((*pid, Member::from(&stat)))
        });
        let living = living
            .into_iter()
            .filter_map(|pid| Some((pid.as_raw_nonzero().get(), Member::from(&read_stat(members, pid)?))));
        let used = self.account.update(known.chain(living).collect());
        let used = Duration::from_millis(used.saturating_mul(1000 / TICKS_PER_SECOND));
        let processors =
            std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1));
        let left = self.limit.saturating_sub(used);
        self.next = Instant::now() + (left / processors).clamp(SOONEST, LATEST);
        Some(left.is_zero())
    }
}

fn read_stat(members: &Members, pid: Pid) -> Option<Stat> {
    Place::of(members.folder(), pid).ok()?.stat()
}

impl Server<'_> {
    /// Limits what a process that has just started may use with its descendants.
    pub(super) fn limit_cpu(&mut self, id: ProcessId, limit: Duration) -> Result<(), Gone> {
        if let Some((mark, pin)) = self.pin_tree(id)? {
            let account = Account::default();
            self.cpu_watches.push(CpuWatch { id, mark, _pin: pin, limit, account, next: Instant::now() });
        }
        Ok(())
    }

    /// Looks at each tree that is due, and ends those that have used up their time.
    pub(super) fn watch_cpu(&mut self) -> Result<(), Gone> {
        let now = Instant::now();
        let mut over = Vec::new();
        let members = &self.members;
        self.cpu_watches.retain_mut(|watch| {
            let reached = if watch.next <= now { watch.look(members) } else { Some(false) };
            if reached == Some(true) {
                over.push(watch.id);
            }
            reached == Some(false)
        });
        over.into_iter().try_for_each(|process| {
            self.reply(&Reply::CpuLimit { process })?;
            self.signal_tree(None, process, Signal::KILL)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(account: &mut Account, found: &[(i32, u64, u64)]) -> u64 {
        let member = |(pid, own, children): &(i32, u64, u64)| {
            (*pid, Member { start_ticks: 1, own: *own, children: *children })
        };
        account.update(found.iter().map(member).collect())
    }

    #[test]
    fn what_a_parent_waited_for_is_counted_once() {
        let mut account = Account::default();
        assert_eq!(used(&mut account, &[(1, 5, 0), (2, 40, 0)]), 45);
        assert_eq!(used(&mut account, &[(1, 6, 43)]), 49, "2 went on to 43 before it ended");
        assert_eq!(used(&mut account, &[(1, 6, 60)]), 66, "and another came and went unseen");
    }

    #[test]
    fn what_nobody_waited_for_stays_as_it_was_last_seen() {
        let mut account = Account::default();
        used(&mut account, &[(1, 5, 0), (2, 40, 2), (3, 7, 0)]);
        assert_eq!(used(&mut account, &[(1, 15, 0), (3, 8, 0)]), 65);
        assert_eq!(used(&mut account, &[(3, 8, 0)]), 65);
        assert_eq!(used(&mut account, &[]), 65);
    }

    #[test]
    fn a_new_process_with_an_old_pid_is_another() {
        let mut account = Account::default();
        used(&mut account, &[(1, 5, 0), (2, 40, 0)]);
        let second = Member { start_ticks: 2, own: 3, children: 0 };
        let first = Member { start_ticks: 1, own: 5, children: 0 };
        assert_eq!(account.update(BTreeMap::from([(1, first), (2, second)])), 48);
    }
}
