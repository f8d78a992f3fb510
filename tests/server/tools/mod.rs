//! The tools of the real binary, on files and stores of their own.

mod audit;
mod command_line;
mod export;
mod healthcheck;
mod import;
mod reshard_plan;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use testkit::{Server, get, percent_encode};

/// Runs a tool on a store.
fn tool(name: &str, store: &Path, args: &[&str]) -> Ran {
    let output = command(name, store, args).output().unwrap();
    Ran::from(output)
}

fn command(name: &str, store: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tessella"));
    command.arg(name).arg(format!("--storage.url={}", store.display())).args(args);
    command
}

/// Exit code and output of a tool.
#[derive(Debug)]
struct Ran {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            status: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// The series of a range query, as Prometheus writes them.
fn ask(server: &Server, query: &str, start: i64, end: i64, step: i64) -> Value {
    let query = percent_encode(query);
    let path = format!("/api/v1/query_range?query={query}&start={start}&end={end}&step={step}");
    let (status, body) = get(&server.address, &path);
    assert_eq!(status, 200, "{body}");
    serde_json::from_str::<Value>(&body).unwrap()["data"]["result"].take()
}
