//! The kinds of bad targets and their names. The program `bad_targets` serves them.

/// A kind of bad target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadTargetKind {
    /// Never accepts a connection.
    Unanswered,
    /// Accepts connections and never responds.
    Silent,
    /// Responds with one byte per second.
    Trickle,
    /// Resets every connection.
    Reset,
    /// Responds with an endless body.
    Endless,
}

impl BadTargetKind {
    const ALL: [Self; 5] = [Self::Unanswered, Self::Silent, Self::Trickle, Self::Reset, Self::Endless];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unanswered => "unanswered",
            Self::Silent => "silent",
            Self::Trickle => "trickle",
            Self::Reset => "reset",
            Self::Endless => "endless",
        }
    }
}

impl std::str::FromStr for BadTargetKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| format!("unknown kind {name:?}; use one of {:?}", Self::ALL.map(Self::name)))
    }
}
