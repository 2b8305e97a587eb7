//! What a step must come to. Everything that is set must hold; what is not set may be anything.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::data::Data;

/// Expectations on one step. Without `error` the step must succeed.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// The exit code.
    pub exit_code: Option<i32>,
    /// The name of the signal that ended it, or `none`.
    pub signal: Option<String>,
    /// Standard output.
    pub stdout: Option<Bytes>,
    /// Standard error.
    pub stderr: Option<Bytes>,
    /// The step must fail, like this.
    pub error: Option<Error>,
    /// Fields of the process.
    pub process: Option<Row>,
    /// Rows of the list, table or tree.
    pub processes: Option<Rows>,
    /// Fields of the message that was received.
    pub message: Option<Row>,
}

/// An expectation on bytes.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Bytes {
    /// These.
    Exactly(Data),
    /// So many.
    Length(Length),
    /// As text they match.
    Matches(Matches),
}

/// So many bytes.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Length {
    /// How many.
    pub length: usize,
}

/// A regular expression, found anywhere unless anchored.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Matches {
    /// In the syntax of the crate `regex`.
    pub matches: String,
}

/// An expectation on an error.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Error {
    /// This very text.
    Message(String),
    /// Parts of it; any error if none is set.
    Like(ErrorLike),
}

/// Parts of an error.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorLike {
    /// Its code.
    pub code: Option<String>,
    /// What its text matches.
    pub matches: Option<String>,
}

/// Fields by the names they have in TypeScript; a field that is absent counts as null.
pub type Row = BTreeMap<String, Field>;

/// An expectation on one field.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Field {
    /// A rule.
    Rule(Rule),
    /// This very value.
    Exactly(Value),
}

/// A rule for a value.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Rule {
    /// Text that matches.
    Matches(String),
    /// A number that is no smaller.
    AtLeast(f64),
    /// The pid of the process spawned under this name.
    PidOf(String),
    /// An object with these fields.
    Has(Row),
    /// A list with one such row at least for each of these, at any depth.
    Include(Vec<Row>),
}

/// Expectations on rows.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    /// These rows in this order, and no others.
    pub exactly: Option<Vec<Row>>,
    /// One such row for each, in a tree at any depth.
    #[serde(default)]
    pub include: Vec<Row>,
    /// No such row, in a tree at any depth.
    #[serde(default)]
    pub exclude: Vec<Row>,
}
