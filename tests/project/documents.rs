//! Truth of the documents, as far as a program can check it: links, flags, endpoints, metrics, messages
//! and paths that they name, and the size of README.md and ARCHITECTURE.md.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _};
use regex::Regex;
use tessella::cli::CommandLine;
use tessella::cli::prometheus::FLAGS;

const README_BYTES_MAX: usize = 9_000;
const ARCHITECTURE_BYTES_MAX: usize = 20_000;

/// Flags of other programs, and forms of flags, that documents name.
const OTHER_FLAGS: [&str; 67] = [
    "age",
    "alertmanagers.url",
    "all-targets",
    "bench",
    "build",
    "check",
    "data-dir",
    "detach",
    "enable-feature",
    "endpoint.sd-config-file",
    "endpoint.sd-config-reload-interval",
    "eval-interval",
    "file",
    "filename",
    "flag",
    "force",
    "from-file",
    "from-literal",
    "grpc-address",
    "help",
    "http-address",
    "ignore",
    "install",
    "kustomize",
    "lib",
    "locked",
    "namespace",
    "no-exemplar.partial-response",
    "no-flag",
    "no-labels.partial-response",
    "no-query-range.align-range-with-step",
    "no-query-range.partial-response",
    "no-query.partial-response",
    "now",
    "objstore.config-file",
    "only",
    "publish",
    "purge",
    "query",
    "query-frontend.downstream-url",
    "query-frontend.tenant-header",
    "query-frontend.vertical-shards",
    "query-range.split-interval",
    "query.enforce-tenancy",
    "query.mode",
    "query.replica-label",
    "query.tenant-header",
    "query.tenant-label-name",
    "record",
    "release",
    "remote-write.config-file",
    "remove",
    "restore-ignored-label",
    "rule-file",
    "scrapes",
    "scrapes-per-request",
    "series",
    "series-per-request",
    "settle",
    "sweep",
    "tag",
    "test",
    "unit",
    "version",
    "volume",
    "wait",
    "workspace",
];

/// Routes that are parts of others: of the page, and the beginnings of paths.
const PARTS: [&str; 5] =
    ["/api/v1", "/api/v1/{*path}", "/ui/{name}", "/favicon.svg", "/favicon.ico"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap()
}

/// Files below a folder whose name has an ending, but for those of builds and of git.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && !["target", "node_modules"].contains(&&*name)
        {
            found.extend(files(&path, ending));
        } else if path.is_file() && name.ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Documents for users and contributors, with their names.
fn documents() -> Vec<(String, String)> {
    let mut paths = files(&root().join("docs"), ".md");
    let at_root = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"];
    paths.extend(at_root.map(|name| root().join(name)));
    let named =
        |path: PathBuf| (path.strip_prefix(root()).unwrap().display().to_string(), text(&path));
    paths.into_iter().map(named).collect()
}

fn without_code(text: &str) -> String {
    let text = regex(r"(?ms)^\s*```.*?^\s*```").replace_all(text, "").into_owned();
    regex(r"`[^`\n]*`").replace_all(&text, "").into_owned()
}

/// Anchors of the headings of a document, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let text = regex(r"(?ms)^\s*```.*?^\s*```").replace_all(text, "").into_owned();
    let headings = text.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix(' '));
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let slug = |heading: &str| {
        heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
    };
    headings.map(slug).collect()
}

