//! A Prometheus of a test.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::{Child, free_port, get};

/// Time between two questions whether it is ready.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Starts a Prometheus that takes remote write, also of old samples. Waits until it is ready, as
/// long as its process runs. Configuration, data and log are in the folder. Returns its address, too.
pub fn start(binary: &str, folder: &Path) -> (Child, String) {
    let address = format!("127.0.0.1:{}", free_port());
    let (config, log) = (folder.join("prometheus.yml"), folder.join("prometheus.log"));
    std::fs::write(&config, "storage: {tsdb: {out_of_order_time_window: 30d}}\n")
        .expect("the configuration can be written");
    let child = Command::new(binary)
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()))
        .arg(format!("--web.listen-address={address}"))
        .args(["--web.enable-remote-write-receiver", "--web.enable-admin-api"])
        .arg("--storage.tsdb.retention.time=100y")
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log).expect("the log can be written"))
        .spawn();
    let mut child = Child(child.expect("Prometheus can be started"));
    while get(&address, "/-/ready").0 != 200 {
        if let Some(status) = child.0.try_wait().expect("Prometheus can be waited for") {
            panic!("{status}: {}", std::fs::read_to_string(&log).unwrap_or_default());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    (child, address)
}
