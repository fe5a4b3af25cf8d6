//! The kinds of targets that nobody can be well with, by name.

/// What a bad target does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Connections are never answered.
    Unanswered,
    /// Accepts, and never answers.
    Silent,
    /// Answers one byte a second.
    Trickle,
    /// Resets.
    Reset,
    /// Answers with a body without end.
    Endless,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Unanswered, Self::Silent, Self::Trickle, Self::Reset, Self::Endless];

    /// As it is spelled on a command line.
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

impl std::str::FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| format!("{:?} are the kinds there are", Self::ALL.map(Self::name)))
    }
}
