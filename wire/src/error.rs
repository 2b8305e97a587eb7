//! Error codes and the body of `rejected`.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};

/// A stable error code: one of the constants below, an errno name (`ENOENT`, `EACCES`, …) for what a guest operation
/// met, or a code this version does not know, kept as it came.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Code(Cow<'static, str>);

/// Declares the codes that this crate names, and the list of them.
macro_rules! codes {
    ($($constant:ident = $code:literal,)*) => {
        #[expect(missing_docs, reason = "each constant is the code it spells; PROTOCOL.md tells when it is sent")]
        impl Code {
            $(pub const $constant: Code = Code(Cow::Borrowed($code));)*

            /// All of the above.
            pub const ALL: &[Code] = &[$(Code::$constant),*];
        }
    };
}

codes! {
    INVALID_ARGUMENT = "invalid_argument",
    NOT_FOUND = "not_found",
    ALREADY_EXISTS = "already_exists",
    FAILED_PRECONDITION = "failed_precondition",
    PERMISSION_DENIED = "permission_denied",
    UNAUTHENTICATED = "unauthenticated",
    RESOURCE_EXHAUSTED = "resource_exhausted",
    UNSUPPORTED = "unsupported",
    TOO_LARGE = "too_large",
    VERSION_MISMATCH = "version_mismatch",
    DEADLINE_EXCEEDED = "deadline_exceeded",
    CANCELLED = "cancelled",
    INTERNAL = "internal",
    E2BIG = "E2BIG",
    EPIPE = "EPIPE",
    EIO = "EIO",
}

impl Code {
    /// The code as it is spelled on the wire.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Code {
    fn from(code: String) -> Self {
        Self(Cow::Owned(code))
    }
}

impl From<&'static str> for Code {
    fn from(code: &'static str) -> Self {
        Self(Cow::Borrowed(code))
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Body of `rejected`: the one answer to a request that was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[error("{message}")]
pub struct Rejection {
    /// Stable code.
    pub code: Code,
    /// For people; may change.
    pub message: String,
    /// For programs.
    #[serde(default, skip_serializing_if = "Details::is_empty")]
    pub details: Box<Details>,
}

impl Rejection {
    /// A rejection without details.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Box::default() }
    }

    /// `invalid_argument` that names the field.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        let details = Details { field: Some(field.into()), ..Details::default() };
        Self { code: Code::INVALID_ARGUMENT, message: message.into(), details: Box::new(details) }
    }

    /// A limit was met: says which, where it lies and what was seen.
    pub fn limit(code: Code, name: &str, unit: &str, limit: u64, observed: u64) -> Self {
        let details = Details {
            limit_name: Some(name.to_owned()),
            limit: Some(limit),
            observed: Some(observed),
            unit: Some(unit.to_owned()),
            ..Details::default()
        };
        Self {
            code,
            message: format!("{name} is {observed} {unit}, limit is {limit}"),
            details: Box::new(details),
        }
    }

    /// The VM of the scope is unknown, or not this session's: the two are told apart by nobody.
    pub fn vm_not_found() -> Self {
        Self::new(Code::NOT_FOUND, "VM not found")
    }
}

/// What a program may want to know of a rejection. Absent fields do not apply.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Details {
    /// The limit that was met.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_name: Option<String>,
    /// Where it lies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// What was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed: Option<u64>,
    /// What was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested: Option<u64>,
    /// Unit of the three.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The path it is about, as the guest sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The field of the request it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The errno's number, where the code is its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
    /// The step that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The same request may succeed later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
}

impl Details {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
