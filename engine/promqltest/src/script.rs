//! Parser of scripts.
//!
//! ```text
//! load 1m
//!   http_requests{job="a"} 0+10x5
//!
//! eval instant at 5m sum(http_requests)
//!   expect no_warn
//!   {} 50
//! ```

use std::collections::BTreeMap;
use std::sync::LazyLock;

use model::Labels;
use regex::{Captures, Regex};

use crate::duration::parse_duration_ms;
use crate::expect::Expectations;
use crate::series::{
    SeriesValue, is_start_timestamps, parse_number, parse_series, parse_start_timestamps, unquote,
};

const RANGE_VECTOR_PREFIX: &str = "expect range vector";
const STRING_PREFIX: &str = "expect string";

/// A parsed script.
#[derive(Debug)]
pub struct Script {
    /// Commands in order.
    pub commands: Vec<Command>,
}

/// A command of a script.
#[derive(Debug)]
pub enum Command {
    /// Removes all data.
    Clear,
    /// Adds data.
    Load(Load),
    /// Runs a query and compares the result.
    Eval(Box<Eval>),
}

/// Data to add.
#[derive(Debug)]
pub struct Load {
    /// Line number of the command, from 1.
    pub line: usize,
    /// True if classic histograms are also loaded as native histograms with custom buckets.
    pub with_custom_buckets: bool,
    /// Samples by series; the last line of a series wins.
    pub series: BTreeMap<Labels, Vec<LoadedSample>>,
}

/// A sample to add.
#[derive(Debug, Clone)]
pub struct LoadedSample {
    /// Timestamp, in ms since the epoch.
    pub time_ms: i64,
    /// Value, never omitted.
    pub value: SeriesValue,
    /// Start timestamp, if given.
    pub start_time_ms: Option<i64>,
}

/// Times of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evaluation {
    /// At one time.
    Instant {
        /// ms since the epoch.
        time_ms: i64,
    },
    /// At a grid of times.
    Range {
        /// First time.
        start_ms: i64,
        /// Last time, inclusive.
        end_ms: i64,
        /// Distance between two times.
        step_ms: i64,
    },
}

/// A query with its expectations.
#[derive(Debug)]
pub struct Eval {
    /// Line number of the command, from 1.
    pub line: usize,
    /// Query.
    pub query: String,
    /// Times of evaluation.
    pub evaluation: Evaluation,
    /// Expected failure, annotations and order.
    pub expectations: Expectations,
    /// Expected value.
    pub expected: Expected,
}

/// Expected value of an eval.
#[derive(Debug, Default)]
pub struct Expected {
    /// A number without labels.
    pub scalar: Option<f64>,
    /// A string; empty if none is expected.
    pub string: String,
    /// True if a line expects a string; such an eval is not repeated in a range query.
    pub is_string: bool,
    /// Times of the raw samples that an instant query of a range vector returns.
    pub raw_times: Option<(i64, i64, i64)>,
    /// Series with their values.
    pub series: BTreeMap<Labels, ExpectedSeries>,
}

/// An expected series.
#[derive(Debug)]
pub struct ExpectedSeries {
    /// Line number within the eval, from 1.
    pub position: usize,
    /// Values by step.
    pub values: Vec<SeriesValue>,
}

/// Syntax error in a script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ScriptError {
    /// Line number, from 1.
    pub line: usize,
    /// Error message.
    pub message: String,
}

impl Script {
    /// Parses a script.
    ///
    /// Errors: the first invalid line. Queries are not parsed.
    pub fn parse(text: &str) -> Result<Script, ScriptError> {
        let mut lines = Lines { lines: text.lines().map(clean_line).collect(), next: 0 };
        let mut commands = Vec::new();
        while let Some((line, text)) = lines.next_line() {
            if text.is_empty() {
                continue;
            }
            let word = text.split([' ', '\t']).next().unwrap_or_default().to_ascii_lowercase();
            let command = if word == "clear" {
                Ok(Command::Clear)
            } else if word.starts_with("load") {
                parse_load(&mut lines, line, text).map(Command::Load)
            } else if word.starts_with("eval") {
                parse_eval(&mut lines, line, text).map(|eval| Command::Eval(Box::new(eval)))
            } else {
                Err(format!("invalid command {text:?}"))
            };
            // An error of a command is at the line that was read last.
            commands.push(command.map_err(|message| ScriptError { line: lines.next, message })?);
        }
        Ok(Script { commands })
    }

