//! Time and memory of an operation, and Markdown tables.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

use crate::kernel;

/// Cost of an operation.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// Median CPU time of the runs, all threads together.
    pub cpu_ms: f64,
    /// Minimum CPU time of a run.
    pub cpu_min_ms: f64,
    /// Median wall time.
    pub wall_ms: f64,
    /// Peak memory.
    pub peak_bytes: usize,
}

/// Runs an operation once for its memory and `run_count` times for its time.
pub fn measure<T>(run_count: usize, work: impl Fn() -> T) -> Measured {
    let (_, account) = kernel::account(&work);
    let (mut cpu, mut wall) = (Vec::new(), Vec::new());
    for _ in 0..run_count {
        let (cpu_start, wall_start) = (kernel::cpu_time(), Instant::now());
        black_box(work());
        cpu.push((kernel::cpu_time() - cpu_start).as_secs_f64() * 1e3);
        wall.push(wall_start.elapsed().as_secs_f64() * 1e3);
    }
    Measured {
        cpu_ms: median(&cpu),
        cpu_min_ms: cpu.iter().copied().fold(f64::NAN, f64::min),
        wall_ms: median(&wall),
        peak_bytes: account.peak_of_work(),
    }
}

/// Returns the median; the upper one of an even number of values, NaN of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Formats named figures as a Markdown list.
pub fn list(rows: &[(&str, String)]) -> String {
    rows.iter().map(|(name, figure)| format!("- {name}: {figure}\n")).collect()
}

/// Formats a Markdown table.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    let mut line = |cells: &[String]| {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    };
    line(&head.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>());
    let rule = |index| if index == 0 { "---" } else { "---:" };
    line(&(0..head.len()).map(|index| rule(index).to_owned()).collect::<Vec<_>>());
    rows.iter().for_each(|row| line(row));
    text
}

/// Formats a number of bytes.
pub fn bytes(count: usize) -> String {
    match count {
        0..10_240 => format!("{count} B"),
        10_240..10_485_760 => format!("{:.0} KiB", count as f64 / 1024.0),
        _ => format!("{:.1} MiB", count as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_do_not_depend_on_the_order() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 3.0);
        assert!(median(&[]).is_nan());
    }
}
