//! Profiles of the real binary under load, read by prost, by `promtool debug` (named by
//! `PROMTOOL_BINARY`) and by `go tool pprof`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use testkit::pprof::Profile;
use testkit::{Server, get, get_bytes, temporary_directory};

/// Maximum number of profiles without samples before a test fails.
const TRIES_MAX: usize = 100;
/// A part of the names of functions that compute queries.
const ENGINE: &str = "engine::";

/// Calls a function while a thread sends queries.
fn under_load<T>(server: &Server, work: impl FnOnce() -> T) -> T {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let query = "sort(label_replace(sum_over_time(vector(1)[50000s:1s]),'a','b','','.*'))";
            let path = format!("/api/v1/query?nocache=1&query={}", testkit::percent_encode(query));
            while !is_done.load(Ordering::Relaxed) {
                let (status, body) = get(&server.address, &path);
                assert_eq!(status, 200, "{body}");
            }
        });
        // Also after a panic; otherwise the scope never ends.
        let _stop = Stop(&is_done);
        work()
    })
}

/// Asks for a profile until it has a function of the engine.
fn profile_with_engine(server: &Server, path: &str) -> Profile {
    for _ in 0..TRIES_MAX {
        let (status, body) = get_bytes(&server.address, path);
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        let profile = Profile::unpack(&body);
        if profile.has_function(ENGINE) {
            return profile;
        }
    }
    panic!("{path} names no function of the engine");
}

#[test]
fn profiles_name_functions_of_the_server() {
    let folder = temporary_directory("profiles");
    let server = Server::start(&folder.path().join("data"), &["--self-metrics=false"]);
    under_load(&server, || {
        let cpu = profile_with_engine(&server, "/debug/pprof/profile?seconds=2");
        assert!(cpu.sum(1, ENGINE) >= 10_000_000);
        // Stacks lead to the start of the thread.
        assert!(cpu.sum(0, "std::thread") > 0, "{:?}", cpu.string_table);
        let heap = profile_with_engine(&server, "/debug/pprof/allocs");
        assert!(heap.sum(1, ENGINE) > 0);
        for sample in &heap.sample {
            let stack = heap.stack(sample);
            assert!(
                !stack[0].contains("HeapSampler") && !stack[0].contains("__rust_alloc"),
                "{stack:?}"
            );
        }
    });
}

/// The files of an archive as `promtool debug` writes it: names of up to 100 bytes, sizes in octal.
fn files_of(archive: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(archive).unwrap();
    flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    let text = |field: &[u8]| {
        let text = String::from_utf8(field.to_vec()).unwrap();
        text.trim_end_matches(['\0', ' ']).to_owned()
    };
    let mut files = BTreeMap::new();
    let mut rest = &bytes[..];
    while rest.first().is_some_and(|first| *first != 0) {
        let size = usize::from_str_radix(&text(&rest[124..136]), 8).unwrap();
        files.insert(text(&rest[..100]), rest[512..512 + size].to_vec());
        rest = &rest[512 + size.next_multiple_of(512)..];
    }
    files
}

/// Serves the GET requests to a server, with CPU profiles of 2 seconds instead of 30, which
/// `promtool debug` always asks for; returns the address.
fn serve_with_short_profiles(server: &Server) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, server) = (listener.local_addr().unwrap().to_string(), server.address.clone());
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut head = String::new();
            let mut lines = BufReader::new(&client);
            while !head.ends_with("\r\n\r\n") && lines.read_line(&mut head).unwrap() > 0 {}
            let path = head.split(' ').nth(1).unwrap().replace("seconds=30", "seconds=2");
            let (status, body) = get_bytes(&server, &path);
            let head = format!(
                "HTTP/1.1 {status} -\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            client.write_all(&[head.as_bytes(), &body].concat()).unwrap();
        }
    });
    address
}

#[test]
fn promtool_collects_all_it_asks_for() {
    let Some(promtool) = std::env::var_os("PROMTOOL_BINARY") else {
        eprintln!("SKIPPED: PROMTOOL_BINARY is not set, so `promtool debug` is not run");
        return;
    };
    let folder = temporary_directory("promtool-debug");
    let server = Server::start(&folder.path().join("data"), &["--self-metrics=false"]);
    let url = format!("http://{}", serve_with_short_profiles(&server));
    let collect = |what: &str| {
        let mut command = Command::new(&promtool);
        let output =
            command.args(["debug", what, &url]).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        files_of(&folder.path().join("debug.tar.gz"))
    };
    let files = under_load(&server, || collect("all"));
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    let profiles = ["block.pb", "cpu.pb", "goroutine.pb", "heap.pb"];
    let others = ["metrics.txt", "mutex.pb", "threadcreate.pb", "trace.pb"];
    assert_eq!(names, [profiles, others].concat());
    let cpu = Profile::read(&files["cpu.pb"]);
    assert!(cpu.sum(1, ENGINE) > 0, "{:?}", cpu.string_table);
    let heap = Profile::read(&files["heap.pb"]);
    assert_eq!(heap.types().last().unwrap(), "inuse_space/bytes");
    for name in ["block.pb", "goroutine.pb", "mutex.pb", "threadcreate.pb"] {
        assert!(Profile::read(&files[name]).sample.is_empty());
    }
    let metrics = collect("metrics");
    assert!(String::from_utf8_lossy(&metrics["metrics.txt"]).contains("tessella_build_info"));
}

#[test]
fn go_tool_pprof_shows_functions() {
    let is_there =
        |args: &[&str]| Command::new("go").args(args).output().is_ok_and(|o| o.status.success());
    if !is_there(&["version"]) {
        eprintln!("SKIPPED: there is no go, so `go tool pprof` is not run");
        return;
    }
    let folder = temporary_directory("go-pprof");
    let server = Server::start(&folder.path().join("data"), &["--self-metrics=false"]);
    let top = |name: &str, sample: &str| {
        let url = format!("http://{}/debug/pprof/{name}", server.address);
        let output = Command::new("go")
            .args([
                "tool",
                "pprof",
                "-top",
                "-cum",
                "-nodefraction=0",
                "-nodecount=100000",
                sample,
                &url,
            ])
            .env("PPROF_TMPDIR", folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        // Types in angle brackets stay in the names.
        assert!(!text.contains(" ::"), "{text}");
        text
    };
    under_load(&server, || {
        for (name, sample) in
            [("profile?seconds=2", "-sample_index=cpu"), ("allocs", "-sample_index=alloc_space")]
        {
            let found =
                (0..TRIES_MAX).map(|_| top(name, sample)).find(|text| text.contains(ENGINE));
            assert!(found.is_some(), "{name}");
        }
    });
}
