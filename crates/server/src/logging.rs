//! What operators read: one line per event, to standard error, as much of it as `ABIDE_LOG` says.

use std::io;

use tracing_subscriber::filter::LevelFilter;

/// The environment variable that says how much.
pub const LEVEL: &str = "ABIDE_LOG";

/// A level that is none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{LEVEL} is {given:?}; it must be off, error, warn, info, debug or trace")]
pub struct UnknownLevel {
    given: String,
}

/// Begins to log. Only the first call in a process has an effect.
pub fn begin() -> Result<(), UnknownLevel> {
    let level = match std::env::var(LEVEL) {
        Ok(given) => level_of(&given)?,
        Err(_) => LevelFilter::INFO,
    };
    let subscriber =
        tracing_subscriber::fmt().compact().with_max_level(level).with_writer(io::stderr).finish();
    // A second subscriber is refused, and the first goes on.
    drop(tracing::subscriber::set_global_default(subscriber));
    Ok(())
}

fn level_of(given: &str) -> Result<LevelFilter, UnknownLevel> {
    // The filter's own reading takes numbers as well; there is one way to write a level.
    let word = !given.is_empty() && given.bytes().all(|byte| byte.is_ascii_alphabetic());
    let level = given.parse().ok().filter(|_| word);
    level.ok_or_else(|| UnknownLevel { given: given.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_one_of_six_words() {
        assert_eq!(level_of("warn"), Ok(LevelFilter::WARN));
        assert_eq!(level_of("off"), Ok(LevelFilter::OFF));
        for wrong in ["", "loud", "3", "abide=debug"] {
            assert!(level_of(wrong).is_err(), "{wrong}");
        }
    }
}
