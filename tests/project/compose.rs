//! The set-up in containers: its files are checked against the binary, against each other, and
//! against the rules of compose files. No container is started.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value};
use testkit::s3::{ACCESS_KEY, S3Server, SECRET_KEY};
use testkit::{Server, get, temporary_directory};

/// Keys of a service that the schema of compose files knows, as far as they are used here.
const SERVICE_KEYS: [&str; 14] = [
    "build",
    "command",
    "depends_on",
    "entrypoint",
    "environment",
    "healthcheck",
    "image",
    "networks",
    "pid",
    "ports",
    "restart",
    "stop_grace_period",
    "user",
    "volumes",
];
const HEALTHCHECK_KEYS: [&str; 5] = ["interval", "retries", "start_period", "test", "timeout"];

pub fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

pub fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap()
}

pub fn yaml(name: &str) -> Value {
    serde_saphyr::from_str(&text(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub fn strings(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().map(|item| item.as_str().unwrap()).collect()
}

fn services(compose: &Value) -> &Map<String, Value> {
    compose["services"].as_object().unwrap()
}

/// The value of `--name=value` among arguments.
pub fn flag<'a>(arguments: &[&'a str], name: &str) -> Option<&'a str> {
    arguments.iter().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='))
}

fn keys_are_known(object: &Value, known: &[&str], of: &str) {
    let unknown: Vec<_> = object
        .as_object()
        .unwrap()
        .keys()
        .filter(|key| !known.contains(&key.as_str()) && !key.starts_with("x-"))
        .collect();
    assert!(unknown.is_empty(), "{of}: {unknown:?}");
}

fn is_duration(value: &Value) -> bool {
    let seconds = value.as_str().and_then(|text| text.strip_suffix('s'));
    seconds.is_some_and(|seconds| seconds.parse::<u32>().is_ok())
}

/// Returns whether an image has a version.
fn is_pinned(image: &str) -> bool {
    let version = image.rsplit_once(':').map(|(_, tag)| tag.trim_start_matches('v'));
    version.is_some_and(|v| {
        v.split('.').count() == 3 && v.split('.').all(|n| n.parse::<u32>().is_ok())
    })
}

/// A compose file.
pub struct Compose {
    content: Value,
    /// Folder that paths of volumes are relative to.
    folder: PathBuf,
}

impl Compose {
    pub fn read(name: &str) -> Compose {
        Compose { content: yaml(name), folder: path(name).parent().unwrap().to_owned() }
    }

    pub fn services(&self) -> &Map<String, Value> {
        services(&self.content)
    }

    pub fn keeps_the_rules(&self) {
        keys_are_known(&self.content, &["name", "services", "volumes"], "the file");
        let services = self.services();
        let mut used = BTreeSet::new();
        for (name, service) in services {
            keys_are_known(service, &SERVICE_KEYS, name);
            assert!(is_pinned(service["image"].as_str().unwrap()), "{name}");
            assert!(strings(&service["command"]).len() < 20, "{name}");
            for (other, dependency) in service["depends_on"].as_object().into_iter().flatten() {
                assert!(services.contains_key(other) && other != name, "{name} depends on {other}");
                match dependency["condition"].as_str().unwrap() {
                    "service_healthy" => {
                        assert!(services[other]["healthcheck"].is_object(), "{other}");
                    }
                    condition => assert_eq!(condition, "service_started", "{name}"),
                }
            }
            if let Some(check) = service.get("healthcheck") {
                keys_are_known(check, &HEALTHCHECK_KEYS, name);
                assert_eq!(strings(&check["test"])[0], "CMD", "{name}");
                assert!(
                    is_duration(&check["interval"]) && is_duration(&check["timeout"]),
                    "{name}"
                );
            }
            for volume in strings(&service["volumes"]) {
                let source = volume.split(':').next().unwrap();
                let target = volume.split(':').nth(1).unwrap();
                assert!(target.starts_with('/'), "{volume}");
                match source.starts_with(['.', '/']) {
                    true => assert!(self.folder.join(source).exists(), "{volume}"),
                    false => assert!(used.insert(source), "{volume} is another's"),
                }
            }
            for port in strings(&service["ports"]) {
                assert!(port.starts_with("127.0.0.1:"), "{port} is open to all");
            }
        }
        let declared: BTreeSet<&str> =
            self.content["volumes"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(declared, used);
        self.starts_after_what_it_needs();
    }

    fn starts_after_what_it_needs(&self) {
        let services = self.services();
        let mut begun: BTreeSet<&str> = BTreeSet::new();
        while begun.len() < services.len() {
            let before = begun.len();
            for (name, service) in services {
                let mut needed = service["depends_on"].as_object().into_iter().flat_map(Map::keys);
                if needed.all(|other| begun.contains(other.as_str())) {
                    begun.insert(name);
                }
            }
            assert!(begun.len() > before, "a circle outside of {begun:?}");
        }
    }
}

#[test]
fn services_keep_the_rules_of_compose_files() {
    Compose::read("docker-compose.yml").keeps_the_rules();
}

fn flags_are_known(arguments: &[&str]) {
    let help = Command::new(env!("CARGO_BIN_EXE_tessella")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for argument in arguments {
        let name = argument.split('=').next().unwrap();
        let is_known = help.lines().any(|line| {
            line.trim_start().strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '[']))
        });
        assert!(is_known, "{argument}");
    }
}

