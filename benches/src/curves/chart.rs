//! Line charts of a report, in SVG for light and dark backgrounds: one panel per curve, CPU time
//! against size. Both scales are logarithmic, so that proportional growth is a straight line.

use std::ops::RangeInclusive;

use super::report::{Curve, PointCost, Report};
use crate::svg::{self, COLORS, Svg};

const PANEL_WIDTH: f64 = 400.0;
const PANEL_HEIGHT: f64 = 250.0;
const PANELS_PER_ROW: usize = 2;
/// Space of title and legend.
const TOP: f64 = 56.0;
/// Margins of a panel's lines.
const LEFT: f64 = 58.0;
const RIGHT: f64 = 16.0;
const ABOVE: f64 = 28.0;
const BELOW: f64 = 30.0;

/// Draws all curves.
pub fn draw(report: &Report) -> String {
    let rows = report.curves.len().div_ceil(PANELS_PER_ROW);
    let width = PANEL_WIDTH * PANELS_PER_ROW as f64;
    let mut svg = Svg::new(width, TOP + PANEL_HEIGHT * rows as f64);
    svg.text("title", 12.0, 22.0, "start", "CPU time of a query by the size of one dimension");
    svg.legend(&report.servers, 34.0);
    for (index, curve) in report.curves.iter().enumerate() {
        let x = PANEL_WIDTH * (index % PANELS_PER_ROW) as f64;
        let y = TOP + PANEL_HEIGHT * (index / PANELS_PER_ROW) as f64;
        draw_panel(&mut svg, curve, x, y);
    }
    svg.finish()
}

fn draw_panel(svg: &mut Svg, curve: &Curve, x: f64, y: f64) {
    let (left, right) = (x + LEFT, x + PANEL_WIDTH - RIGHT);
    let (top, bottom) = (y + ABOVE, y + PANEL_HEIGHT - BELOW);
    svg.text("", left, y + 18.0, "start", &format!("CPU ms by {}", curve.name));
    let sizes = curve.points.iter().map(|point| point.size as f64);
    let costs = curve.points.iter().flat_map(|point| &point.servers).map(|cost| cost.cpu_ms);
    let (Some(x_scale), Some(y_scale)) =
        (Scale::over(sizes, left, right), Scale::over(costs, bottom, top))
    else {
        return;
    };
    for power in y_scale.powers() {
        let value = 10f64.powi(power);
        svg.line((left, y_scale.at(value)), (right, y_scale.at(value)));
        svg.text("figure", left - 5.0, y_scale.at(value) + 3.0, "end", &value.to_string());
    }
    for point in &curve.points {
        let x = x_scale.at(point.size as f64);
        svg.line((x, top), (x, bottom));
        svg.text("figure", x, bottom + 13.0, "middle", &point.label);
    }
    let server_count = curve.points.first().map_or(0, |point| point.servers.len());
    for server in 0..server_count {
        let is_drawn = |cost: &PointCost| cost.cpu_ms.is_finite() && cost.cpu_ms > 0.0;
        let points = curve.points.iter().map(|point| (point.size, point.servers[server]));
        let points: Vec<(f64, f64)> = points
            .filter(|(_, cost)| is_drawn(cost))
            .map(|(size, cost)| (x_scale.at(size as f64), y_scale.at(cost.cpu_ms)))
            .collect();
        svg.polyline(&points, COLORS[server % COLORS.len()]);
    }
}

/// Logarithmic scale from values to positions.
struct Scale {
    /// Logarithms of the limits: whole decades.
    from: f64,
    to: f64,
    /// Positions of the limits.
    start: f64,
    end: f64,
}

impl Scale {
    /// Returns the scale of whole decades around all positive finite values; `None` without one.
    fn over(values: impl Iterator<Item = f64>, start: f64, end: f64) -> Option<Scale> {
        let (from, to) = svg::decades(values)?;
        Some(Scale { from: f64::from(from), to: f64::from(to), start, end })
    }

    fn at(&self, value: f64) -> f64 {
        let part = (value.log10() - self.from) / (self.to - self.from);
        self.start + part.clamp(0.0, 1.0) * (self.end - self.start)
    }

    /// Returns the powers of ten on the scale.
    fn powers(&self) -> RangeInclusive<i32> {
        self.from as i32..=self.to as i32
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    /// Returns the points of all lines.
    fn lines(svg: &str) -> Vec<Vec<(f64, f64)>> {
        let points = |line: &str| {
            let (_, rest) = line.split_once("points=\"").unwrap();
            let pairs = rest.split('"').next().unwrap().split(' ');
            pairs
                .map(|pair| {
                    let (x, y) = pair.split_once(',').unwrap();
                    (x.parse().unwrap(), y.parse().unwrap())
                })
                .collect()
        };
        svg.lines().filter(|line| line.starts_with("<polyline")).map(points).collect()
    }

    #[test]
    fn proportional_costs_are_straight_lines() {
        let mut report = report();
        report.curves[0].points.truncate(2);
        let mut third = report.curves[0].points[1].clone();
        (third.size, third.servers[0].cpu_ms) = (1_000, 100.0);
        report.curves[0].points.push(third);
        let lines = lines(&draw(&report));
        assert_eq!(lines.len(), 2);
        let [a, b, c] = lines[0][..] else { panic!("three points") };
        assert!((c.0 - b.0 - (b.0 - a.0)).abs() < 0.2, "{:?}", lines[0]);
        assert!((c.1 - b.1 - (b.1 - a.1)).abs() < 0.2, "{:?}", lines[0]);
        assert!(a.1 > c.1, "more is higher");
    }

    #[test]
    fn costs_of_errors_are_omitted() {
        let mut report = report();
        report.curves[0].points[1].servers[1].cpu_ms = f64::NAN;
        let svg = draw(&report);
        assert!(!svg.contains("NaN"), "{svg}");
        assert_eq!(lines(&svg).iter().map(Vec::len).collect::<Vec<_>>(), [3, 2]);
    }
}
