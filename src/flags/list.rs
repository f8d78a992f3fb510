//! Effective flags, as the API lists them.
//!
//! Names and values come from the parsed command line, so new flags are listed without a change
//! here. The value name of a flag selects the form of its value.

use clap::{ArgMatches, Command, CommandFactory as _, FromArgMatches};

use super::{Args, parse_address};
use crate::units::{format_bytes, format_duration, parse_bytes, parse_count, parse_duration};

/// All flags with given or default values, sorted by name.
#[derive(Debug, Clone)]
pub(crate) struct ListedFlags(Vec<(String, String)>);

impl Args {
    /// Returns all flags with values, sorted by name, as `/api/v1/status/flags` lists them.
    pub fn flags(&self) -> Vec<(String, String)> {
        let mut flags = self.listed.0.clone();
        for (name, value) in &mut flags {
            match name.as_str() {
                "web.external-url" => self.external_url.as_str().clone_into(value),
                "web.route-prefix" => {
                    *value = format!("/{}", self.route_prefix().trim_start_matches('/'));
                }
                _ => {}
            }
        }
        flags
    }
}

/// Declares no flags; reads those of the other structs.
impl clap::Args for ListedFlags {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for ListedFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let command = Args::command();
        let listed = command.get_arguments().filter_map(|arg| {
            let name = arg.get_long()?.to_owned();
            let kind = arg.get_value_names().and_then(|names| names.first());
            let given = matches.try_get_raw(arg.get_id().as_str()).ok().flatten();
            let kind = kind.map_or("", |kind| kind.as_str());
            let values = given.into_iter().flatten();
            let values: Vec<_> =
                values.map(|value| written(kind, &value.to_string_lossy())).collect();
            Some((name, values.join(",")))
        });
        let mut flags: Vec<_> = listed.collect();
        flags.sort_unstable();
        Ok(ListedFlags(flags))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = ListedFlags::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns a value in the form of its kind. The parser of the flag has accepted the text.
fn written(kind: &str, text: &str) -> String {
    let written = match kind {
        "DURATION" => parse_duration(text).map(format_duration),
        "SIZE" => parse_bytes(text).map(format_bytes),
        "COUNT" | "BYTES" => parse_count::<u64, 0>(text).map(|count| count.to_string()),
        "ADDRESS" => parse_address(text).map(|address| address.to_string()),
        "URL" => Ok(storage::without_credentials(text)),
        _ => Ok(text.to_owned()),
    };
    written.unwrap_or_else(|_| text.to_owned())
}
