//! Bar chart of the medians of a report, in SVG for light and dark backgrounds.
//!
//! ```text
//!              0.1 ms      1 ms        10 ms       100 ms
//!   sum        │████████████████████████│ 21 ms
//!              │████████████████████████████│ 2.1 ×
//!   avg        │ …
//! ```
//!
//! The scale is logarithmic: equal distances are equal ratios.

use super::report::Report;
use crate::scenario::ask::Taken;
use crate::svg::{COLORS, Svg, decades};

const WIDTH: f64 = 860.0;
/// Left and right limit of the bars, with space for figures on the right.
const LEFT: f64 = 170.0;
const RIGHT: f64 = 800.0;
/// Height of title, legend and scale.
const TOP: f64 = 84.0;
const BAR: f64 = 9.0;
const GROUP_GAP: f64 = 9.0;
/// Minimum width of a bar.
const BAR_MIN: f64 = 1.0;

/// Draws a report: bars of the first server with times, those of the others with ratios to it.
pub fn draw(report: &Report) -> String {
    let groups = &report.queries;
    let group_height = BAR * report.servers.len() as f64 + GROUP_GAP;
    let bottom = TOP + group_height * groups.len() as f64;
    let medians = groups.iter().flat_map(|asked| asked.servers.iter().map(Taken::median_ms));
    let scale = Scale::over(medians);
    let mut svg = Svg::new(WIDTH, bottom + 12.0);
    draw_head(&mut svg, report);
    scale.draw(&mut svg, bottom);
    for (index, asked) in groups.iter().enumerate() {
        let top = TOP + group_height * index as f64;
        let middle = top + (group_height - GROUP_GAP) / 2.0 + 4.0;
        svg.text("", LEFT - 8.0, middle, "end", &asked.name);
        let first = asked.servers.first().map_or(f64::NAN, Taken::median_ms);
        for (server, taken) in asked.servers.iter().enumerate() {
            let (y, ms) = (top + BAR * server as f64, taken.median_ms());
            let end = scale.x(ms).max(LEFT + BAR_MIN);
            svg.bar(LEFT, y, end - LEFT, BAR - 1.0, COLORS[server % COLORS.len()]);
            let figure = if server == 0 {
                format!("{} ms", three_digits(ms))
            } else {
                format!("{} ×", three_digits(ms / first))
            };
            svg.text("figure", end + 4.0, y + BAR - 2.0, "start", &figure);
        }
    }
    svg.finish()
}

/// Scale from milliseconds to positions.
struct Scale {
    /// Exponents of ten of the milliseconds at both ends.
    from: i32,
    to: i32,
}

impl Scale {
    /// Returns the scale of whole decades around all positive finite values.
    fn over(values: impl Iterator<Item = f64>) -> Scale {
        let (from, to) = decades(values).unwrap_or((0, 1));
        Scale { from, to }
    }

    fn x(&self, ms: f64) -> f64 {
        let part = (ms.log10() - f64::from(self.from)) / f64::from(self.to - self.from);
        LEFT + part.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    fn draw(&self, svg: &mut Svg, bottom: f64) {
        for power in self.from..=self.to {
            let x = self.x(10f64.powi(power));
            let top = TOP - 8.0;
            svg.line((x, top), (x, bottom));
            svg.text("", x, top - 4.0, "middle", &format!("{} ms", 10f64.powi(power)));
        }
    }
}

fn draw_head(svg: &mut Svg, report: &Report) {
    let run_counts = report.queries.iter().flat_map(|query| &query.servers);
    let runs = run_counts.map(|taken| taken.wall_ms.len()).filter(|runs| *runs > 0).min();
    let runs = runs.unwrap_or(0);
    let title = format!(
        "{}: {} series of {} samples, medians of {runs} or more, shorter is faster",
        report.dataset, report.series, report.scrapes
    );
    svg.text("title", 12.0, 22.0, "start", &title);
    let names: Vec<&str> = report.servers.iter().map(|server| server.name.as_str()).collect();
    svg.legend(&names, 34.0);
}

/// Formats a figure with at most three digits, unless it is longer.
fn three_digits(value: f64) -> String {
    match value {
        _ if !value.is_finite() => "–".to_owned(),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    /// Returns the widths of all bars, without the legend.
    fn widths(svg: &str) -> Vec<f64> {
        let bars =
            svg.lines().filter(|line| line.starts_with("<rect") && line.contains("x=\"170\""));
        bars.map(|line| {
            let (_, rest) = line.split_once("width=\"").unwrap();
            rest.split('"').next().unwrap().parse().unwrap()
        })
        .collect()
    }

    #[test]
    fn equal_ratios_are_equal_distances() {
        let svg = draw(&report(&["a", "b", "c"], &[("q", &[1.0, 10.0, 100.0])]));
        let widths = widths(&svg);
        assert_eq!(widths.len(), 3);
        assert!((widths[2] - 2.0 * widths[1]).abs() < 0.2, "{widths:?}");
        assert!((widths[2] - (RIGHT - LEFT)).abs() < 0.2, "the longest reaches the end");
        assert!(widths[0] >= BAR_MIN, "the shortest is seen");
    }

    #[test]
    fn figures_are_times_of_the_first_and_ratios_of_the_others() {
        let svg = draw(&report(&["a", "b"], &[("q", &[12.34, 123.4]), ("r", &[0.5, 0.25])]));
        for figure in [">12.3 ms<", ">10.0 ×<", ">0.50 ms<", ">0.50 ×<", ">0.1 ms<", ">1000 ms<"]
        {
            assert!(svg.contains(figure), "{figure} in {svg}");
        }
    }

    #[test]
    fn names_are_escaped_and_invalid_times_omitted() {
        let svg = draw(&report(&["<a&b>"], &[("q", &[f64::NAN]), ("r", &[0.0])]));
        assert!(svg.contains("&lt;a&amp;b&gt;") && !svg.contains("<a&b>"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        let empty = draw(&report(&["a"], &[]));
        assert!(empty.starts_with("<svg") && empty.ends_with("</svg>\n"));
        assert!(widths(&empty).is_empty());
    }
}