/// Fails with all findings at once.
fn assert_none(findings: &[String]) {
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

/// Names of flags: of the server, and of all commands.
fn flags() -> (BTreeSet<String>, BTreeSet<String>) {
    fn longs(command: &Command) -> impl Iterator<Item = String> {
        command.get_arguments().filter_map(|arg| Some(arg.get_long()?.to_owned()))
    }
    let command = CommandLine::command();
    let server: BTreeSet<String> = longs(&command).collect();
    let tools = command.get_subcommands().flat_map(longs);
    (server.clone(), server.iter().cloned().chain(tools).collect())
}

/// Flags that a text names; one that ends in `.` or `-` stands for all with that beginning.
fn named_flags(text: &str) -> BTreeSet<String> {
    let pattern = regex(r"(?:^|[^\w-])--([a-z][a-z0-9.-]*)(…?)");
    let found = pattern.captures_iter(text).map(|found| {
        let name = found[1].trim_end_matches(|c| found[2].is_empty() && matches!(c, '.' | '-'));
        format!("{name}{}", &found[2])
    });
    found.collect()
}

#[test]
fn links_lead_somewhere() {
    let link = regex(r"\]\(([^)\s]+)\)");
    let mut findings = Vec::new();
    for path in files(root(), ".md") {
        let content = text(&path);
        for found in link.captures_iter(&without_code(&content)) {
            let target = &found[1];
            if target.contains("://") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = match file {
                "" => path.clone(),
                file => path.parent().unwrap().join(file),
            };
            let has_anchor = || anchor.is_empty() || anchors(&text(&file)).contains(anchor);
            if !file.exists() || !has_anchor() {
                findings.push(format!("{}: {target} leads nowhere", path.display()));
            }
        }
    }
    assert_none(&findings);
}

#[test]
fn named_flags_exist() {
    let (_, mut known) = flags();
    known.extend(FLAGS.iter().map(|flag| flag.name.to_owned()));
    known.extend(OTHER_FLAGS.map(str::to_owned));
    let exists = |flag: &str| match flag.strip_suffix('…') {
        Some(start) => known.iter().any(|known| known.starts_with(start)),
        None => known.contains(flag),
    };
    let mut findings = Vec::new();
    for (name, text) in documents() {
        let unknown = named_flags(&text).into_iter().filter(|flag| !exists(flag));
        findings.extend(unknown.map(|flag| format!("{name}: --{flag} does not exist")));
    }
    assert_none(&findings);
}

#[test]
fn all_flags_are_described() {
    let (server, all) = flags();
    let configuration = text("docs/configuration.md");
    let tools = text("docs/tools.md") + &configuration;
    let described = |flag: &String, text: &str| text.contains(&format!("`--{flag}"));
    let of_server = server.iter().filter(|flag| {
        let row = |line: &str| line.starts_with('|') && described(flag, line);
        !configuration.lines().any(row)
    });
    let of_tools = all.iter().filter(|flag| !described(flag, &tools));
    let missing: Vec<String> =
        of_server.chain(of_tools).map(|flag| format!("--{flag} is not described")).collect();
    assert_none(&missing);
}

/// Endpoints of the table in `docs/http-api.md`, with placeholders in braces.
fn described_endpoints() -> BTreeSet<String> {
    let page = text("docs/http-api.md");
    let rows = page.lines().filter(|line| line.starts_with("| `/"));
    let spans = rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2));
    let choices = |span: &str| match span.split_once('{') {
        None => vec![span.to_owned()],
        Some((start, rest)) => {
            let names = rest.trim_end_matches('}').split(',');
            names.map(|name| format!("{start}{name}")).collect()
        }
    };
    spans.flat_map(choices).map(|path| path.replace('<', "{").replace('>', "}")).collect()
}

