//! Servers that a harness starts, as named on its command line.

use std::io;
use std::path::{Path, PathBuf};

use super::load::Protocol;
use super::server::{NodeSettings, Program, Server};
use crate::options::build_server;

/// Server to start.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Name in tables.
    pub name: String,
    program: Program,
    binary: Option<PathBuf>,
}

impl Target {
    /// Starts the server on a store below a directory, as a receiver of a protocol.
    ///
    /// Errors: it does not become ready.
    pub fn open(&self, directory: &Path, protocol: Protocol) -> io::Result<Server> {
        let binary = self.binary.clone().map_or_else(build_server, Ok)?;
        let settings = NodeSettings { args: protocol.args(self.program), store: None };
        Server::start_node(&self.name, self.program, &binary, directory, settings)
    }
}

const PROGRAMS: [(&str, Program); 3] = [
    ("tessella", Program::Tessella),
    ("prometheus", Program::Prometheus),
    ("victoria-metrics", Program::VictoriaMetrics),
];

/// Parses `[NAME:]PROGRAM[=BINARY]`.
///
/// Errors: an unknown program, or one without its binary.
pub fn parse(text: &str) -> Result<Target, String> {
    let (what, binary) = match text.split_once('=') {
        Some((what, binary)) => (what, Some(PathBuf::from(binary))),
        None => (text, None),
    };
    let (name, program) = what.split_once(':').unwrap_or((what, what));
    let (_, program) = PROGRAMS
        .into_iter()
        .find(|(known, _)| *known == program)
        .ok_or(format!("{program} is not one of tessella, prometheus, victoria-metrics"))?;
    if binary.is_none() && program != Program::Tessella {
        return Err(format!("{text} needs =BINARY"));
    }
    Ok(Target { name: name.to_owned(), program, binary })
}

/// Checks that all names differ.
///
/// Errors: two servers have one name.
pub fn check_names(targets: &[Target]) -> Result<(), String> {
    for (index, target) in targets.iter().enumerate() {
        if targets[..index].iter().any(|earlier| earlier.name == target.name) {
            return Err(format!("two servers have the name {}", target.name));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_by_program_or_prefix() {
        let target = |name: &str, program, binary: Option<&str>| Target {
            name: name.to_owned(),
            program,
            binary: binary.map(PathBuf::from),
        };
        assert_eq!(parse("tessella"), Ok(target("tessella", Program::Tessella, None)));
        let old = target("old", Program::Prometheus, Some("/p"));
        assert_eq!(parse("old:prometheus=/p"), Ok(old));
    }
}