#[test]
fn the_server_takes_the_flags_that_it_is_given() {
    let compose = yaml("docker-compose.yml");
    let service = &services(&compose)["tessella"];
    let arguments = strings(&service["command"]);
    flags_are_known(&arguments);
    let store = &services(&compose)["versitygw"];
    let start = strings(&store["command"])[0];
    let bucket = flag(&arguments, "--storage.url").unwrap().strip_prefix("s3://").unwrap();
    assert!(start.contains(&format!("/{bucket} ")), "{start}");
    let endpoint = flag(&arguments, "--storage.s3.endpoint").unwrap();
    let port = endpoint.strip_prefix("http://versitygw:").unwrap();
    assert!(start.contains(&format!("--port :{port} ")), "{start}");
    let check = strings(&store["healthcheck"]["test"]).join(" ");
    assert!(check.ends_with(&format!(":{port}/health")) && start.contains("--health /health "));
    assert!(flag(&arguments, "--storage.retention.time").is_some(), "the bucket grows for ever");
    let cache = flag(&arguments, "--storage.disk-cache.folder").unwrap();
    let volumes = strings(&service["volumes"]);
    assert!(volumes.iter().any(|volume| volume.ends_with(&format!(":{cache}"))), "{volumes:?}");
    for (key, other) in
        [("AWS_ACCESS_KEY_ID", "ROOT_ACCESS_KEY"), ("AWS_SECRET_ACCESS_KEY", "ROOT_SECRET_KEY")]
    {
        assert!(service["environment"][key].is_string());
        assert_eq!(service["environment"][key], store["environment"][other]);
    }
    let listen = flag(&arguments, "--web.listen-address").unwrap();
    let port = listen.strip_prefix("0.0.0.0:").unwrap();
    assert_eq!(strings(&service["ports"]), [format!("127.0.0.1:{port}:{port}")]);
    assert_eq!(port, "9090", "the healthcheck asks its default");
}

#[test]
fn the_server_starts_with_them_on_an_object_store() {
    let Some(store) = S3Server::versitygw("compose") else { return };
    let compose = yaml("docker-compose.yml");
    let service = &services(&compose)["tessella"];
    let folder = temporary_directory("compose-cache");
    let cache = format!("--storage.disk-cache.folder={}", folder.path().display());
    let endpoint = format!("--storage.s3.endpoint={}", store.endpoint());
    let arguments = strings(&service["command"]);
    // Paths of the test replace those of a container.
    let own = ["--web.listen-address", "--storage.url", "--storage.s3.endpoint"];
    let is_own = |argument: &&str| {
        own.iter().any(|name| argument.starts_with(name))
            || argument.starts_with("--storage.disk-cache.folder")
    };
    let mut given: Vec<&str> = arguments.iter().copied().filter(|a| !is_own(a)).collect();
    assert_eq!(given.len() + 4, arguments.len());
    given.extend([endpoint.as_str(), cache.as_str()]);
    let names: Vec<&String> = service["environment"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]);
    let variables = [(names[0].as_str(), ACCESS_KEY), (names[1].as_str(), SECRET_KEY)];
    let server = Server::start_on(flag(&arguments, "--storage.url").unwrap(), &given, &variables);
    assert_eq!(get(&server.address, "/-/ready").0, 200);
}

