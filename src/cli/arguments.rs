//! Arguments of the process: flags of Prometheus, negated Boolean flags and suggestions, on top of
//! clap.
//!
//! Flags of Prometheus are rewritten to flags of this server or dropped with a notice before clap
//! sees the arguments, so that clap knows each flag by one name.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory as _, FromArgMatches as _};

use super::CommandLine;
use super::prometheus::{self, PrometheusFlag, Treatment};

/// Parsed command line, and notices about flags without effect.
#[derive(Debug)]
pub struct Arguments {
    /// Flags of the server, or a tool with its flags.
    pub command_line: CommandLine,
    /// Notices to log once the log is started.
    pub notices: Vec<Notice>,
}

/// Flag that is accepted without effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Flag, and for `--enable-feature` the feature.
    pub flag: String,
    /// Reason for the missing effect; absent for a feature that Prometheus does not know either.
    pub reason: Option<&'static str>,
}

impl Notice {
    /// Logs the notice, at the level that Prometheus uses for such a flag.
    pub fn log(&self) {
        let flag = &self.flag;
        match self.reason {
            Some(reason) => tracing::info!(flag, reason, "flag of Prometheus has no effect"),
            None => tracing::warn!(flag, "unknown feature"),
        }
    }
}

/// Parses the arguments of the process, of which the first is its name.
///
/// Errors: an invalid flag or value, or a request for help or the version; see
/// [`clap::Error::exit`].
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Arguments, clap::Error> {
    let mut args = args.into_iter();
    let program = args.next().unwrap_or_else(|| "tessella".into());
    let args: Vec<OsString> = args.collect();
    let mut command = command();
    command.build();
    let tool = args.first().and_then(|name| command.find_subcommand(name));
    let mut rewrite = Rewrite::new(tool.unwrap_or(&command), tool.is_none());
    rewrite.all(args)?;
    let (args, notices) = (rewrite.args, rewrite.notices);
    let matches = command.try_get_matches_from_mut(std::iter::once(program).chain(args))?;
    let command_line =
        CommandLine::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    Ok(Arguments { command_line, notices })
}

/// Returns the command line with flags grouped by family.
pub fn command() -> Command {
    let grouped = |command: Command| {
        command.mut_args(|arg| match arg.get_long().and_then(heading) {
            Some(heading) => arg.help_heading(heading),
            None => arg,
        })
    };
    grouped(CommandLine::command()).mut_subcommands(grouped)
}

/// Headings of the help, by prefix of a flag; the first match counts.
const HEADINGS: [(&str, &str); 18] = [
    ("mode", "General"),
    ("reader.", "General"),
    ("config.", "General"),
    ("self-metrics", "General"),
    ("web.", "Web server"),
    ("grpc.", "Scale-out"),
    ("external-label", "Scale-out"),
    ("tenancy.", "Tenants"),
    ("storage.s3.", "Object stores"),
    ("storage.gcs.", "Object stores"),
    ("storage.azure.", "Object stores"),
    ("storage.disk-cache.", "Object stores"),
    ("storage.", "Storage"),
    ("take-over", "Storage"),
    ("query.", "Queries"),
    ("remote-write.", "Remote write and OTLP"),
    ("otlp.", "Remote write and OTLP"),
    ("log.", "Log"),
];

fn heading(flag: &str) -> Option<&'static str> {
    HEADINGS.iter().find(|(start, _)| flag.starts_with(start)).map(|(_, heading)| *heading)
}

/// Translation of Prometheus' flags to our own.
struct Rewrite<'a> {
    /// Server or tool with its flags.
    command: &'a Command,
    /// Tools accept aliases of their flags, but no other flags of Prometheus.
    is_server: bool,
    args: Vec<OsString>,
    notices: Vec<Notice>,
}

impl<'a> Rewrite<'a> {
    fn new(command: &'a Command, is_server: bool) -> Rewrite<'a> {
        Rewrite { command, is_server, args: Vec::new(), notices: Vec::new() }
    }

    fn all(&mut self, args: Vec<OsString>) -> Result<(), clap::Error> {
        let mut args = args.into_iter();
        let mut features = Vec::new();
        while let Some(arg) = args.next() {
            let Some(flag) = arg.to_str().and_then(|arg| arg.strip_prefix("--")) else {
                self.args.push(arg);
                continue;
            };
            if flag.is_empty() {
                self.args.push(arg);
                self.args.extend(args);
                break;
            }
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (flag, None),
            };
            if self.flag(name).is_some() {
                self.args.push(arg);
                continue;
            }
            let positive = name.strip_prefix("no-");
            if let Some(positive) = positive.filter(|name| value.is_none() && self.is_switch(name))
            {
                self.args.push(format!("--{positive}=false").into());
                continue;
            }
            let known = prometheus::flag(name).map(|flag| (flag, value == Some("false")));
            let negated = || {
                let flag = prometheus::flag(positive?)?;
                (flag.is_bool && value.is_none()).then_some((flag, true))
            };
            let Some((flag, is_negated)) = known.or_else(negated).filter(|(flag, _)| {
                self.is_server
                    || matches!(flag.treatment, Treatment::Alias(to) if self.flag(to).is_some())
            }) else {
                return Err(self.unknown(name));
            };
            let value = value.map(str::to_owned);
            self.apply(flag, is_negated, value, &mut args, &mut features)?;
        }
        self.set(&features);
        Ok(())
    }