    /// Returns the evals of the script in order.
    pub fn evals(&self) -> impl Iterator<Item = &Eval> {
        self.commands.iter().filter_map(|command| match command {
            Command::Eval(eval) => Some(&**eval),
            Command::Clear | Command::Load(_) => None,
        })
    }
}

/// Trims a line; a comment becomes an empty line, which ends a block.
fn clean_line(line: &str) -> &str {
    let line = line.trim();
    if line.starts_with('#') { "" } else { line }
}

struct Lines<'a> {
    lines: Vec<&'a str>,
    next: usize,
}

impl<'a> Lines<'a> {
    /// Returns the next line and its number.
    fn next_line(&mut self) -> Option<(usize, &'a str)> {
        let line = self.lines.get(self.next)?;
        self.next += 1;
        Some((self.next, line))
    }

    /// Returns the next line of a block; an empty line ends the block.
    fn next_in_block(&mut self) -> Option<&'a str> {
        self.lines.get(self.next).filter(|line| !line.is_empty())?;
        self.next_line().map(|(_, line)| line)
    }
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the patterns of this file are constants that a test compiles")
}

fn group<'a>(captures: &Captures<'a>, index: usize) -> &'a str {
    captures.get(index).map_or("", |group| group.as_str())
}

static LOAD: LazyLock<Regex> = LazyLock::new(|| pattern(r"^load(?:_(with_nhcb))?\s+(.+?)$"));

fn parse_load(lines: &mut Lines<'_>, line: usize, text: &str) -> Result<Load, String> {
    let captures = LOAD
        .captures(text)
        .ok_or("invalid load command, expected `load[_with_nhcb] <step:duration>`")?;
    let step_ms = parse_duration_ms(group(&captures, 2))
        .map_err(|error| format!("invalid step definition {:?}: {error}", group(&captures, 2)))?;
    let mut load =
        Load { line, with_custom_buckets: captures.get(1).is_some(), series: BTreeMap::new() };
    let mut starts = None;
    while let Some(line) = lines.next_in_block() {
        if is_start_timestamps(line) {
            if starts.is_some() {
                return Err("a line of start timestamps has no line of samples after it".to_owned());
            }
            starts = Some(parse_start_timestamps(line)?);
            continue;
        }
        let (labels, values) = parse_series(line)?;
        let starts = match starts.take() {
            None => vec![None; values.len()],
            Some((metric, _)) if metric != labels => {
                return Err(
                    "the start timestamps before this line are of another metric".to_owned()
                );
            }
            Some((_, starts)) if starts.len() != values.len() => {
                return Err(format!(
                    "there are {} start timestamps but {} values",
                    starts.len(),
                    values.len()
                ));
            }
            Some((_, starts)) => starts,
        };
        load.series.insert(labels, loaded_samples(step_ms, values, &starts)?);
    }
    if starts.is_some() {
        return Err("a line of start timestamps has no line of samples after it".to_owned());
    }
    Ok(load)
}

fn loaded_samples(
    step_ms: i64,
    values: Vec<SeriesValue>,
    starts: &[Option<i64>],
) -> Result<Vec<LoadedSample>, String> {
    let mut samples = Vec::with_capacity(values.len());
    for (position, (value, start)) in values.into_iter().zip(starts).enumerate() {
        if value == SeriesValue::Omitted {
            continue;
        }
        let time_ms =
            step_ms.checked_mul(position as i64).ok_or("the time of a sample is out of range")?;
        let start_time_ms = start.map(|offset| time_ms.saturating_add(offset));
        samples.push(LoadedSample { time_ms, value, start_time_ms });
    }
    Ok(samples)
}

