//! The table as a forest, built without recursion: a guest decides how deep it is.

mod node;

use std::collections::HashMap;

use agentvm_wire::process::ProcessStatus;

pub use node::ProcessTreeNode;

use super::table::ProcessInfo;
use crate::{agent_os::AgentOs, error::ClientError};

impl AgentOs {
    /// [`AgentOs::all_processes`] as a forest: a process whose parent is unknown, itself or part of a cycle is a root,
    /// so that no row ever vanishes. Errors and cancel safety as there; an example stands at
    /// [`ProcessTreeNode::walk`].
    #[doc(alias = "processTree")]
    pub async fn process_tree(&self) -> Result<Vec<ProcessTreeNode>, ClientError> {
        self.all_processes().await.map(forest)
    }
}

/// Arranges rows by parent. Rows are known by where they stand in the list, so that even two with one pid both appear.
pub(super) fn forest(rows: Vec<ProcessInfo>) -> Vec<ProcessTreeNode> {
    let parents = parents(&rows);
    let order = top_down(&parents);

    // Bottom up: every node finds its children finished.
    let mut rows: Vec<Option<ProcessInfo>> = rows.into_iter().map(Some).collect();
    let mut finished: Vec<Vec<ProcessTreeNode>> = rows.iter().map(|_| Vec::new()).collect();
    let mut forest = Vec::new();
    for row in order.into_iter().rev() {
        let info = rows[row].take().expect("the order names each row once");
        let mut children = std::mem::take(&mut finished[row]);
        children.sort_by_key(|node| node.info.pid);
        let siblings = parents[row].map_or(&mut forest, |parent| &mut finished[parent]);
        siblings.push(ProcessTreeNode { info, children });
    }
    forest.sort_by_key(|node| node.info.pid);
    forest
}

/// Where each row's parent stands; `None` for a root: its parent is not in the list, or it closes a cycle.
fn parents(rows: &[ProcessInfo]) -> Vec<Option<usize>> {
    // Of two rows with one pid the live one is the parent.
    let mut by_pid: HashMap<u32, usize> = HashMap::new();
    for (at, row) in rows.iter().enumerate() {
        if row.status != ProcessStatus::Exited || !by_pid.contains_key(&row.pid) {
            by_pid.insert(row.pid, at);
        }
    }
    let mut parents: Vec<_> = rows.iter().map(|row| by_pid.get(&row.ppid).copied()).collect();
    for root in cycles(rows, &parents) {
        parents[root] = None;
    }
    parents
}

/// One row, that of the lowest pid, of every cycle.
fn cycles(rows: &[ProcessInfo], parents: &[Option<usize>]) -> Vec<usize> {
    let mut roots = Vec::new();
    // In which walk each row was first met.
    let mut met: Vec<Option<usize>> = vec![None; rows.len()];
    for walk in 0..rows.len() {
        let mut at = Some(walk);
        while let Some(row) = at.filter(|row| met[*row].is_none()) {
            met[row] = Some(walk);
            at = parents[row];
        }
        if let Some(row) = at.filter(|row| met[*row] == Some(walk)) {
            let members =
                std::iter::successors(Some(row), |member| parents[*member].filter(|next| *next != row));
            roots.extend(members.min_by_key(|member| rows[*member].pid));
        }
    }
    roots
}

/// Every row once, parents before children.
fn top_down(parents: &[Option<usize>]) -> Vec<usize> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); parents.len()];
    let mut order = Vec::new();
    for (row, parent) in parents.iter().enumerate() {
        parent.map_or(&mut order, |parent| &mut children[parent]).push(row);
    }
    let mut next = 0;
    while let Some(row) = order.get(next) {
        order.append(&mut std::mem::take(&mut children[*row]));
        next += 1;
    }
    order
}