#[test]
fn grafana_finds_its_provisioning() {
    let compose = yaml("docker-compose.yml");
    let service = &services(&compose)["grafana"];
    assert_eq!(service["environment"]["TESSELLA_URL"], "http://tessella:9090");
    assert!(
        text("grafana/provisioning/datasources/tessella.yaml").contains("url: $TESSELLA_URL\n")
    );
    let provider = yaml("grafana/provisioning/dashboards/tessella.yaml");
    let dashboards = provider["providers"][0]["options"]["path"].as_str().unwrap();
    let volumes = strings(&service["volumes"]);
    let mounts = [
        "./grafana/provisioning:/etc/grafana/provisioning:ro".to_owned(),
        format!("./grafana/dashboards:{dashboards}:ro"),
    ];
    for mount in &mounts {
        assert!(volumes.contains(&mount.as_str()), "{mount}");
    }
}

#[test]
fn prometheus_scrapes_and_sends_to_services_that_are_there() {
    let compose = yaml("docker-compose.yml");
    let services = services(&compose);
    let service = &services["prometheus"];
    let arguments = strings(&service["command"]);
    assert!(arguments.contains(&"--agent"));
    let file = flag(&arguments, "--config.file").unwrap();
    let folder = flag(&arguments, "--storage.agent.path").unwrap();
    let volumes = strings(&service["volumes"]);
    assert!(volumes.contains(&format!("./compose/prometheus.yml:{file}:ro").as_str()));
    assert!(volumes.iter().any(|volume| volume.ends_with(&format!(":{folder}"))));

    let config = yaml("compose/prometheus.yml");
    let ports = [("tessella", "9090"), ("node_exporter", "9100"), ("localhost", "9090")];
    for job in config["scrape_configs"].as_array().unwrap() {
        for target in strings(&job["static_configs"][0]["targets"]) {
            let (host, port) = target.split_once(':').unwrap();
            assert!(ports.contains(&(host, port)), "{target}");
            assert!(host == "localhost" || services.contains_key(host), "{target}");
        }
    }
    let url = config["remote_write"][0]["url"].as_str().unwrap();
    let path = url.strip_prefix("http://tessella:9090").unwrap();
    let directory = temporary_directory("compose-write");
    let server = Server::start(directory.path(), &["--self-metrics=false"]);
    assert_eq!(get(&server.address, path).0, 405, "{path} is there, for POST alone");
}

/// `tests/operations/agent.rs` runs the first one, and looks at what arrives.
#[test]
fn all_agents_send_alike() {
    let configs = [
        "compose/prometheus.yml",
        "compose/prometheus-secure.yml",
        "compose/scale-out/agent-0.yml",
        "compose/scale-out/agent-1.yml",
    ];
    for name in configs {
        let config = yaml(name);
        assert_eq!(config["global"], yaml(configs[0])["global"], "{name}");
        assert_eq!(config["global"]["scrape_native_histograms"], true);
        let mut sending = config["remote_write"][0].clone();
        for own in ["url", "tls_config", "basic_auth"] {
            sending.as_object_mut().unwrap().remove(own);
        }
        let expected = serde_json::json!({"send_exemplars": true, "send_native_histograms": true});
        assert_eq!(sending, expected, "{name}");
        assert_eq!(config["remote_write"].as_array().unwrap().len(), 1);
    }
}

/// The overlay that makes the set-up secure.
const SECURE: &str = "compose/secure.yml";

