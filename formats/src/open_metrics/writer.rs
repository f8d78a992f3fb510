//! Writing of OpenMetrics text.

use std::fmt::Write as _;
use std::io::{self, Write};

use model::labels::{is_legacy_label_name, is_legacy_metric_name};
use model::number_text::general;
use model::{Exemplar, Labels, METRIC_NAME, MetricKind};

/// Metadata of a metric family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    /// Name without suffixes such as `_total`.
    pub name: String,
    /// Its type.
    pub kind: MetricKind,
    /// Description; empty if unknown.
    pub help: String,
    /// Unit, which is a suffix of the name; empty if there is none.
    pub unit: String,
}

/// Writes families, then their series, then the samples of each.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    /// Name and labels of the series as they are written.
    series: String,
    line: String,
}

impl<W: Write> Writer<W> {
    /// Creates a writer of an empty text.
    pub fn new(out: W) -> Writer<W> {
        Writer { out, series: String::new(), line: String::new() }
    }

    /// Starts a family.
    pub fn family(&mut self, family: &Family) -> io::Result<()> {
        let mut name = String::new();
        if is_legacy_metric_name(&family.name) {
            name.push_str(&family.name);
        } else {
            push_quoted(&mut name, &family.name);
        }
        writeln!(self.out, "# TYPE {name} {}", family.kind.as_str())?;
        if !family.unit.is_empty() {
            writeln!(self.out, "# UNIT {name} {}", family.unit)?;
        }
        if !family.help.is_empty() {
            let mut help = String::new();
            push_escaped(&mut help, &family.help);
            writeln!(self.out, "# HELP {name} {help}")?;
        }
        Ok(())
    }

    /// Starts a series, which must have a metric name.
    pub fn series(&mut self, labels: &Labels) {
        let out = &mut self.series;
        out.clear();
        let name = labels.metric_name();
        let is_plain = is_legacy_metric_name(name);
        if is_plain {
            out.push_str(name);
        }
        let mut opener = '{';
        if !is_plain {
            out.push('{');
            push_quoted(out, name);
            opener = ',';
        }
        for (name, value) in labels.iter().filter(|(name, _)| *name != METRIC_NAME) {
            out.push(opener);
            push_label(out, name, value);
            opener = ',';
        }
        if opener == ',' {
            out.push('}');
        }
    }

    /// Writes a sample of the current series.
    pub fn sample(
        &mut self,
        timestamp_ms: i64,
        value: f64,
        exemplar: Option<&Exemplar>,
    ) -> io::Result<()> {
        let Writer { out, series, line } = self;
        line.clear();
        line.push_str(series);
        line.push(' ');
        line.push_str(&general(value));
        line.push(' ');
        push_seconds(line, timestamp_ms);
        if let Some(exemplar) = exemplar {
            line.push_str(" # {");
            for (position, (name, value)) in exemplar.labels.iter().enumerate() {
                if position > 0 {
                    line.push(',');
                }
                push_label(line, name, value);
            }
            line.push_str("} ");
            line.push_str(&general(exemplar.value));
            line.push(' ');
            push_seconds(line, exemplar.timestamp_ms);
        }
        line.push('\n');
        out.write_all(line.as_bytes())
    }

    /// Ends the text.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(b"# EOF\n")?;
        self.out.flush()?;
        Ok(self.out)
    }
}

fn push_label(out: &mut String, name: &str, value: &str) {
    if is_legacy_label_name(name) {
        out.push_str(name);
    } else {
        push_quoted(out, name);
    }
    out.push('=');
    push_quoted(out, value);
}

fn push_quoted(out: &mut String, text: &str) {
    out.push('"');
    push_escaped(out, text);
    out.push('"');
}

fn push_escaped(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}

/// Writes seconds with up to three digits after the point, as needed.
fn push_seconds(out: &mut String, timestamp_ms: i64) {
    let (seconds, ms) = (timestamp_ms.unsigned_abs() / 1000, timestamp_ms.unsigned_abs() % 1000);
    let sign = if timestamp_ms < 0 { "-" } else { "" };
    // Writing to a string cannot fail.
    let _ = write!(out, "{sign}{seconds}");
    if ms != 0 {
        let _ = write!(out, ".{ms:03}");
        out.truncate(out.trim_end_matches('0').len());
    }
}
