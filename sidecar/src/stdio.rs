//! Standard input and output of guest processes: the sidecar's ends of their pipes.

pub(crate) mod outflow;
pub(crate) mod pipe;
pub(crate) mod sink;
pub(crate) mod source;