    fn apply(
        &mut self,
        flag: &PrometheusFlag,
        is_negated: bool,
        value: Option<String>,
        rest: &mut impl Iterator<Item = OsString>,
        features: &mut Vec<&'static str>,
    ) -> Result<(), clap::Error> {
        let shown = if is_negated && flag.is_bool {
            format!("--no-{}", flag.name)
        } else {
            format!("--{}", flag.name)
        };
        let treatment = if is_negated && flag.is_bool { flag.negated } else { flag.treatment };
        match treatment {
            Treatment::Same => return Err(self.unknown(flag.name)),
            Treatment::Alias(to) => {
                let value = value.map_or_else(String::new, |value| format!("={value}"));
                self.args.push(format!("--{to}{value}").into());
            }
            Treatment::Unneeded(reason) => {
                if !flag.is_bool {
                    self.value_of(&shown, value, rest)?;
                }
                self.notices.push(Notice { flag: shown, reason: Some(reason) });
            }
            Treatment::Missing(instead) => return Err(self.refused(&shown, instead)),
            Treatment::Features => {
                let names = self.value_of(&shown, value, rest)?;
                for name in names.split(',') {
                    features.extend(self.feature(&shown, name)?);
                }
            }
        }
        Ok(())
    }

    /// Returns the flag that a feature sets, if any.
    fn feature(&mut self, flag: &str, name: &str) -> Result<Option<&'static str>, clap::Error> {
        let shown = format!("{flag}={name}");
        let reason = match prometheus::feature_of(name).map(|feature| feature.treatment) {
            Some(Treatment::Alias(to)) => return Ok(Some(to)),
            Some(Treatment::Missing(instead)) => return Err(self.refused(&shown, instead)),
            Some(Treatment::Unneeded(reason)) => Some(reason),
            Some(Treatment::Same | Treatment::Features) | None => None,
        };
        self.notices.push(Notice { flag: shown, reason });
        Ok(None)
    }

    /// Sets Boolean flags that are not set already.
    fn set(&mut self, flags: &[&str]) {
        for flag in flags {
            let (bare, with_value) = (format!("--{flag}"), format!("--{flag}=true"));
            if !self.args.iter().any(|arg| *arg == *bare || *arg == *with_value) {
                self.args.push(with_value.into());
            }
        }
    }

    /// Returns the value of a flag: after `=`, or the next argument.
    fn value_of(
        &self,
        flag: &str,
        value: Option<String>,
        rest: &mut impl Iterator<Item = OsString>,
    ) -> Result<String, clap::Error> {
        let next = || rest.next().and_then(|next| next.into_string().ok());
        value.or_else(next).filter(|value| !value.starts_with("--")).ok_or_else(|| {
            let message = format!("a value is required for '{flag}' but none was supplied\n");
            clap::Error::raw(ErrorKind::InvalidValue, message).with_cmd(self.command)
        })
    }

    fn flag(&self, name: &str) -> Option<&Arg> {
        self.command.get_arguments().find(|arg| arg.get_long() == Some(name))
    }

    /// Returns whether one of our flags is Boolean.
    fn is_switch(&self, name: &str) -> bool {
        let is_bool = |arg: &Arg| arg.get_value_names().is_some_and(|names| names == ["BOOL"]);
        self.flag(name).is_some_and(is_bool)
    }

    fn refused(&self, flag: &str, instead: &str) -> clap::Error {
        let message = format!("{flag} of Prometheus cannot be used: {instead}\n");
        clap::Error::raw(ErrorKind::InvalidValue, message).with_cmd(self.command)
    }

    fn unknown(&self, name: &str) -> clap::Error {
        let mut error = clap::Error::new(ErrorKind::UnknownArgument).with_cmd(self.command);
        let flag = |name: &str| ContextValue::String(format!("--{name}"));
        error.insert(ContextKind::InvalidArg, flag(name));
        if let Some(similar) = self.similar(name) {
            error.insert(ContextKind::SuggestedArg, flag(similar));
        }
        error
    }

    /// Returns the most similar flag of the same family.
    fn similar(&self, wrong: &str) -> Option<&str> {
        let own = self.command.get_arguments().filter_map(Arg::get_long);
        let aliases = prometheus::FLAGS.iter().filter_map(|flag| match flag.treatment {
            Treatment::Alias(to) if self.flag(to).is_some() => Some(flag.name),
            _ => None,
        });
        let candidates = own.chain(aliases);
        let scored = candidates.filter_map(|name| Some((difference(wrong, name)?, name)));
        scored.min_by_key(|(difference, _)| *difference).map(|(_, name)| name)
    }
}

/// Returns the number of typing errors between a wrong name and a flag of the same family, or `None`
/// if there are too many. The family is the part before the last dot.
fn difference(wrong: &str, name: &str) -> Option<usize> {
    let split = |name: &'_ str| name.rfind('.').map_or(0, |at| at + 1);
    let ((wrong_family, wrong), (family, name)) =
        (wrong.split_at(split(wrong)), name.split_at(split(name)));
    let in_family = edits(wrong_family, family);
    if in_family > 1 {
        return None;
    }
    if wrong.len() >= 3 && name.starts_with(wrong) {
        return Some(in_family + 1);
    }
    let in_name = edits(wrong, name);
    (in_name <= (name.len() / 3).max(1)).then_some(in_family + in_name)
}

/// Returns the number of characters to insert, remove, replace or swap with a neighbor.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let moved = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                let is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                let swapped = if is_swap { rows[i - 2][j - 2] + 1 } else { usize::MAX };
                replaced.min(moved).min(swapped)
            };
        }
    }
    rows[a.len()][b.len()]
}
