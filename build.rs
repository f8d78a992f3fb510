//! Finds the revision and the time of the build for `src/build_info.rs`.
//!
//! `TESSELLA_REVISION` and `SOURCE_DATE_EPOCH` in the environment take precedence over git and the
//! clock. Neither git nor a repository is needed. The script runs again only when one of them has
//! changed, and for release builds when another commit is checked out: a development build keeps the
//! revision that it was first built from, because each commit would rebuild the package otherwise.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TESSELLA_REVISION");
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    let revision = variable("TESSELLA_REVISION").or_else(git_revision).unwrap_or_default();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seconds =
        variable("SOURCE_DATE_EPOCH").and_then(|seconds| seconds.parse().ok()).unwrap_or_else(now);
    println!("cargo::rustc-env=TESSELLA_REVISION={revision}");
    println!("cargo::rustc-env=TESSELLA_BUILD_SECONDS={seconds}");
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The commit that is checked out, if these sources are a git repository of their own.
fn git_revision() -> Option<String> {
    let root = Path::new(&git(&["rev-parse", "--show-toplevel"])?).canonicalize().ok()?;
    if root != Path::new(&variable("CARGO_MANIFEST_DIR")?).canonicalize().ok()? {
        return None;
    }
    if variable("PROFILE").is_some_and(|profile| profile == "release") {
        watch_head();
    }
    git(&["rev-parse", "HEAD"])
}

/// Has the script run again when another commit is checked out. The log of HEAD changes at just
/// these times. Where git keeps none, HEAD and what it refers to are watched. A missing file must
/// not be named, as Cargo would run the script at each build.
fn watch_head() {
    let watch = |name: &str| {
        let path = git(&["rev-parse", "--git-path", name]).filter(|path| Path::new(path).exists());
        path.is_some_and(|path| {
            println!("cargo::rerun-if-changed={path}");
            true
        })
    };
    if !watch("logs/HEAD") {
        let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
        watch("HEAD");
        watch("packed-refs");
        if let Some(branch) = branch {
            watch(&branch);
        }
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}
