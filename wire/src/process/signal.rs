//! Signals by name and number, signal(7).

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A signal. Reads from its name with or without `SIG`, in any letter case (`SIGTERM`, `term`), from `SIGRTMIN+n` and
/// `SIGRTMAX-n`, and from its number; shows as `SIGTERM` or `SIGRTMIN+n`.
///
/// ```
/// use agentvm_wire::process::Signal;
///
/// assert_eq!("SIGTERM".parse(), Ok(Signal::TERM));
/// assert_eq!("hup".parse(), Ok(Signal::HUP));
/// assert_eq!("9".parse(), Ok(Signal::KILL));
/// assert_eq!("SIGRTMAX-30".parse::<Signal>().unwrap().to_string(), "SIGRTMIN");
/// assert!("SIGNOTHING".parse::<Signal>().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(u8);

/// Declares the standard signals, in the order of their numbers from 1 on.
macro_rules! standard {
    ($($name:ident),*) => {
        /// In the order of their numbers, from 1 on; without `SIG`.
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        #[expect(clippy::upper_case_acronyms, reason = "the kernel's own names")]
        #[repr(u8)]
        enum Number { _None, $($name),* }

        #[expect(missing_docs, reason = "the kernel's own names")]
        impl Signal {
            $(pub const $name: Self = Self(Number::$name as u8);)*
        }
    };
}

standard!(
    HUP, INT, QUIT, ILL, TRAP, ABRT, BUS, FPE, KILL, USR1, SEGV, USR2, PIPE, ALRM, TERM, STKFLT, CHLD, CONT,
    STOP, TSTP, TTIN, TTOU, URG, XCPU, XFSZ, VTALRM, PROF, WINCH, IO, PWR, SYS
);

/// The real-time signals that programs may use; 32 and 33 are the C library's own.
const FIRST_REAL_TIME: u8 = 34;
const LAST_REAL_TIME: u8 = 64;

/// Second names.
const ALIASES: [(&str, Signal); 3] = [("IOT", Signal::ABRT), ("CLD", Signal::CHLD), ("POLL", Signal::IO)];

impl Signal {
    /// The n-th real-time signal from `SIGRTMIN` on; there are 31, from 0.
    pub fn real_time(n: u8) -> Option<Self> {
        let number = FIRST_REAL_TIME.checked_add(n).filter(|number| *number <= LAST_REAL_TIME);
        number.map(Self)
    }

    /// The signal with a number, if programs may use it.
    pub fn from_number(number: i32) -> Option<Self> {
        let number = u8::try_from(number).ok()?;
        let is_standard = (1..=NAMES.len()).contains(&usize::from(number));
        (is_standard || (FIRST_REAL_TIME..=LAST_REAL_TIME).contains(&number)).then_some(Self(number))
    }

    /// Its number.
    pub fn number(self) -> i32 {
        self.0.into()
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (NAMES.get(usize::from(self.0) - 1), self.0 - FIRST_REAL_TIME.min(self.0)) {
            (Some(name), _) => write!(f, "SIG{name}"),
            (None, 0) => f.write_str("SIGRTMIN"),
            (None, n) => write!(f, "SIGRTMIN+{n}"),
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that names no signal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no signal is called {0}")]
pub struct UnknownSignal(pub String);

impl FromStr for Signal {
    type Err = UnknownSignal;

    fn from_str(text: &str) -> Result<Self, UnknownSignal> {
        let upper = text.to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        let standard = || {
            let index = NAMES.iter().position(|known| *known == name)?;
            Self::from_number(i32::try_from(index + 1).ok()?)
        };
        let alias = || ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, signal)| *signal);
        let real_time = || match (name.strip_prefix("RTMIN"), name.strip_prefix("RTMAX")) {
            (Some(""), _) => Self::real_time(0),
            (Some(n), _) => Self::real_time(n.strip_prefix('+')?.parse().ok()?),
            (_, Some("")) => Some(Self(LAST_REAL_TIME)),
            (_, Some(n)) => {
                let n: u8 = n.strip_prefix('-')?.parse().ok()?;
                Self::real_time((LAST_REAL_TIME - FIRST_REAL_TIME).checked_sub(n)?)
            }
            (None, None) => None,
        };
        let number = || Self::from_number(text.parse().ok()?);
        standard()
            .or_else(alias)
            .or_else(real_time)
            .or_else(number)
            .ok_or_else(|| UnknownSignal(text.to_owned()))
    }
}

impl Serialize for Signal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Signal {
    /// Only the form that is also written.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let signal: Self = text.parse().map_err(D::Error::custom)?;
        if signal.to_string() == text { Ok(signal) } else { Err(D::Error::custom(UnknownSignal(text))) }
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Signal {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Signal".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let pattern = format!(r"^SIG({}|RTMIN(\+([1-9]|[12][0-9]|30))?)$", NAMES.join("|"));
        schemars::json_schema!({ "type": "string", "pattern": pattern })
    }
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
            (34, "SIGRTMIN"),
            (35, "SIGRTMIN+1"),
            (64, "SIGRTMIN+30"),
        ];
        for (number, name) in known {
            let signal = Signal::from_number(number).unwrap();
            assert_eq!((signal.number(), signal.to_string().as_str()), (number, name));
        }
        assert_eq!((Signal::TERM.number(), Signal::SYS.number()), (15, 31));
    }

    #[test]
    fn every_signal_reads_back_from_its_name_and_its_number() {
        for number in (1..=31).chain(34..=64) {
            let signal = Signal::from_number(number).unwrap();
            let name = signal.to_string();
            for text in [&name, &name[3..], &name.to_lowercase(), &number.to_string()] {
                assert_eq!(text.parse(), Ok(signal), "{text}");
            }
            let json = serde_json::to_string(&signal).unwrap();
            assert_eq!(serde_json::from_str::<Signal>(&json).unwrap(), signal);
        }
    }

    #[test]
    fn what_names_no_signal_is_refused() {
        let texts =
            ["", "SIG", "SIGNOTHING", "0", "32", "33", "65", "-9", "SIGRTMIN+31", "SIGRTMAX-31", "RTMIN-1"];
        for text in texts {
            assert_eq!(text.parse::<Signal>(), Err(UnknownSignal(text.to_owned())));
        }
        assert_eq!("SIGPOLL".parse(), Ok(Signal::IO));
        assert!(serde_json::from_str::<Signal>("\"TERM\"").is_err(), "on the wire a signal has one form");
    }
}
