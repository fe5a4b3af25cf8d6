//! A progress bar on standard error for long work. It is shown only on a terminal.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::table::group_digits;

/// The minimum time between two redraws.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);
/// The width of the bar in characters.
const BAR_WIDTH: u64 = 30;

#[derive(Debug)]
pub(crate) struct Progress {
    unit: &'static str,
    total: Option<u64>,
    done: u64,
    started_at: Instant,
    last_drawn: Option<Instant>,
    is_shown: bool,
}

impl Progress {
    /// Starts a bar. Without a total it shows only the amount and the rate.
    pub(crate) fn start(unit: &'static str, total: Option<u64>) -> Self {
        let is_shown = std::io::stderr().is_terminal();
        Self { unit, total, done: 0, started_at: monotonic_now(), last_drawn: None, is_shown }
    }

    /// Adds finished work and redraws the bar if it is due.
    pub(crate) fn add(&mut self, more: u64) {
        self.done += more;
        let now = monotonic_now();
        let is_due = self.last_drawn.is_none_or(|drawn| now.duration_since(drawn) >= REDRAW_INTERVAL);
        if self.is_shown && is_due {
            self.last_drawn = Some(now);
            let line = self.line(now.duration_since(self.started_at));
            draw(&format!("\r\u{1b}[K{line}"));
        }
    }

    fn line(&self, elapsed: Duration) -> String {
        let Self { unit, done, .. } = self;
        let ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
        let rate = group_digits(done.saturating_mul(1_000) / ms);
        match self.total.filter(|total| *total > 0) {
            None => format!("{} {unit}, {rate}/s", group_digits(*done)),
            Some(total) => {
                let full = (done.saturating_mul(BAR_WIDTH) / total).min(BAR_WIDTH);
                let bar: String = (0..BAR_WIDTH).map(|place| if place < full { '█' } else { '░' }).collect();
                let percent = done.saturating_mul(100) / total;
                format!(
                    "{bar} {percent:>3}%  {} of {} {unit}, {rate}/s",
                    group_digits(*done),
                    group_digits(total)
                )
            }
        }
    }
}

impl Drop for Progress {
    /// Clears the line for the output that follows.
    fn drop(&mut self) {
        if self.last_drawn.is_some() {
            draw("\r\u{1b}[K");
        }
    }
}

fn draw(text: &str) {
    let mut err = std::io::stderr().lock();
    // A bar that cannot be drawn does not stop the work.
    drop(err.write_all(text.as_bytes()).and_then(|()| err.flush()));
}

#[expect(clippy::disallowed_methods, reason = "a bar shows the rate of real time")]
fn monotonic_now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_the_share_and_the_rate() {
        let mut progress = Progress::start("events", Some(2_000));
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
        let mut progress = Progress::start("events", None);
        progress.is_shown = false;
        progress.add(1);
        assert!(progress.last_drawn.is_none());
    }
}
