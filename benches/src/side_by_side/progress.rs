//! A bar that grows on the terminal while something long goes on.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const WIDTH: usize = 30;
/// Time between two drawings.
const INTERVAL: Duration = Duration::from_millis(100);

/// A bar on standard error; where that is no terminal, a line at the end.
pub struct Progress {
    label: String,
    total: u64,
    state: Mutex<State>,
}

struct State {
    done: u64,
    started: Instant,
    drawn: Option<Instant>,
}

impl Progress {
    /// A bar for so many of something.
    pub fn new(label: &str, total: u64) -> Progress {
        let state = State { done: 0, started: Instant::now(), drawn: None };
        Progress { label: label.to_owned(), total, state: Mutex::new(state) }
    }

    /// Some more are done.
    pub fn add(&self, count: u64) {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.done += count;
        let is_due = state.drawn.is_none_or(|drawn| drawn.elapsed() >= INTERVAL);
        if is_due && std::io::stderr().is_terminal() {
            state.drawn = Some(Instant::now());
            draw(&format!("\r{}", line(&self.label, state.done, self.total, state.started)));
        }
    }

    /// All is done, or there will be no more of it.
    pub fn finish(self) {
        let state = self.state.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let line = line(&self.label, state.done, self.total, state.started);
        let is_terminal = std::io::stderr().is_terminal();
        draw(&if is_terminal { format!("\r{line}\n") } else { format!("{line}\n") });
    }
}

fn draw(text: &str) {
    // Nobody has to watch.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn line(label: &str, done: u64, total: u64, started: Instant) -> String {
    let seconds = started.elapsed().as_secs_f64();
    format!("{label:24} {} {seconds:6.1} s", bar(done, total))
}

fn bar(done: u64, total: u64) -> String {
    let part = if total == 0 { 1.0 } else { (done as f64 / total as f64).min(1.0) };
    let full = (part * WIDTH as f64) as usize;
    format!("[{}{}] {:3.0} %", "#".repeat(full), ".".repeat(WIDTH - full), part * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_end_full_whatever_is_counted() {
        assert_eq!(bar(0, 10), format!("[{}]   0 %", ".".repeat(30)));
        assert_eq!(bar(5, 10), format!("[{}{}]  50 %", "#".repeat(15), ".".repeat(15)));
        assert_eq!(bar(11, 10), format!("[{}] 100 %", "#".repeat(30)));
        assert_eq!(bar(0, 0), format!("[{}] 100 %", "#".repeat(30)));
    }
}
