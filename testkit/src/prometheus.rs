//! A Prometheus of a test.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::{Child, free_port, get, spawn_listening};

/// Starts a Prometheus that takes remote write, also of old samples, and waits until it is ready. The
/// configuration and the data are in the folder. Its address comes back.
pub fn start(binary: &str, folder: &Path) -> (Child, String) {
    let address = format!("127.0.0.1:{}", free_port());
    let config = folder.join("prometheus.yml");
    std::fs::write(&config, "storage: {tsdb: {out_of_order_time_window: 30d}}\n")
        .expect("the configuration can be written");
    let mut command = Command::new(binary);
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()))
        .arg(format!("--web.listen-address={address}"))
        .args(["--web.enable-remote-write-receiver", "--web.enable-admin-api"])
        .arg("--storage.tsdb.retention.time=100y");
    let child = spawn_listening(&mut command, &address);
    for _ in 0..1200 {
        if get(&address, "/-/ready").0 == 200 {
            return (child, address);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("Prometheus is not ready after 60 s");
}
