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

use std::fmt::Write;

use super::report::Report;
use crate::scenario::ask::Taken;

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
/// Colors of the servers, reused for further ones.
const COLORS: [&str; 5] = ["#d9480f", "#4c7fd0", "#8f6fc4", "#3d9a6a", "#9a7d2e"];
const STYLE: &str = "<style>text{font:11px system-ui,sans-serif;fill:#3b434b}\
     .title{font-size:14px;font-weight:600}.figure{font-size:8.5px}\
     line{stroke:#8b949e;stroke-opacity:.35}\
     @media (prefers-color-scheme:dark){text{fill:#c9d1d9}}</style>";

/// Draws a report: bars of the first server with times, those of the others with ratios to it.
pub fn draw(report: &Report) -> String {
    let groups = &report.queries;
    let group_height = BAR * report.servers.len() as f64 + GROUP_GAP;
    let bottom = TOP + group_height * groups.len() as f64;
    let height = bottom + 12.0;
    let medians = groups.iter().flat_map(|asked| asked.servers.iter().map(Taken::median_ms));
    let scale = Scale::over(medians);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n{STYLE}\n"
    );
    push_head(&mut svg, report);
    scale.push_lines(&mut svg, bottom);
    for (index, asked) in groups.iter().enumerate() {
        let top = TOP + group_height * index as f64;
        let middle = top + (group_height - GROUP_GAP) / 2.0 + 4.0;
        push_text(&mut svg, "", LEFT - 8.0, middle, "end", &asked.name);
        let first = asked.servers.first().map_or(f64::NAN, Taken::median_ms);
        for (server, taken) in asked.servers.iter().enumerate() {
            let (y, ms) = (top + BAR * server as f64, taken.median_ms());
            let end = scale.x(ms).max(LEFT + BAR_MIN);
            push(
                &mut svg,
                format_args!(
                    "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
                     fill=\"{}\"/>\n",
                    end - LEFT,
                    BAR - 1.0,
                    COLORS[server % COLORS.len()]
                ),
            );
            let figure = if server == 0 {
                format!("{} ms", three_digits(ms))
            } else {
                format!("{} ×", three_digits(ms / first))
            };
            push_text(&mut svg, "figure", end + 4.0, y + BAR - 2.0, "start", &figure);
        }
    }
    svg.push_str("</svg>\n");
    svg
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
        let logs: Vec<f64> = values.map(f64::log10).filter(|log| log.is_finite()).collect();
        let from = logs.iter().copied().reduce(f64::min).map_or(0, |log| log.floor() as i32);
        let to = logs.iter().copied().reduce(f64::max).map_or(1, |log| log.ceil() as i32);
        Scale { from, to: to.max(from + 1) }
    }

    fn x(&self, ms: f64) -> f64 {
        let part = (ms.log10() - f64::from(self.from)) / f64::from(self.to - self.from);
        LEFT + part.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    fn push_lines(&self, svg: &mut String, bottom: f64) {
        for power in self.from..=self.to {
            let x = self.x(10f64.powi(power));
            let (y1, label) = (TOP - 8.0, format!("{} ms", 10f64.powi(power)));
            push(
                svg,
                format_args!("<line x1=\"{x:.1}\" y1=\"{y1}\" x2=\"{x:.1}\" y2=\"{bottom}\"/>\n"),
            );
            push_text(svg, "", x, y1 - 4.0, "middle", &label);
        }
    }
}

fn push_head(svg: &mut String, report: &Report) {
    let runs =
        report.queries.first().and_then(|q| q.servers.first()).map_or(0, |t| t.wall_ms.len());
    let title = format!(
        "{}: {} series of {} samples, medians of {runs}, shorter is faster",
        report.dataset, report.series, report.scrapes
    );
    push_text(svg, "title", 12.0, 22.0, "start", &title);
    let mut x = 12.0;
    for (index, server) in report.servers.iter().enumerate() {
        let color = COLORS[index % COLORS.len()];
        push(
            svg,
            format_args!(
                "<rect x=\"{x}\" y=\"34\" width=\"10\" height=\"10\" fill=\"{color}\"/>\n"
            ),
        );
        push_text(svg, "", x + 15.0, 43.0, "start", &server.name);
        x += 40.0 + 7.0 * server.name.chars().count() as f64;
    }
}

fn push_text(svg: &mut String, class: &str, x: f64, y: f64, anchor: &str, text: &str) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let text = escape(text);
    push(
        svg,
        format_args!(
            "<text{class} x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>\n"
        ),
    );
}

fn push(svg: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing into a string cannot fail.
    let _ = svg.write_fmt(text);
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
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
