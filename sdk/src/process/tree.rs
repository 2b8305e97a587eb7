//! The table as a forest. No recursion anywhere: a guest decides how deep it is.

use std::collections::{HashMap, HashSet};

use serde::{Serialize, Serializer, ser::SerializeStruct as _};

use super::table::ProcessInfo;
use crate::{agent_os::AgentOs, error::ClientError};

/// A process and its children, sorted by pid.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessTreeNode {
    /// The process.
    pub info: ProcessInfo,
    /// Its children.
    pub children: Vec<ProcessTreeNode>,
}

impl AgentOs {
    /// [`AgentOs::all_processes`] as a forest: a process whose parent is unknown, itself or part of a cycle is a root,
    /// so that no row ever vanishes. Errors and cancel safety as there.
    #[doc(alias = "processTree")]
    pub async fn process_tree(&self) -> Result<Vec<ProcessTreeNode>, ClientError> {
        self.all_processes().await.map(forest)
    }
}

/// Arranges rows by parent.
pub(super) fn forest(rows: Vec<ProcessInfo>) -> Vec<ProcessTreeNode> {
    let parents: HashMap<u32, u32> = rows.iter().map(|row| (row.pid, row.ppid)).collect();
    let roots: HashSet<u32> = roots(&rows, &parents);
    let order = top_down(&rows, &roots);

    // Bottom up: every node finds its children finished.
    let mut infos: HashMap<u32, ProcessInfo> = rows.into_iter().map(|row| (row.pid, row)).collect();
    let mut finished: HashMap<u32, Vec<ProcessTreeNode>> = HashMap::new();
    let mut forest = Vec::new();
    for pid in order.into_iter().rev() {
        let info = infos.remove(&pid).expect("the order names each row once");
        let mut children = finished.remove(&pid).unwrap_or_default();
        children.sort_by_key(|node| node.info.pid);
        let parent = info.ppid;
        let node = ProcessTreeNode { info, children };
        if roots.contains(&pid) {
            forest.push(node);
        } else {
            finished.entry(parent).or_default().push(node);
        }
    }
    forest.sort_by_key(|node| node.info.pid);
    forest
}

/// Rows without a parent among the rows, and one row — the lowest pid — of every cycle.
fn roots(rows: &[ProcessInfo], parents: &HashMap<u32, u32>) -> HashSet<u32> {
    let mut roots = HashSet::new();
    let mut settled = HashSet::new();
    for row in rows {
        let mut path = Vec::new();
        let mut on_path = HashSet::new();
        let mut pid = row.pid;
        while !settled.contains(&pid) {
            if !on_path.insert(pid) {
                let begin = path.iter().position(|on| *on == pid).expect("it is on the path");
                roots.insert(*path[begin..].iter().min().expect("a cycle has members"));
                break;
            }
            path.push(pid);
            match parents.get(&pid) {
                Some(parent) if parents.contains_key(parent) => pid = *parent,
                _ => {
                    roots.insert(pid);
                    break;
                }
            }
        }
        settled.extend(path);
    }
    roots
}

/// Every pid once, parents before children.
fn top_down(rows: &[ProcessInfo], roots: &HashSet<u32>) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for row in rows.iter().filter(|row| !roots.contains(&row.pid)) {
        children.entry(row.ppid).or_default().push(row.pid);
    }
    let mut order: Vec<u32> = roots.iter().copied().collect();
    let mut next = 0;
    while let Some(pid) = order.get(next) {
        order.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    order
}

/// The process's own fields and `children`, flat, as in TypeScript.
impl Serialize for ProcessTreeNode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let info = &self.info;
        let mut node = serializer.serialize_struct("ProcessTreeNode", 16)?;
        node.serialize_field("pid", &info.pid)?;
        node.serialize_field("ppid", &info.ppid)?;
        node.serialize_field("pgid", &info.pgid)?;
        node.serialize_field("sid", &info.sid)?;
        node.serialize_field("driver", &info.driver)?;
        node.serialize_field("command", &info.command)?;
        node.serialize_field("args", &info.args)?;
        node.serialize_field("argsTruncated", &info.args_truncated)?;
        node.serialize_field("cwd", &info.cwd)?;
        node.serialize_field("status", &info.status)?;
        node.serialize_field("exitCode", &info.exit_code)?;
        node.serialize_field("startTime", &info.start_time_ms)?;
        node.serialize_field("exitTime", &info.exit_time_ms)?;
        node.serialize_field("rssBytes", &info.rss_bytes)?;
        node.serialize_field("cpuTimeUs", &info.cpu_time_us)?;
        node.serialize_field("children", &self.children)?;
        node.end()
    }
}

/// A chain as deep as a guest cares to make it is dropped without recursion.
impl Drop for ProcessTreeNode {
    fn drop(&mut self) {
        let mut pending = std::mem::take(&mut self.children);
        while let Some(mut node) = pending.pop() {
            pending.append(&mut node.children);
        }
    }
}
