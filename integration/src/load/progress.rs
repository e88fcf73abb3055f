//! How a run goes, on standard error: a line that is rewritten on a terminal, else one every 5 s.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::Instant;

const ON_TERMINAL: Duration = Duration::from_millis(200);
const ELSEWHERE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    shown: bool,
    next: Instant,
}

impl Progress {
    pub(crate) fn new(shown: bool) -> Self {
        let on_terminal = shown && std::io::stderr().is_terminal();
        let bar = on_terminal.then(|| {
            let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}");
            let bar = ProgressBar::new_spinner();
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar
        });
        let first = if on_terminal { ON_TERMINAL } else { ELSEWHERE };
        Self { bar, shown, next: Instant::now() + first }
    }

    /// When there is something to tell again.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    pub(crate) fn tell(&mut self, line: String) {
        if let Some(bar) = &self.bar {
            bar.set_message(line);
            bar.tick();
            self.next = Instant::now() + ON_TERMINAL;
        } else {
            if self.shown {
                eprintln!("{line}");
            }
            self.next = Instant::now() + ELSEWHERE;
        }
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
