//! How a program launches the sidecar: the names both sides must agree on.

/// argv\[0\] of a launched sidecar. Its standard input is one end of the connected socket pair.
pub const SIDECAR_ARG0: &str = "agentvm-sidecar";

/// The one argument of a sidecar that serves the socket it inherited as standard input.
pub const INHERITED_ARG: &str = "serve-inherited";

/// Set in a launched sidecar: a program that launches itself and forgot the hook would launch itself again in there.
pub const LAUNCHED_ENV: &str = "AGENTVM_LAUNCHED";

/// Names the sidecar binary for `SidecarConfig::Auto`.
pub const SIDECAR_ENV: &str = "AGENTVM_SIDECAR";
