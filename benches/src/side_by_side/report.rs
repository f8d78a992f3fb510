//! Report of all servers, as tables and as JSON.

use std::fmt::Write;

use super::load::Loaded;
use crate::measure;
use crate::scenario::ask::{Asked, Taken};
use crate::scenario::process::Resident;

/// Everything about one dataset.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Report {
    /// Day in UTC.
    pub date: String,
    /// Description of the machine.
    pub machine: String,
    /// Name of the dataset.
    pub dataset: String,
    /// Series at any one time.
    pub series: usize,
    /// Samples of a series.
    pub scrapes: usize,
    /// End of the data as Unix time.
    pub end_s: i64,
    /// Servers in the order of queries; the others are compared with the first.
    pub servers: Vec<ServerFigures>,
    /// Queries in their order.
    pub queries: Vec<Asked>,
}

/// Figures of a server, apart from queries.
#[derive(Debug, Clone, serde::Serialize)]
pub struct ServerFigures {
    /// Name in tables.
    pub name: String,
    /// Cost of the load.
    pub loaded: Loaded,
    /// Memory after all queries.
    pub resident: Resident,
    /// Bytes of the store.
    pub disk_bytes: u64,
}

impl Report {
    /// Formats the report in Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!(
            "# Side by side, {}: {}\n\n{}\n{} series, {} samples each, up to {}\n\n",
            self.dataset, self.date, self.machine, self.series, self.scrapes, self.end_s
        );
        text.push_str(&self.server_table());
        text.push('\n');
        text.push_str(&self.query_table());
        self.push_remarks(&mut text);
        text
    }

    fn head(&self, first: &str) -> Vec<String> {
        let mut head = vec![first.to_owned()];
        head.extend(self.servers.iter().map(|server| server.name.clone()));
        head
    }

    fn server_table(&self) -> String {
        let mut rows = Vec::new();
        let mut row = |name: &str, figure: &dyn Fn(&ServerFigures) -> String| {
            let figures = self.servers.iter().map(figure);
            rows.push(std::iter::once(name.to_owned()).chain(figures).collect());
        };
        let rate =
            |s: &ServerFigures, seconds: f64| format!("{:.0}", s.loaded.samples as f64 / seconds);
        let mib = |bytes: u64| format!("{:.0}", bytes as f64 / 1_048_576.0);
        row("samples a second", &|s| rate(s, s.loaded.seconds));
        row("samples a CPU-second", &|s| rate(s, s.loaded.cpu_seconds));
        row("… including work after the load", &|s| {
            rate(s, s.loaded.cpu_seconds + s.loaded.cpu_seconds_after)
        });
        row("resident after the load, MiB", &|s| mib(s.loaded.resident.now));
        row("… once settled, MiB", &|s| mib(s.loaded.resident_settled.now));
        row("resident after the queries, MiB", &|s| mib(s.resident.now));
        row("peak, MiB", &|s| mib(s.resident.peak));
        row("bytes a sample on disk", &|s| {
            let remark = if s.loaded.is_settled { "" } else { " (not settled)" };
            format!("{:.2}{remark}", s.disk_bytes as f64 / s.loaded.samples as f64)
        });
        let head = self.head("");
        measure::table(&head.iter().map(String::as_str).collect::<Vec<_>>(), &rows)
    }

    fn query_table(&self) -> String {
        let mut head = self.head("median, ms");
        let others = &self.servers[1..];
        head.extend(others.iter().map(|server| format!("× {}", server.name)));
        head.extend(self.servers.iter().map(|server| format!("CPU {}", server.name)));
        head.extend(others.iter().map(|server| format!("× CPU {}", server.name)));
        head.push("results".to_owned());
        let mut rows = Vec::new();
        for asked in &self.queries {
            let medians: Vec<f64> = asked.servers.iter().map(Taken::median_ms).collect();
            let cpu: Vec<f64> = asked.servers.iter().map(|taken| taken.cpu_ms).collect();
            let mut row = vec![asked.name.clone()];
            for figures in [medians, cpu] {
                row.extend(figures.iter().map(|ms| two_digits(*ms)));
                row.extend(figures[1..].iter().map(|ms| two_digits(ms / figures[0])));
            }
            row.push(verdict(asked));
            rows.push(row);
        }
        measure::table(&head.iter().map(String::as_str).collect::<Vec<_>>(), &rows)
    }

    fn push_remarks(&self, text: &mut String) {
        text.push('\n');
        for asked in &self.queries {
            for (server, taken) in self.servers.iter().zip(&asked.servers) {
                let compared = taken.compared;
                if let Some(error) = &taken.error {
                    // Writing into a string cannot fail.
                    let _ = writeln!(text, "- {}, {}: error: {error}", server.name, asked.name);
                    continue;
                }
                if compared.is_equal() {
                    continue;
                }
                // Writing into a string cannot fail.
                let _ = writeln!(
                    text,
                    "- {}, {}: of {} values {} missing, {} different, by at most {:.2e}: {}",
                    server.name,
                    asked.name,
                    compared.values,
                    compared.missing,
                    compared.differing,
                    compared.worst,
                    taken.difference.as_deref().unwrap_or("NO KNOWN DIFFERENCE"),
                );
            }
        }
    }
}