static EVAL_INSTANT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"^eval(?:_(fail|warn|ordered|info))?\s+instant\s+(?:at\s+(.+?))?\s+(.+)$")
});
static EVAL_RANGE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"^eval(?:_(fail|warn|info))?\s+range\s+from\s+(.+)\s+to\s+(.+)\s+step\s+(.+?)\s+(.+)$")
});
static RANGE_VECTOR: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^expect range vector\s+from\s+(.+)\s+to\s+(.+)\s+step\s+(.+)$"));

fn parse_eval(lines: &mut Lines<'_>, line: usize, text: &str) -> Result<Eval, String> {
    let (modifier, evaluation, query) = if let Some(captures) = EVAL_INSTANT.captures(text) {
        let time_ms = parse_duration_ms(group(&captures, 2))
            .map_err(|error| format!("invalid time {:?}: {error}", group(&captures, 2)))?;
        (captures.get(1), Evaluation::Instant { time_ms }, group(&captures, 3))
    } else if let Some(captures) = EVAL_RANGE.captures(text) {
        let (start_ms, end_ms, step_ms) = parse_grid(&captures, 2)?;
        let evaluation = Evaluation::Range { start_ms, end_ms, step_ms };
        (captures.get(1), evaluation, group(&captures, 5))
    } else {
        return Err("invalid evaluation command, expected `eval[_fail|_warn|_info|_ordered] \
                    instant at <time> <query>` or `eval[_fail|_warn|_info] range from <from> to \
                    <to> step <step> <query>`"
            .to_owned());
    };
    let mut eval = Eval {
        line,
        query: query.to_owned(),
        evaluation,
        expectations: Expectations::of_command(modifier.map_or("", |m| m.as_str())),
        expected: Expected::default(),
    };
    let mut position = 1;
    while let Some(line) = lines.next_in_block() {
        match eval_line(&mut eval, position, line)? {
            Line::Expectation => {}
            Line::Value => position += 1,
            Line::Last => break,
        }
    }
    Ok(eval)
}

/// Kind of a line in an eval.
enum Line {
    /// An expectation about the result; does not count as a position.
    Expectation,
    /// A series.
    Value,
    /// The last line of the block.
    Last,
}

fn eval_line(eval: &mut Eval, position: usize, line: &str) -> Result<Line, String> {
    if eval.expectations.accept_deprecated(line)? {
        return Ok(Line::Last);
    }
    if line.starts_with(RANGE_VECTOR_PREFIX) {
        let captures = RANGE_VECTOR
            .captures(line)
            .ok_or_else(|| format!("invalid range vector definition {line:?}"))?;
        let (start_ms, end_ms, step_ms) = parse_grid(&captures, 1)?;
        eval.expected.raw_times = Some((start_ms, end_ms, step_ms));
        if let Evaluation::Instant { time_ms } = &mut eval.evaluation {
            *time_ms = end_ms;
        }
        return Ok(Line::Expectation);
    }
    if let Some(literal) = line.strip_prefix(STRING_PREFIX) {
        eval.expected.string = unquote(literal.trim_start())
            .map_err(|_| "a quoted string literal is required".to_owned())?;
        eval.expected.is_string = true;
        return Ok(Line::Expectation);
    }
    // A metric of that name can still be written as `expect{}`.
    if line.split(' ').next() == Some("expect") {
        eval.expectations.accept(line)?;
        return Ok(Line::Expectation);
    }
    if let Ok(number) = parse_number(line) {
        eval.expected.scalar = Some(number);
        return Ok(Line::Last);
    }
    let (labels, values) = parse_series(line)?;
    let is_instant = matches!(eval.evaluation, Evaluation::Instant { .. });
    if is_instant && eval.expected.raw_times.is_none() && values.len() != 1 {
        return Err(format!(
            "an instant eval expects one value a series, not {}; `expect range vector` allows more",
            values.len()
        ));
    }
    eval.expected.scalar = None;
    eval.expected.series.insert(labels, ExpectedSeries { position, values });
    Ok(Line::Value)
}

