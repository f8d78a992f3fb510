//! Measured curves, as tables and as JSON.

use std::fmt::Write;

use crate::measure;

/// All curves of a run.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Report {
    /// Day in UTC.
    pub date: String,
    /// Description of the machine.
    pub machine: String,
    /// Names of the servers; the others are compared with the first.
    pub servers: Vec<String>,
    /// Curves in their order.
    pub curves: Vec<Curve>,
}

/// Cost against the size of one dimension.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Curve {
    /// Name of the dimension.
    pub name: String,
    /// Description of the queries.
    pub what: String,
    /// Sizes in ascending order.
    pub points: Vec<CurvePoint>,
}

/// Cost at one size.
#[derive(Debug, Clone, serde::Serialize)]
pub struct CurvePoint {
    /// Size.
    pub size: usize,
    /// Size in tables.
    pub label: String,
    /// Cost on each server.
    pub servers: Vec<PointCost>,
}

/// Cost of one query on one server.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct PointCost {
    /// Median time; with concurrent clients, that of each query.
    pub median_ms: f64,
    /// CPU time of a query, the mean of all runs.
    pub cpu_ms: f64,
}

impl Report {
    /// Formats the report in Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("# Curves: {}\n\n{}", self.date, self.machine);
        for curve in &self.curves {
            // Writing into a string cannot fail.
            let _ = write!(text, "\n## Cost by {}\n\n{}.\n\n", curve.name, curve.what);
            text.push_str(&self.table(curve));
        }
        text
    }

    fn table(&self, curve: &Curve) -> String {
        let mut head = vec![curve.name.clone()];
        head.extend(self.servers.iter().map(|server| format!("{server}, ms")));
        head.extend(self.servers.iter().map(|server| format!("CPU {server}")));
        head.extend(self.servers[1..].iter().map(|server| format!("× CPU {server}")));
        head.push("growth".to_owned());
        let mut rows = Vec::new();
        for (index, point) in curve.points.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| &curve.points[before]);
            let mut row = vec![point.label.clone()];
            row.extend(point.servers.iter().map(|cost| format!("{:.2}", cost.median_ms)));
            row.extend(point.servers.iter().map(|cost| format!("{:.2}", cost.cpu_ms)));
            let first = point.servers[0].cpu_ms;
            row.extend(point.servers[1..].iter().map(|cost| format!("{:.1}", cost.cpu_ms / first)));
            row.push(
                before.map_or(String::new(), |before| format!("{:.2}", exponent(before, point))),
            );
            rows.push(row);
        }
        measure::table(&head.iter().map(String::as_str).collect::<Vec<_>>(), &rows)
    }
}

/// Returns the exponent of the first server's growth between two points: 1 if CPU time is
/// proportional to the size, 0 if it does not depend on it.
fn exponent(before: &CurvePoint, after: &CurvePoint) -> f64 {
    let cost = after.servers[0].cpu_ms / before.servers[0].cpu_ms;
    cost.ln() / (after.size as f64 / before.size as f64).ln()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn report() -> Report {
        let point = |size: usize, ms: f64| CurvePoint {
            size,
            label: size.to_string(),
            servers: vec![
                PointCost { median_ms: ms, cpu_ms: ms },
                PointCost { median_ms: 3.0 * ms, cpu_ms: 4.0 * ms },
            ],
        };
        let points = vec![point(10, 1.0), point(100, 10.0), point(10_000, 100.0)];
        let curve = Curve { name: "series".to_owned(), what: "A sum".to_owned(), points };
        Report {
            date: "2026-01-01".to_owned(),
            machine: "- cores: 2\n".to_owned(),
            servers: vec!["a".to_owned(), "b".to_owned()],
            curves: vec![curve],
        }
    }

    #[test]
    fn growth_is_an_exponent() {
        let text = report().markdown();
        for row in [
            "| 10 | 1.00 | 3.00 | 1.00 | 4.00 | 4.0 |  |",
            "| 100 | 10.00 | 30.00 | 10.00 | 40.00 | 4.0 | 1.00 |",
            "| 10000 | 100.00 | 300.00 | 100.00 | 400.00 | 4.0 | 0.50 |",
        ] {
            assert!(text.contains(row), "{row} in {text}");
        }
    }
}
