//! Charts in SVG, for light and dark backgrounds.

use std::fmt::{Arguments, Write};

/// Colors of servers, reused for further ones.
pub const COLORS: [&str; 5] = ["#d9480f", "#4c7fd0", "#8f6fc4", "#3d9a6a", "#9a7d2e"];

const STYLE: &str = "<style>text{font:11px system-ui,sans-serif;fill:#3b434b}\
     .title{font-size:14px;font-weight:600}.figure{font-size:8.5px}\
     line{stroke:#8b949e;stroke-opacity:.35}polyline{fill:none;stroke-width:2}\
     @media (prefers-color-scheme:dark){text{fill:#c9d1d9}}</style>";

/// Drawing that is not finished.
pub struct Svg {
    text: String,
}

impl Svg {
    /// Starts an empty drawing.
    pub fn new(width: f64, height: f64) -> Svg {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\">\n{STYLE}\n"
        );
        Svg { text }
    }

    /// Returns the complete drawing.
    pub fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }

    /// Draws a text; `class` may be empty.
    pub fn text(&mut self, class: &str, x: f64, y: f64, anchor: &str, text: &str) {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let text = escape(text);
        self.push(format_args!(
            "<text{class} x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>\n"
        ));
    }

    /// Draws a line of the scale.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.push(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n"
        ));
    }

    /// Draws a horizontal bar.
    pub fn bar(&mut self, x: f64, y: f64, width: f64, height: f64, color: &str) {
        self.push(format_args!(
            "<rect x=\"{x}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             fill=\"{color}\"/>\n"
        ));
    }

    /// Draws a line through points, and the points.
    pub fn polyline(&mut self, points: &[(f64, f64)], color: &str) {
        let pairs: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let pairs = pairs.join(" ");
        self.push(format_args!("<polyline points=\"{pairs}\" stroke=\"{color}\"/>\n"));
        for (x, y) in points {
            self.push(format_args!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{color}\"/>\n"
            ));
        }
    }

    /// Draws the names of servers in their colors.
    pub fn legend(&mut self, names: &[impl AsRef<str>], y: f64) {
        let mut x = 12.0;
        for (index, name) in names.iter().map(AsRef::as_ref).enumerate() {
            self.bar(x, y, 10.0, 10.0, COLORS[index % COLORS.len()]);
            self.text("", x + 15.0, y + 9.0, "start", name);
            x += 40.0 + 7.0 * name.chars().count() as f64;
        }
    }

    fn push(&mut self, text: Arguments<'_>) {
        // Writing into a string cannot fail.
        let _ = self.text.write_fmt(text);
    }
}

/// Returns the exponents of the whole decades around all positive finite values, at least one
/// decade apart; `None` without such a value.
pub fn decades(values: impl Iterator<Item = f64>) -> Option<(i32, i32)> {
    let logs: Vec<f64> = values.map(f64::log10).filter(|log| log.is_finite()).collect();
    let from = logs.iter().copied().reduce(f64::min)?.floor() as i32;
    let to = logs.iter().copied().reduce(f64::max)?.ceil() as i32;
    Some((from, to.max(from + 1)))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
