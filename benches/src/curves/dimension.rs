//! Dimensions of cost, with the queries of each size.

use super::data::{GROUP_COUNTS, INTERVAL_S, Metric, YEAR, group_label, hours};
use crate::scenario::ask::{Query, Steps};

const HOUR_S: i64 = 3_600;
const DAY_S: i64 = 24 * HOUR_S;
/// Number of steps of a panel.
const STEPS: i64 = 512;
/// Minimum window of a rate: four samples.
const WINDOW_MIN_S: i64 = 4 * INTERVAL_S;
/// Steps of queries over an hour.
const HOUR_STEPS: i64 = 50;

/// Query for one size of a dimension.
pub struct Point {
    /// Size.
    pub size: usize,
    /// Size in tables.
    pub label: String,
    /// Query of this size.
    pub query: Query,
}

/// Dimension of cost: all else is the same, as far as possible.
pub struct Dimension {
    /// Name in tables and charts.
    pub name: &'static str,
    /// Description of the queries.
    pub what: &'static str,
    /// Sizes in ascending order.
    pub points: Vec<Point>,
}

/// Numbers of concurrent clients.
pub const CLIENTS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Returns the dimensions for data that end at a time, with up to a number of series.
pub fn dimensions(end_s: i64, series_max: usize) -> Vec<Dimension> {
    vec![
        Dimension {
            name: "series",
            what: "Sum of rate into 10 groups, 50 steps over 50 minutes",
            points: hours(series_max).map(|metric| series_point(metric, end_s)).collect(),
        },
        Dimension {
            name: "range",
            what: "Sum of rate of 50 series into 10 groups, at most 512 steps; windows as long as a step, at least 4 minutes",
            points: RANGES.map(|(label, range_s)| range_point(label, range_s, end_s)).into(),
        },
        Dimension {
            name: "steps",
            what: "Sum of 50 series into 10 groups over 90 days",
            points: [16, 64, 256, 1_024, 4_096].map(|count| steps_point(count, end_s)).into(),
        },
        Dimension {
            name: "groups",
            what: "Sum of 10,000 series, 50 steps over 50 minutes",
            points: groups(end_s).collect(),
        },
    ]
}

/// Returns the query of concurrent clients.
pub fn query_of_clients(end_s: i64) -> Query {
    sum_of_rate(Metric { series: 1_000, samples: 60 }, WINDOW_MIN_S, last_hour(end_s))
}

const RANGES: [(&str, i64); 7] = [
    ("1h", HOUR_S),
    ("6h", 6 * HOUR_S),
    ("1d", DAY_S),
    ("7d", 7 * DAY_S),
    ("30d", 30 * DAY_S),
    ("90d", 90 * DAY_S),
    ("1y", 365 * DAY_S),
];

fn last_hour(end_s: i64) -> Steps {
    Steps { start_s: end_s - (HOUR_STEPS - 1) * INTERVAL_S, end_s, step_s: INTERVAL_S }
}

fn sum_of_rate(metric: Metric, window_s: i64, steps: Steps) -> Query {
    let by = group_label(GROUP_COUNTS[0]);
    // The name is that of a query of which the differences between programs are known.
    Query::range(
        "sum of rate",
        format!("sum by ({by}) (rate({}[{window_s}s]))", metric.name()),
        steps,
    )
}

fn series_point(metric: Metric, end_s: i64) -> Point {
    let query = sum_of_rate(metric, WINDOW_MIN_S, last_hour(end_s));
    Point { size: metric.series, label: metric.series.to_string(), query }
}

fn range_point(label: &str, range_s: i64, end_s: i64) -> Point {
    // Grafana rounds steps and aligns the range to them.
    let step_s = (range_s / STEPS / INTERVAL_S).max(1) * INTERVAL_S;
    let end_s = end_s / step_s * step_s;
    let count = (range_s / step_s).min(STEPS);
    let steps = Steps { start_s: end_s - (count - 1) * step_s, end_s, step_s };
    let query = sum_of_rate(YEAR, step_s.max(WINDOW_MIN_S), steps);
    Point { size: range_s as usize, label: label.to_owned(), query }
}

fn steps_point(count: i64, end_s: i64) -> Point {
    let step_s = 90 * DAY_S / count;
    let steps = Steps { start_s: end_s - (count - 1) * step_s, end_s, step_s };
    let by = group_label(GROUP_COUNTS[0]);
    let query = Query::range("sum", format!("sum by ({by}) ({})", YEAR.name()), steps);
    Point { size: count as usize, label: count.to_string(), query }
}

fn groups(end_s: i64) -> impl Iterator<Item = Point> {
    let metric = Metric { series: 10_000, samples: 60 };
    std::iter::once(1).chain(GROUP_COUNTS).map(move |count| {
        let by = if count == 1 { "job".to_owned() } else { group_label(count) };
        let text = format!("sum by ({by}) ({})", metric.name());
        let query = Query::range("sum", text, last_hour(end_s));
        Point { size: count, label: count.to_string(), query }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_ascend_and_queries_differ() {
        for Dimension { name, points, .. } in dimensions(1_800_000_000, 1_000_000) {
            assert!(points.len() >= 4, "{name}");
            assert!(points.is_sorted_by(|a, b| a.size < b.size), "{name}");
            assert!(points.is_sorted_by(|a, b| a.query.path != b.query.path), "{name}");
        }
    }

    #[test]
    fn panels_of_a_year_have_windows_of_a_step() {
        let point = range_point("1y", 365 * DAY_S, 1_800_000_000);
        assert!(point.query.text.contains("[61560s]"), "{}", point.query.text);
        assert!(point.query.path.contains("&step=61560&"), "{}", point.query.path);
        let point = range_point("1h", HOUR_S, 1_800_000_000);
        assert!(point.query.text.contains("[240s]"), "{}", point.query.text);
        assert!(point.query.path.contains("&step=60&"), "{}", point.query.path);
    }
}
