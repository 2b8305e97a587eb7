//! What a driver can be told to do. One line of JSON each; the same words in the scenario files.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    data::Data,
    wire::{Collect, Connect, On, Receive, SendBytes, SendFrame, SendMessage, SendText},
};

/// One call of the API.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Action {
    /// Create the VM; always the first, and never written in a scenario's steps.
    #[schemars(skip)]
    Create(Create),
    /// Run a command line in the shell to its end.
    Exec(Exec),
    /// Run a program without a shell to its end.
    ExecArgv(ExecArgv),
    /// Report the result of an exec that was given a name.
    Join(Join),
    /// Start a program; both its outputs are collected from here on.
    Spawn(Spawn),
    /// Write to a process's standard input.
    WriteStdin(WriteStdin),
    /// End a process's standard input.
    CloseStdin(Of),
    /// Collect an output until it contains a text, and report it up to there; without a text, to its end.
    Output(Output),
    /// Await a process's end; reports what was collected of its outputs by then, too.
    Wait(Of),
    /// Await the exit handler of a process, registered now.
    OnExit(Of),
    /// The polite end.
    Stop(Of),
    /// The hard end.
    Kill(Of),
    /// Sends a signal to a process.
    Signal(SendSignal),
    /// One spawned process.
    Get(Of),
    /// The spawned processes.
    List(Nothing),
    /// Every process of the VM.
    AllProcesses(Nothing),
    /// Every process of the VM, under its parent.
    Tree(Nothing),
    /// End the VM.
    Dispose(Nothing),
    /// Open a connection beside the VM's own. This and what follows speak the protocol itself, which no SDK lets one do.
    Connect(Connect),
    /// Send a message.
    SendMessage(SendMessage),
    /// Send text that need not be a message.
    SendText(SendText),
    /// Send a piece of a stream.
    SendFrame(SendFrame),
    /// Send bytes that need not be a piece of a stream.
    SendBytes(SendBytes),
    /// Await a message.
    Receive(Receive),
    /// Await bytes of a stream.
    Collect(Collect),
    /// Close a connection, which ends its session.
    Disconnect(On),
}

impl Action {
    /// Whether it speaks the protocol itself.
    pub fn is_wire_level(&self) -> bool {
        matches!(
            self,
            Self::Connect(_)
                | Self::SendMessage(_)
                | Self::SendText(_)
                | Self::SendFrame(_)
                | Self::SendBytes(_)
                | Self::Receive(_)
                | Self::Collect(_)
                | Self::Disconnect(_)
        )
    }
}

/// The VM.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Create {
    /// Its environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// A command line.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exec {
    /// Handed to the shell unaltered.
    pub command: String,
    /// With a name it runs while the next steps are done, until a `join` of that name.
    #[serde(rename = "as", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Variables over the VM's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Working directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Its whole standard input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Data>,
    /// After so long it is killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Whether its output is kept for the result; it is if not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<bool>,
}

/// A program and its arguments.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecArgv {
    /// The program.
    pub command: String,
    /// Each verbatim.
    #[serde(default)]
    pub args: Vec<String>,
    /// With a name it runs while the next steps are done, until a `join` of that name.
    #[serde(rename = "as", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Variables over the VM's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Working directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Its whole standard input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Data>,
    /// After so long it is killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Whether its output is kept for the result; it is if not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<bool>,
}

/// A signal for a process.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendSignal {
    /// The process.
    pub process: Target,
    /// The signal's name.
    pub signal: String,
}

/// The name of an exec.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// As given in its `as`.
    pub exec: String,
}

/// A program to follow.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spawn {
    /// What later steps call it.
    #[serde(rename = "as")]
    pub name: String,
    /// The program.
    pub command: String,
    /// Each verbatim.
    #[serde(default)]
    pub args: Vec<String>,
    /// Variables over the VM's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Working directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// After so long it is killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// Which process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Target {
    /// One spawned before, by its name.
    Name(String),
    /// A pid, known or not.
    Pid(u32),
}

/// An action on a process.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Of {
    /// The process.
    pub process: Target,
}

/// Bytes for a process.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteStdin {
    /// The process.
    pub process: Target,
    /// The bytes.
    pub data: Data,
}

/// Which output of a process, and how far.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// The process.
    pub process: Target,
    /// Which output.
    #[serde(default)]
    pub stream: Stream,
    /// The text to wait for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// An output of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the two that POSIX names")]
pub enum Stream {
    #[default]
    Stdout,
    Stderr,
}

/// An action that needs to be told nothing.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}
