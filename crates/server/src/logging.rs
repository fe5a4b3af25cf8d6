//! Sets up logging: one line per event to standard error, at the level of `ABIDE_LOG`. Writes no log line itself.

use std::io;

use tracing_subscriber::filter::LevelFilter;

/// The environment variable with the log level.
pub const LEVEL_VARIABLE: &str = "ABIDE_LOG";

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid log level {given:?} in {LEVEL_VARIABLE}: use off, error, warn, info, debug or trace")]
pub struct InvalidLogLevel {
    given: String,
}

/// Starts logging for the whole process; `abide serve` calls it before the server starts. Only the first call has an
/// effect.
pub fn init() -> Result<(), InvalidLogLevel> {
    let level = match std::env::var(LEVEL_VARIABLE) {
        Ok(given) => parse_level(&given)?,
        Err(_) => LevelFilter::INFO,
    };
    let subscriber =
        tracing_subscriber::fmt().compact().with_max_level(level).with_writer(io::stderr).finish();
    // A second subscriber is rejected, and the first one stays.
    drop(tracing::subscriber::set_global_default(subscriber));
    Ok(())
}

fn parse_level(given: &str) -> Result<LevelFilter, InvalidLogLevel> {
    // The filter's own parser accepts numbers too, but there is only one way to write a level.
    let word = !given.is_empty() && given.bytes().all(|byte| byte.is_ascii_alphabetic());
    let level = given.parse().ok().filter(|_| word);
    level.ok_or_else(|| InvalidLogLevel { given: given.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_one_of_six_words() {
        assert_eq!(parse_level("warn"), Ok(LevelFilter::WARN));
        assert_eq!(parse_level("off"), Ok(LevelFilter::OFF));
        for wrong in ["", "loud", "3", "abide=debug"] {
            assert!(parse_level(wrong).is_err(), "{wrong}");
        }
    }
}
