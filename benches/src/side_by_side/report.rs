//! What was measured, as tables for people and as JSON.

use std::fmt::Write;

use super::ask::{Asked, Taken};
use super::load::Loaded;
use super::peer::Resident;
use crate::measure;

/// Everything about one dataset.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// The day, in UTC.
    pub date: String,
    /// What the figures depend on.
    pub machine: String,
    /// What the dataset is called.
    pub dataset: String,
    /// Series at any one time.
    pub series: usize,
    /// Samples of a series.
    pub scrapes: usize,
    /// End of the data, a Unix time.
    pub end_s: i64,
    /// In the order of asking; the others are compared with the first.
    pub servers: Vec<Server>,
    /// In the order of asking.
    pub queries: Vec<Asked>,
}

/// What is known of a server beside its answers.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Server {
    /// What tables call it.
    pub name: String,
    /// `None` if it held the data already.
    pub loaded: Option<Loaded>,
    /// Memory after all queries.
    pub resident: Option<Resident>,
}

impl Report {
    /// The report in Markdown.
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
        let mut row = |name: &str, figure: &dyn Fn(&Server) -> Option<String>| {
            let mut cells = vec![name.to_owned()];
            cells.extend(self.servers.iter().map(|s| figure(s).unwrap_or("–".to_owned())));
            rows.push(cells);
        };
        let mib = |bytes: u64| format!("{:.0}", bytes as f64 / 1_048_576.0);
        row("samples a second", &|s| {
            s.loaded.map(|l| format!("{:.0}", l.samples as f64 / l.seconds))
        });
        row("samples a CPU-second", &|s| {
            Some(format!("{:.0}", s.loaded?.samples as f64 / s.loaded?.cpu_seconds?))
        });
        row("… with what follows a load", &|s| {
            let loaded = s.loaded?;
            let seconds = loaded.cpu_seconds? + loaded.cpu_seconds_after?;
            Some(format!("{:.0}", loaded.samples as f64 / seconds))
        });
        row("resident after the load, MiB", &|s| Some(mib(s.loaded?.resident?.now)));
        row("… once settled, MiB", &|s| Some(mib(s.loaded?.resident_settled?.now)));
        row("resident after the queries, MiB", &|s| Some(mib(s.resident?.now)));
        row("peak, MiB", &|s| Some(mib(s.resident?.peak)));
        row("bytes a sample on disk", &|s| {
            let loaded = s.loaded?;
            let remark = if loaded.is_settled { "" } else { " (not settled)" };
            Some(format!("{:.2}{remark}", loaded.disk_bytes? as f64 / loaded.samples as f64))
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
        head.push("answers".to_owned());
        let mut rows = Vec::new();
        for asked in &self.queries {
            let medians: Vec<f64> = asked.servers.iter().map(Taken::median_ms).collect();
            let cpu: Vec<f64> =
                asked.servers.iter().map(|taken| taken.cpu_ms.unwrap_or(f64::NAN)).collect();
            let mut row = vec![asked.name.clone()];
            for figures in [medians, cpu] {
                row.extend(figures.iter().map(|ms| format!("{ms:.2}")));
                row.extend(figures[1..].iter().map(|ms| format!("{:.2}", ms / figures[0])));
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
                if taken.compared.is_equal() {
                    continue;
                }
                let compared = taken.compared;
                // Writing into a string cannot fail.
                let _ = writeln!(
                    text,
                    "- {}, {}: of {} values {} missing, {} apart, the worst by {:.2e}: {}",
                    server.name,
                    asked.name,
                    compared.values,
                    compared.missing,
                    compared.differing,
                    compared.worst,
                    taken.difference.as_deref().unwrap_or("NOT KNOWN TO DIFFER"),
                );
            }
        }
    }
}

fn verdict(asked: &Asked) -> String {
    if asked.servers.iter().all(|taken| taken.compared.is_equal()) {
        "equal"
    } else if asked.servers.iter().all(Taken::is_right) {
        "known to differ"
    } else {
        "DIFFERENT"
    }
    .to_owned()
}
