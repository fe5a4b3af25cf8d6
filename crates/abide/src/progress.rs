//! A progress bar on standard error, only if that is a terminal: long work says how far it is.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::table::grouped;

/// How often it is drawn at most.
const EVERY: Duration = Duration::from_millis(100);
/// Characters of the bar itself.
const WIDTH: u64 = 30;

/// Work under way.
#[derive(Debug)]
pub(crate) struct Progress {
    what: &'static str,
    total: Option<u64>,
    done: u64,
    began: Instant,
    drawn: Option<Instant>,
    is_shown: bool,
}

impl Progress {
    /// Begins; the total may not be known.
    pub(crate) fn begin(what: &'static str, total: Option<u64>) -> Self {
        let is_shown = std::io::stderr().is_terminal();
        Self { what, total, done: 0, began: instant(), drawn: None, is_shown }
    }

    /// So much more is done.
    pub(crate) fn add(&mut self, more: u64) {
        self.done += more;
        let now = instant();
        let is_due = self.drawn.is_none_or(|drawn| now.duration_since(drawn) >= EVERY);
        if self.is_shown && is_due {
            self.drawn = Some(now);
            let line = self.line(now.duration_since(self.began));
            draw(&format!("\r\u{1b}[K{line}"));
        }
    }

    fn line(&self, elapsed: Duration) -> String {
        let Self { what, done, .. } = self;
        let ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
        let rate = grouped(done.saturating_mul(1_000) / ms);
        match self.total.filter(|total| *total > 0) {
            None => format!("{} {what}, {rate}/s", grouped(*done)),
            Some(total) => {
                let full = (done.saturating_mul(WIDTH) / total).min(WIDTH);
                let bar: String = (0..WIDTH).map(|place| if place < full { '█' } else { '░' }).collect();
                let percent = done.saturating_mul(100) / total;
                format!("{bar} {percent:>3}%  {} of {} {what}, {rate}/s", grouped(*done), grouped(total))
            }
        }
    }
}

impl Drop for Progress {
    /// What comes next begins on a clean line.
    fn drop(&mut self) {
        if self.drawn.is_some() {
            draw("\r\u{1b}[K");
        }
    }
}

fn draw(text: &str) {
    let mut err = std::io::stderr().lock();
    // A bar that cannot be drawn is no reason to stop the work.
    drop(err.write_all(text.as_bytes()).and_then(|()| err.flush()));
}

#[expect(clippy::disallowed_methods, reason = "a bar tells people how fast it goes")]
fn instant() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_tells_how_far_and_how_fast() {
        let mut progress = Progress::begin("events", Some(2_000));
        progress.done = 1_000;
        let line = progress.line(Duration::from_secs(2));
        assert!(
            line.starts_with(&"█".repeat(15)) && line.ends_with(" 50%  1,000 of 2,000 events, 500/s"),
            "{line}"
        );
        progress.total = None;
        assert_eq!(progress.line(Duration::ZERO), "1,000 events, 1,000,000/s");
    }

    #[test]
    fn nothing_is_drawn_off_a_terminal() {
        let mut progress = Progress::begin("events", None);
        progress.is_shown = false;
        progress.add(1);
        assert!(progress.drawn.is_none());
    }
}
