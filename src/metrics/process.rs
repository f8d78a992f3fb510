//! Process metrics from `/proc`, under the usual names of exporters; absent without `/proc`.

use std::fs;

use prometheus::{Counter, IntGauge};

use super::Registrar;

/// Ticks per second of the kernel's accounting, fixed in its interface.
const TICKS_PER_SECOND: f64 = 100.0;

/// Metrics of the process, refreshed on each gathering.
pub(super) struct ProcessMetrics {
    gauges: Option<Gauges>,
}

struct Gauges {
    cpu_seconds: Counter,
    resident_bytes: IntGauge,
    virtual_bytes: IntGauge,
    open_fds: IntGauge,
    max_fds: IntGauge,
    threads: IntGauge,
}

/// Reading of `/proc/self`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Reading {
    cpu_seconds: f64,
    start_seconds: f64,
    resident_bytes: i64,
    virtual_bytes: i64,
    open_fds: i64,
    max_fds: i64,
    threads: i64,
}

impl ProcessMetrics {
    pub(super) fn new(registrar: &Registrar<'_>) -> ProcessMetrics {
        let Some(reading) = Reading::take() else {
            return ProcessMetrics { gauges: None };
        };
        registrar
            .gauge("process_start_time_seconds", "Start time of the process since the epoch.")
            .set(reading.start_seconds);
        let metrics = ProcessMetrics {
            gauges: Some(Gauges {
                cpu_seconds: registrar
                    .counter("process_cpu_seconds_total", "User and system CPU time spent."),
                resident_bytes: registrar
                    .int_gauge("process_resident_memory_bytes", "Resident memory."),
                virtual_bytes: registrar
                    .int_gauge("process_virtual_memory_bytes", "Virtual memory."),
                open_fds: registrar.int_gauge("process_open_fds", "Open file descriptors."),
                max_fds: registrar
                    .int_gauge("process_max_fds", "File descriptors that may be open."),
                threads: registrar.int_gauge("process_threads", "Threads."),
            }),
        };
        metrics.refresh();
        metrics
    }

    pub(super) fn refresh(&self) {
        let (Some(gauges), Some(reading)) = (&self.gauges, Reading::take()) else {
            return;
        };
        let passed = reading.cpu_seconds - gauges.cpu_seconds.get();
        if passed > 0.0 {
            gauges.cpu_seconds.inc_by(passed);
        }
        gauges.resident_bytes.set(reading.resident_bytes);
        gauges.virtual_bytes.set(reading.virtual_bytes);
        gauges.open_fds.set(reading.open_fds);
        gauges.max_fds.set(reading.max_fds);
        gauges.threads.set(reading.threads);
    }
}

impl Reading {
    fn take() -> Option<Reading> {
        Reading::from_files(
            &fs::read_to_string("/proc/self/stat").ok()?,
            &fs::read_to_string("/proc/self/status").ok()?,
            &fs::read_to_string("/proc/self/limits").ok()?,
            &fs::read_to_string("/proc/stat").ok()?,
            fs::read_dir("/proc/self/fd").ok()?.count(),
        )
    }

    fn from_files(
        stat: &str,
        status: &str,
        limits: &str,
        system: &str,
        open_fds: usize,
    ) -> Option<Reading> {
        // The name of the program, in parentheses, may hold anything; the fields follow it.
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|f| f.parse::<f64>().ok());
        let boot_seconds: f64 = field_after(system, "btime")?.parse().ok()?;
        Some(Reading {
            cpu_seconds: (ticks(11)? + ticks(12)?) / TICKS_PER_SECOND,
            start_seconds: boot_seconds + ticks(19)? / TICKS_PER_SECOND,
            resident_bytes: 1024 * field_after(status, "VmRSS:")?.parse::<i64>().ok()?,
            virtual_bytes: 1024 * field_after(status, "VmSize:")?.parse::<i64>().ok()?,
            open_fds: i64::try_from(open_fds).ok()?,
            max_fds: field_after(limits, "Max open files")?.parse().unwrap_or(i64::MAX),
            threads: field_after(status, "Threads:")?.parse().ok()?,
        })
    }
}

fn field_after<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_is_taken_from_the_right_fields() {
        let stat = "42 (a ) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 8 0 12345 99 3";
        let status = "Name:\ttessella\nVmSize:\t  2048 kB\nVmRSS:\t  1024 kB\nThreads:\t8\n";
        let limits = "Limit                     Soft Limit           Hard Limit\n\
                      Max open files            1024                 4096                 files\n";
        let system = "cpu 1 2 3\nbtime 1700000000\n";
        assert_eq!(
            Reading::from_files(stat, status, limits, system, 7),
            Some(Reading {
                cpu_seconds: 2.0,
                start_seconds: 1_700_000_123.45,
                resident_bytes: 1 << 20,
                virtual_bytes: 2 << 20,
                open_fds: 7,
                max_fds: 1024,
                threads: 8,
            })
        );
        assert_eq!(Reading::from_files("", status, limits, system, 7), None);
    }
}
