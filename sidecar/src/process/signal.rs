//! Signals by name and number, signal(7). x86-64 and aarch64 number them alike.

const NAMES: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// The number behind a name; real-time signals have none.
pub(crate) fn number(name: &str) -> Option<i32> {
    let index = NAMES.iter().position(|known| *known == name)?;
    i32::try_from(index + 1).ok()
}

/// The name of a number; a real-time signal is told by its number.
pub(crate) fn name(number: i32) -> String {
    let index = usize::try_from(number - 1).ok();
    index.and_then(|index| NAMES.get(index)).map_or_else(|| format!("SIG{number}"), |name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_those_of_the_kernel() {
        let known = [
            (1, "SIGHUP"),
            (9, "SIGKILL"),
            (15, "SIGTERM"),
            (17, "SIGCHLD"),
            (19, "SIGSTOP"),
            (31, "SIGSYS"),
        ];
        for (n, text) in known {
            assert_eq!(number(text), Some(n));
            assert_eq!(name(n), text);
        }
        assert_eq!(number("SIGNOTHING"), None);
        assert_eq!(name(34), "SIG34");
    }
}