/// Parses start, end and step from three groups.
fn parse_grid(captures: &Captures<'_>, first: usize) -> Result<(i64, i64, i64), String> {
    let parse = |index: usize, what: &str| {
        let text = group(captures, index);
        parse_duration_ms(text).map_err(|error| format!("invalid {what} {text:?}: {error}"))
    };
    let start_ms = parse(first, "start timestamp")?;
    let end_ms = parse(first + 1, "end timestamp")?;
    if end_ms < start_ms {
        return Err(format!(
            "the end ({}) is before the start ({})",
            group(captures, first + 1),
            group(captures, first)
        ));
    }
    Ok((start_ms, end_ms, parse(first + 2, "step")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_empty_lines_end_a_block() {
        let script = Script::parse(
            "load 1m\n  a 1 _ 3\n  b{x=\"y\"} 2\n# comment\nclear\n\n\
             eval instant at 1m30s  a + b\n  {x=\"y\"} 4\n",
        )
        .unwrap();
        let [Command::Load(load), Command::Clear, Command::Eval(eval)] = &script.commands[..]
        else {
            panic!("{script:?}")
        };
        assert_eq!(load.series.len(), 2);
        let a = &load.series[&Labels::from_pairs([("__name__", "a")])];
        assert_eq!(a.iter().map(|s| s.time_ms).collect::<Vec<_>>(), [0, 120_000]);
        assert_eq!((eval.line, eval.query.as_str()), (7, "a + b"));
        assert_eq!(eval.evaluation, Evaluation::Instant { time_ms: 90_000 });
        assert_eq!(eval.expected.series.len(), 1);
    }

    #[test]
    fn evals_name_their_times() {
        let script = Script::parse(
            "eval range from 10s to 1m step 10s x[5m]\n  x 1x5\n\n\
             eval instant at 0 y[1m]\n  expect range vector from 10s to 1m step 10s\n  y 1 2\n\n\
             eval instant at 50m (\"Foo\")\n  expect string \"Foo\"\n\n\
             eval instant at 0 1\n  0x1F\n",
        )
        .unwrap();
        let evals: Vec<&Eval> = script.evals().collect();
        let range = Evaluation::Range { start_ms: 10_000, end_ms: 60_000, step_ms: 10_000 };
        assert_eq!(evals[0].evaluation, range);
        assert_eq!(evals[1].evaluation, Evaluation::Instant { time_ms: 60_000 });
        assert_eq!(evals[1].expected.raw_times, Some((10_000, 60_000, 10_000)));
        assert_eq!(evals[2].expected.string, "Foo");
        assert_eq!(evals[3].expected.scalar, Some(31.0));
    }

    #[test]
    fn start_timestamps_belong_to_the_next_line() {
        let text = "load 1m\n  m{a=\"b\"}@st _ -30s\n  m{a=\"b\"} 1 2\n";
        let script = Script::parse(text).unwrap();
        let Command::Load(load) = &script.commands[0] else { panic!("{script:?}") };
        let samples = load.series.values().next().unwrap();
        let starts: Vec<_> = samples.iter().map(|s| s.start_time_ms).collect();
        assert_eq!(starts, [None, Some(30_000)]);
        for wrong in
            ["load 1m\n m@st 1m\n", "load 1m\n m@st 1m\n n 1\n", "load 1m\n m@st 1m\n m 1 2\n"]
        {
            assert!(Script::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn errors_name_their_line() {
        let check = |text: &str, line: usize| {
            let error = Script::parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text:?}: {error}");
        };
        check("\nwhat\n", 2);
        check("load 1x\n", 1);
        check("load 1m\n  a 1\n  b x\n", 3);
        check("eval instant at 1m\n", 1);
        check("eval range from 2m to 1m step 1m a\n", 1);
        check("eval_ordered range from 0 to 1m step 1m a\n", 1);
        check("eval instant at 1m a\n  a 1 2\n", 2);
        check("eval instant at 1m a\n  expect nothing\n", 2);
        check("eval instant at 1m a\n  expect string Foo\n", 2);
    }
}
