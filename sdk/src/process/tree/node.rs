//! A node of the forest. Whatever is done with one — walking, cloning, comparing, printing, serialising, dropping —
//! overflows no stack, however deep a guest makes it.

use std::fmt;

use serde::{Serialize, Serializer, ser::SerializeStruct as _};

use crate::process::table::ProcessInfo;

/// A process and its children, sorted by pid; serialises with the process's own fields and `children` side by side.
#[non_exhaustive]
pub struct ProcessTreeNode {
    /// The process.
    pub info: ProcessInfo,
    /// Its children.
    pub children: Vec<ProcessTreeNode>,
}

impl ProcessTreeNode {
    /// This process and all below it, parents before their children, each with its distance from here: 0 for this one,
    /// 1 for its children.
    ///
    /// ```no_run
    /// # async fn example(vm: agentvm_sdk::AgentOs) -> Result<(), agentvm_sdk::ClientError> {
    /// for root in vm.process_tree().await? {
    ///     for (depth, process) in root.walk() {
    ///         println!("{:width$}{} {}", "", process.pid, process.command, width = 2 * depth);
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn walk(&self) -> impl Iterator<Item = (usize, &ProcessInfo)> {
        let mut pending = vec![(0, self)];
        std::iter::from_fn(move || {
            let (depth, node) = pending.pop()?;
            pending.extend(node.children.iter().rev().map(|child| (depth + 1, child)));
            Some((depth, &node.info))
        })
    }
}

/// A walk tells all of a tree: what lies how deep, in which order.
impl PartialEq for ProcessTreeNode {
    fn eq(&self, other: &Self) -> bool {
        self.walk().eq(other.walk())
    }
}

impl Eq for ProcessTreeNode {}

impl fmt::Debug for ProcessTreeNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProcessTreeNode ")?;
        f.debug_list().entries(self.walk()).finish()
    }
}

impl Clone for ProcessTreeNode {
    fn clone(&self) -> Self {
        let mut root = Self { info: self.info.clone(), children: Vec::new() };
        // Below the root, each the newest child of the one before.
        let mut branch: Vec<Self> = Vec::new();
        for (depth, info) in self.walk().skip(1) {
            root.hang(&mut branch, depth - 1);
            branch.push(Self { info: info.clone(), children: Vec::new() });
        }
        root.hang(&mut branch, 0);
        root
    }
}

impl ProcessTreeNode {
    /// Gives each node of the branch beyond `length` to its parent: nothing more comes below it.
    fn hang(&mut self, branch: &mut Vec<Self>, length: usize) {
        while branch.len() > length
            && let Some(node) = branch.pop()
        {
            branch.last_mut().unwrap_or(self).children.push(node);
        }
    }
}

impl Drop for ProcessTreeNode {
    fn drop(&mut self) {
        let mut pending = std::mem::take(&mut self.children);
        while let Some(mut node) = pending.pop() {
            pending.append(&mut node.children);
        }
    }
}

/// Stack left below which serialising goes on in a piece of memory of its own: more than serialisers put between two
/// nodes.
const RED_ZONE_BYTES: usize = 64 << 10;
/// How large such a piece is.
const STACK_BYTES: usize = 2 << 20;

/// serde knows nothing but recursion.
impl Serialize for ProcessTreeNode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        stacker::maybe_grow(RED_ZONE_BYTES, STACK_BYTES, || self.serialize_fields(serializer))
    }
}

impl ProcessTreeNode {
    fn serialize_fields<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
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