#[test]
fn endpoints_are_described_and_routed() {
    let described = described_endpoints();
    let literal = regex(r#""(/(?:docs/|[a-z0-9_/{}*.\-]*[a-z0-9}])?)""#);
    let mut routed = BTreeSet::new();
    for path in files(&root().join("src/http"), ".rs") {
        let is_list = path.ends_with("router.rs") || path.ends_with("ui.rs");
        let source = text(&path).split("#[cfg(test)]").next().unwrap().to_owned();
        let is_route = |path: &str| is_list || path.starts_with("/api/v1/");
        let found = literal.captures_iter(&source).map(|found| found[1].to_owned());
        let in_tests = path.components().any(|part| part.as_os_str() == "tests");
        routed.extend(found.filter(|path| !in_tests && is_route(path)));
    }
    let openapi = text("src/http/pages/openapi.yaml");
    let paths = regex(r"(?m)^  (/[^:\s]+):");
    let in_openapi: BTreeSet<String> = paths.captures_iter(&openapi).map(|c| c[1].into()).collect();
    let known: BTreeSet<String> = routed.union(&in_openapi).cloned().collect();
    let parts = PARTS.map(str::to_owned);
    let missing = known.iter().filter(|path| !described.contains(*path) && !parts.contains(path));
    let mut findings: Vec<String> =
        missing.map(|path| format!("docs/http-api.md lacks {path}")).collect();
    let unknown = described.difference(&known);
    findings.extend(unknown.map(|path| format!("docs/http-api.md: {path} is not routed")));
    assert_none(&findings);
}

/// The text of all sources in a folder.
pub fn sources(folder: &str) -> String {
    files(&root().join(folder), ".rs").into_iter().map(text).collect()
}

#[test]
fn named_metrics_exist() {
    let sources = sources("src");
    let metric = regex(r":?tessella_[a-z_]+");
    let mut findings = Vec::new();
    for (name, text) in documents() {
        // Names with a colon are recorded by rules.
        let found = metric.find_iter(&text).map(|found| found.as_str());
        for found in found.filter(|found| !found.starts_with(':')) {
            let is_prefix = found.ends_with('_') && sources.contains(&format!("\"{found}"));
            if !is_prefix && !sources.contains(&format!("\"{found}\"")) {
                findings.push(format!("{name}: there is no metric {found}"));
            }
        }
    }
    assert_none(&findings);
}

/// Messages of the table in `docs/operations.md`, without the parts that vary.
#[test]
fn messages_are_those_of_the_source() {
    let page = text("docs/operations.md");
    let table = page.split("## Troubleshooting").nth(1).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let messages =
        rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2));
    let folders = ["src", "storage/src", "storage/model/src", "wire/src", "engine/src"];
    let sources: String =
        folders.iter().flat_map(|folder| files(&root().join(folder), ".rs")).map(text).collect();
    // Long literals continue on the next line after a backslash.
    let sources = regex(r"\\\n\s*").replace_all(&sources, "").into_owned();
    let mut findings = Vec::new();
    for message in messages {
        let parts = message.split('…').map(str::trim).filter(|part| !part.is_empty());
        let missing = parts.filter(|part| !sources.contains(*part));
        findings.extend(missing.map(|part| format!("no message has {part:?} of {message:?}")));
    }
    assert_none(&findings);
}

/// Warnings and errors that need no remedy of an operator.
const WITHOUT_REMEDY: [&str; 5] = [
    "cannot listen to signals",
    "cannot start threads",
    "server exits at once after a second signal",
    "task for own metrics failed",
    "unknown feature",
];

/// Returns the messages of a log macro: its last literal, outside of nested parentheses.
fn logged(source: &str, name: &str) -> Vec<String> {
    let literal = regex(r#""((?:[^"\\]|\\.)*)""#);
    let mut messages = Vec::new();
    for rest in source.split(&format!("{name}!(")).skip(1) {
        let mut depth = 1;
        let mut message = None;
        let mut at = 0;
        while depth > 0 && at < rest.len() {
            match rest.as_bytes()[at] {
                b'(' => depth += 1,
                b')' => depth -= 1,
                b'"' => {
                    let found = literal.captures_at(rest, at).unwrap();
                    message = Some(found[1].to_owned());
                    at = found.get(0).unwrap().end() - 1;
                }
                _ => {}
            }
            at += 1;
        }
        messages.extend(message);
    }
    messages
}

#[test]
fn warnings_and_errors_of_logs_have_a_row() {
    let page = text("docs/operations.md");
    let table = page.split("## Troubleshooting").nth(1).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let known: Vec<&str> = rows
        .flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2))
        .flat_map(|message| message.split('…').map(str::trim))
        .filter(|part| part.len() > 8)
        .chain(WITHOUT_REMEDY)
        .collect();
    let mut findings = Vec::new();
    let mut count = 0;
    for path in ["src", "storage/src"].iter().flat_map(|folder| files(&root().join(folder), ".rs"))
    {
        if path.components().any(|part| part.as_os_str() == "tests") {
            continue;
        }
        let source = text(&path).split("#[cfg(test)]").next().unwrap().to_owned();
        let source = regex(r"\\\n\s*").replace_all(&source, "").into_owned();
        let messages = ["warn", "error"].map(|name| logged(&source, name)).concat();
        // A name in braces is a constant.
        for message in messages.iter().filter(|message| !message.starts_with('{')) {
            count += 1;
            if !known.iter().any(|known| message.contains(known) || known.contains(&**message)) {
                findings
                    .push(format!("docs/operations.md lacks {message:?} of {}", path.display()));
            }
        }
    }
    assert_none(&findings);
    assert!(count > 50, "{count}");
}