fn two_digits(value: f64) -> String {
    if value.is_finite() { format!("{value:.2}") } else { "–".to_owned() }
}

fn verdict(asked: &Asked) -> String {
    if asked.servers.iter().any(|taken| taken.error.is_some()) {
        "ERROR"
    } else if asked.servers.iter().all(|taken| taken.compared.is_equal()) {
        "equal"
    } else if asked.servers.iter().all(Taken::is_right) {
        "known difference"
    } else {
        "DIFFERENT"
    }
    .to_owned()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::scenario::answer::Compared;

    /// Returns a report of servers, and of queries with the time of each server.
    pub fn report(servers: &[&str], queries: &[(&str, &[f64])]) -> Report {
        let server = |name: &&str| ServerFigures {
            name: (*name).to_owned(),
            loaded: Loaded { samples: 2048, seconds: 4.0, is_settled: true, ..Loaded::default() },
            resident: Resident { now: 1 << 20, peak: 3 << 20 },
            disk_bytes: 4_096,
        };
        let taken = |ms: &f64| Taken { wall_ms: vec![*ms], cpu_ms: 2.0 * ms, ..Taken::default() };
        let asked = |(name, times): &(&str, &[f64])| Asked {
            name: (*name).to_owned(),
            text: "up".to_owned(),
            servers: times.iter().map(taken).collect(),
        };
        Report {
            date: "2026-01-01".to_owned(),
            machine: "- cores: 2\n".to_owned(),
            dataset: "small".to_owned(),
            series: 32,
            scrapes: 64,
            end_s: 0,
            servers: servers.iter().map(server).collect(),
            queries: queries.iter().map(asked).collect(),
        }
    }

    #[test]
    fn rows_hold_times_and_how_many_times_longer_others_took() {
        let text = report(&["a", "b"], &[("sum", &[2.0, 5.0])]).markdown();
        assert!(
            text.contains("| sum | 2.00 | 5.00 | 2.50 | 4.00 | 10.00 | 2.50 | equal |"),
            "{text}"
        );
        assert!(text.contains("| bytes a sample on disk | 2.00 | 2.00 |"), "{text}");
        assert!(text.contains("| samples a second | 512 | 512 |"), "{text}");
        assert!(text.contains("| peak, MiB | 3 | 3 |"), "{text}");
    }

    #[test]
    fn differences_are_named_known_or_not() {
        let mut report = report(&["a", "b"], &[("sum", &[1.0, 1.0])]);
        let compared = Compared { values: 7, differing: 2, worst: 0.5, ..Compared::default() };
        report.queries[0].servers[1].compared = compared;
        let text = report.markdown();
        assert!(text.contains("| DIFFERENT |"), "{text}");
        let remark = "b, sum: of 7 values 0 missing, 2 different, by at most 5.00e-1: ";
        assert!(text.contains(&format!("{remark}NO KNOWN DIFFERENCE")), "{text}");
        report.queries[0].servers[1].difference = Some("it rounds".to_owned());
        let text = report.markdown();
        assert!(text.contains("| known difference |"), "{text}");
        assert!(text.contains(&format!("{remark}it rounds")), "{text}");
    }

    #[test]
    fn servers_with_errors_have_no_figures() {
        let mut report = report(&["a", "b"], &[("sum", &[2.0, 1.0])]);
        let refused = Some("too many samples".to_owned());
        report.queries[0].servers[1] =
            Taken { error: refused, cpu_ms: f64::NAN, ..Taken::default() };
        let text = report.markdown();
        assert!(text.contains("| sum | 2.00 | – | – | 4.00 | – | – | ERROR |"), "{text}");
        assert!(text.contains("- b, sum: error: too many samples"), "{text}");
    }
}