/// Returns the parts of a value that another value does not have.
fn difference(value: &Value, other: &Value) -> Value {
    match (value, other) {
        (Value::Object(value), Value::Object(other)) => {
            let rest = value.iter().map(|(key, value)| {
                (
                    key.clone(),
                    other.get(key).map_or(value.clone(), |other| difference(value, other)),
                )
            });
            let rest: Map<_, _> = rest.filter(|(_, value)| !value.is_null()).collect();
            if rest.is_empty() { Value::Null } else { Value::Object(rest) }
        }
        (Value::Array(value), Value::Array(other)) if value.len() == other.len() => {
            let rest: Vec<_> = value.iter().zip(other).map(|(v, o)| difference(v, o)).collect();
            if rest.iter().all(Value::is_null) { Value::Null } else { Value::Array(rest) }
        }
        (value, other) if value == other => Value::Null,
        (value, _) => value.clone(),
    }
}

#[test]
fn the_secure_setup_adds_only_security() {
    let (plain, secure) = (yaml("docker-compose.yml"), yaml(SECURE));
    let (plain, secure) = (services(&plain), services(&secure));
    for (name, service) in secure {
        keys_are_known(service, &[&SERVICE_KEYS[..], &["env_file"]].concat(), name);
        assert!(plain.contains_key(name), "{name}");
        for volume in strings(&service["volumes"]) {
            let source = volume.split(':').next().unwrap();
            let is_made = source.starts_with("./compose/secrets");
            assert!(volume.ends_with(":ro") && (is_made || path(source).is_file()), "{volume}");
        }
    }
    let arguments = strings(&secure["tessella"]["command"]);
    let (last, others) = arguments.split_last().unwrap();
    assert_eq!(others, strings(&plain["tessella"]["command"]));
    assert_eq!(*last, "--web.config.file=/etc/tessella/web.yml");
    flags_are_known(&[*last]);

    let (plain, secure) = (yaml("compose/prometheus.yml"), yaml("compose/prometheus-secure.yml"));
    let tls = serde_json::json!({"ca_file": "/etc/tessella/ca.crt"});
    let user = |name: &str| {
        serde_json::json!({
            "username": name, "password_file": format!("/etc/tessella/{name}.password")
        })
    };
    let expected = serde_json::json!({
        "scrape_configs": [
            {"scheme": "https", "tls_config": tls, "basic_auth": user("monitor")}, {}, {}
        ],
        "remote_write": [{
            "url": "https://tessella:9090/api/v1/write",
            "tls_config": tls,
            "basic_auth": user("agent")
        }]
    });
    assert_eq!(difference(&difference(&secure, &plain), &expected), Value::Null);

    let plain = yaml("grafana/provisioning/datasources/tessella.yaml");
    let secure = yaml("compose/grafana-secure.yaml");
    let expected = serde_json::json!({"datasources": [{
        "basicAuth": true,
        "basicAuthUser": "grafana",
        "jsonData": {"tlsAuthWithCACert": true},
        "secureJsonData": {
            "basicAuthPassword": "$GRAFANA_PASSWORD", "tlsCACert": "$__file{/etc/tessella/ca.crt}"
        }
    }]});
    assert_eq!(difference(&secure, &plain), expected);
    assert_eq!(difference(&plain, &secure), Value::Null);
}

/// A password and its hash, as `htpasswd` makes it.
const PASSWORD: &str = "made for a test";