/// Folders that documents name paths relative to.
const BASES: [&str; 6] = ["", "src", "engine", "engine/src", "storage/src", "storage/src/lsm"];

/// Top-level folders, and those of `storage` and `engine` that mechanisms are named after.
const FOLDERS: &str = "src|storage|engine|wire|formats|json|testkit|tests|benches|fuzz|grafana|compose|deploy|docs\
    |lsm|head|log|index|read|seal|expiry|retention|delete|exec|results|objects|cache|compaction|follow";

#[test]
fn named_paths_exist() {
    let path = regex(&format!(r"`((?:{FOLDERS})/[\w./-]+|[\w-]+(?:/[\w-]+)+\.rs)`"));
    let exists = |path: &str| {
        BASES.iter().any(|base| {
            let path = root().join(base).join(path);
            path.exists() || path.with_extension("rs").exists()
        })
    };
    let file = regex(r"`(\w+\.rs)`");
    let sources = files(root(), ".rs");
    let is_file = |name: &str| sources.iter().any(|path| path.ends_with(name));
    let mut findings = Vec::new();
    for (name, text) in documents() {
        let missing = file.captures_iter(&text).filter(|found| !is_file(&found[1]));
        findings.extend(missing.map(|found| format!("{name}: there is no {}", &found[1])));
        let named = path.captures_iter(&text).map(|found| found[1].to_owned());
        let is_example = |path: &String| path.contains("/name") || path == "tests/mod.rs";
        let missing = named.filter(|path| !is_example(path) && !exists(path));
        findings.extend(missing.map(|path| format!("{name}: there is no {path}")));
    }
    assert_none(&findings);
}

#[test]
fn named_functions_exist() {
    let sources: String = ["src", "storage/src", "storage/model/src", "engine/src"]
        .iter()
        .flat_map(|folder| files(&root().join(folder), ".rs"))
        .map(text)
        .collect();
    let words: BTreeSet<&str> =
        regex(r"\w+").find_iter(&sources).map(|word| word.as_str()).collect();
    let function = regex(r"`(\w+(?:::\w+)+)`");
    let mut findings = Vec::new();
    for (name, text) in documents() {
        for found in function.captures_iter(&text) {
            let path = found[1].to_owned();
            if path.starts_with("model::") || path.starts_with(char::is_uppercase) {
                let missing = path.split("::").skip_while(|part| *part == "model");
                let missing = missing.filter(|part| !words.contains(part));
                findings
                    .extend(missing.map(|part| format!("{name}: there is no {part} of {path}")));
            }
        }
    }
    assert_none(&findings);
}

#[test]
fn named_variables_exist() {
    let sources: String = files(root(), ".rs").into_iter().map(text).collect();
    let variable = regex(r"\b[A-Z0-9]+(?:_[A-Z0-9]+)+\b");
    let contributing = text("CONTRIBUTING.md");
    let findings: Vec<String> = variable
        .find_iter(&contributing)
        .filter(|found| !sources.contains(&format!("\"{}\"", found.as_str())))
        .map(|found| format!("CONTRIBUTING.md: there is no variable {}", found.as_str()))
        .collect();
    assert_none(&findings);
}

#[test]
fn first_documents_are_short() {
    for (name, bytes_max) in
        [("README.md", README_BYTES_MAX), ("ARCHITECTURE.md", ARCHITECTURE_BYTES_MAX)]
    {
        let bytes = text(name).len();
        assert!(bytes <= bytes_max, "{name} has {bytes} bytes, at most {bytes_max}");
    }
}
