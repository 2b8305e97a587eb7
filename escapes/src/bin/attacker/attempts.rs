//! Every attempt, by the row it belongs to, and what its positive control is.

mod files;
mod init;
mod kernel;
mod mounts;
mod namespaces;
mod network;
mod own;
mod resources;

use std::io;

/// What an attempt gets, as text; empty if there is nothing to say.
pub(crate) type Got = io::Result<String>;

pub(crate) struct Attempt {
    /// Row of the list, then which of the row's attempts.
    pub(crate) id: &'static str,
    pub(crate) run: fn() -> Got,
    pub(crate) control: Control,
}

/// What shows that the attempt is made well.
pub(crate) enum Control {
    /// The same, in throw-away namespaces.
    Same,
    /// This, in throw-away namespaces: the attempt is not harmless or not possible even there.
    Instead(fn() -> Got),
    /// The same, on the host: it only looks.
    OnHost,
    /// There is no harmless one; the table says why.
    None,
}

impl Attempt {
    fn new(id: &'static str, run: fn() -> Got) -> Self {
        Self { id, run, control: Control::Same }
    }

    fn instead(self, run: fn() -> Got) -> Self {
        Self { control: Control::Instead(run), ..self }
    }

    fn on_host(self) -> Self {
        Self { control: Control::OnHost, ..self }
    }

    fn alone(self) -> Self {
        Self { control: Control::None, ..self }
    }
}

pub(crate) fn all() -> impl Iterator<Item = Attempt> {
    [
        namespaces::all(),
        mounts::all(),
        files::all(),
        init::all(),
        own::all(),
        resources::all(),
        kernel::all(),
        network::all(),
    ]
    .into_iter()
    .flatten()
}

/// Succeeds with nothing to say.
fn done<T>(result: io::Result<T>) -> Got {
    result.map(|_| String::new())
}

/// An attempt that is one system call.
macro_rules! tries {
    ($id:literal, $number:ident $(, $argument:expr)* $(,)?) => {
        $crate::attempts::Attempt::new($id, || {
            $crate::attempts::done($crate::sys::syscall!(libc::$number $(, $argument)*))
        })
    };
}
use tries;