#[test]
fn secrets_are_made_and_the_server_is_well_with_them() {
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("SKIPPED: there is no openssl, so no secrets are made for containers");
        return;
    }
    let folder = temporary_directory("compose-secrets");
    // A process started meanwhile by another test may hold a file that this one writes open, and
    // Linux executes no file that is open for writing: another process writes the executables.
    let install = |from: &Path, name: &str| {
        let to = folder.path().join(name);
        let mut command = Command::new("install");
        assert!(command.args(["-m", "755"]).arg(from).arg(&to).status().unwrap().success());
        to
    };
    let tools = folder.path().join("tools");
    std::fs::create_dir(&tools).unwrap();
    // A script replaces htpasswd, which few machines have; it hashes the only password.
    let hash = bcrypt::hash(PASSWORD, 4).unwrap();
    let stand_in = format!("#!/bin/sh\ncat >/dev/null\necho \"$3\":'{hash}'\necho\n");
    let written = folder.path().join("htpasswd");
    std::fs::write(&written, stand_in).unwrap();
    install(&written, "tools/htpasswd");
    let script = install(&path("compose/make-secrets"), "make-secrets");
    let search = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    for message in ["is ready", "already exists"] {
        let output = Command::new(&script).env("PATH", &search).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains(message), "{output:?}");
    }
    let secrets = folder.path().join("secrets");
    std::fs::write(secrets.join("monitor.password"), PASSWORD).unwrap();

    let here = |flag: &str| flag.replace("/etc/tessella", &secrets.display().to_string());
    let compose = yaml(SECURE);
    let service = &services(&compose)["tessella"];
    let config = here(strings(&service["command"]).last().unwrap());
    let store = folder.path().join("data");
    let mut child = Command::new(env!("CARGO_BIN_EXE_tessella"))
        .args(["--web.listen-address=127.0.0.1:0", "--self-metrics=false", &config])
        .arg(format!("--storage.url={}", store.display()))
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = std::io::BufReader::new(child.stderr.take().unwrap());
    let _child = testkit::Child(child);
    let mut lines = String::new();
    while !lines.contains("server is ready") {
        assert!(std::io::BufRead::read_line(&mut log, &mut lines).unwrap() > 0, "{lines}");
    }
    let address = lines.split("address=").nth(1).unwrap().split_whitespace().next().unwrap();
    let check = strings(&service["healthcheck"]["test"]);
    assert_eq!(check[..3], ["CMD", "/usr/bin/tessella", "healthcheck"]);
    let mut asking = Command::new(env!("CARGO_BIN_EXE_tessella"));
    asking.arg("healthcheck").args(check[3..].iter().map(|flag| here(flag)));
    let output = asking.args(["--web.listen-address", address]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn promtool_finds_no_fault_with_prometheus_configuration() {
    let Some(promtool) = std::env::var_os("PROMTOOL_BINARY") else {
        eprintln!(
            "SKIPPED: PROMTOOL_BINARY is not set, so Prometheus' configuration is not checked"
        );
        return;
    };
    for (file, flag) in
        [("compose/prometheus.yml", None), ("compose/prometheus-secure.yml", Some("--syntax-only"))]
    {
        let output = Command::new(&promtool)
            .args(["check", "config", "--agent"])
            .args(flag)
            .arg(path(file))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn the_image_copies_existing_files() {
    let file = text("Dockerfile");
    let line = |start: &str| -> &str {
        file.lines().rev().find_map(|line| line.strip_prefix(start)).unwrap()
    };
    let list = |start: &str| -> Vec<String> {
        let (_, list) = line(start).split_once('[').unwrap();
        serde_json::from_str(&format!("[{list}")).unwrap()
    };
    let manifest = text("Cargo.toml");
    let version = |key: &str| {
        let line = manifest.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.trim_matches([' ', '=', '"']).to_owned()
    };
    assert!(file.contains(&format!("\nFROM rust:{}-", version("rust-version"))));
    let image = services(&yaml("docker-compose.yml"))["tessella"]["image"].clone();
    assert_eq!(image, format!("tessella:{}", version("version")));
    assert_ne!(line("USER ").split(':').next(), Some("0"));

    let binary = list("ENTRYPOINT ").remove(0);
    assert!(file.contains(&format!("COPY --from=build /tessella {binary}\n")));
    let check = list("HEALTHCHECK ");
    assert_eq!(check, [binary.as_str(), "healthcheck"]);
    let compose = yaml("docker-compose.yml");
    let test = &services(&compose)["tessella"]["healthcheck"]["test"];
    assert_eq!(strings(test)[1..], check);

    let arguments = list("CMD ");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    flags_are_known(&arguments);
    let folder = flag(&arguments, "--storage.url").unwrap();
    assert!(
        file.contains(&format!("mkdir -p /folders{folder} ")),
        "{folder} is created for no service"
    );
    let listen = flag(&arguments, "--web.listen-address").unwrap();
    assert_eq!(listen, "0.0.0.0:9090", "the healthcheck asks its default");
}
