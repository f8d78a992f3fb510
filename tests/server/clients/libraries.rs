//! Libraries of other languages, each in a script next to this file.

use std::path::Path;
use std::process::Command;

use super::{Receiver, folder};

/// Runs a script to its end; it fails where the library reports an error.
fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

/// Runs the script of OpenTelemetry's SDK with an exporter, and checks what is stored, by the names
/// that this exporter gives it.
fn check_opentelemetry(exporter: &str, path: &str, queries: &[(&str, f64)]) {
    let name = format!("opentelemetry-{exporter}");
    let Some((receiver, python)) = Receiver::start(&name, "OPENTELEMETRY_PYTHON") else { return };
    let script = folder().join("write_opentelemetry.py");
    run(Command::new(python).arg(script).arg(exporter).arg(receiver.url(path)));
    for (query, expected) in queries {
        receiver.wait_for(query, *expected);
    }
    receiver.check_nothing_rejected();
}

#[test]
fn the_python_sdk_loses_nothing_over_otlp() {
    check_opentelemetry(
        "otlp",
        "/api/v1/otlp/v1/metrics",
        &[
            ("count(orders_total)", 24.0),
            ("sum(orders_total)", 300.0),
            // A leading underscore gets a prefix, as in Prometheus.
            (r#"count(orders_total{zone="z",app="a",http_method="GET",key_x="1"})"#, 24.0),
            ("sum(queue_length)", 7.0),
            ("sum(temperature_celsius)", 21.5),
            ("sum(latency_seconds_count)", 4.0),
            (r#"sum(latency_seconds_bucket{le="+Inf"})"#, 4.0),
            (r#"count(target_info{job="shop/cart",telemetry_sdk_language="python"})"#, 1.0),
        ],
    );
}

#[test]
fn the_python_sdk_loses_nothing_over_remote_write() {
    check_opentelemetry(
        "remote_write",
        "/api/v1/write",
        &[
            ("count(orders)", 24.0),
            ("sum(orders)", 300.0),
            (
                r#"count(orders{zone="z",app="a",http_method="GET",_x="1",service_name="cart"})"#,
                24.0,
            ),
            ("sum(queue_length)", 7.0),
            ("sum(temperature_Cel)", 21.5),
            ("sum(latency_s_count)", 4.0),
            (r#"sum(latency_s{le!=""}) + sum(latency_s{le=""})"#, 4.0),
        ],
    );
}

#[test]
fn the_npm_client_loses_nothing() {
    let variable = "NPM_REMOTE_WRITE";
    let Some((receiver, package)) = Receiver::start("npm-remote-write", variable) else { return };
    let script = folder().join("write_npm.cjs");
    run(Command::new("node").arg(script).arg(&package).arg(receiver.url("/api/v1/write")));
    assert!(Path::new(&package).is_dir());
    for (query, expected) in [
        (r#"sum(queue_depth{service="worker",Zone="z"})"#, 100.0),
        (r#"sum(jobs_total{service="worker",Zone="z"})"#, 23.0),
        (r#"count_over_time(orders_total{instance="dev",service="SQS",app="a"}[1h])"#, 3.0),
        (r#"sum_over_time(orders_total{instance="dev",service="SQS",app="a"}[1h])"#, 6.0),
    ] {
        receiver.wait_for(query, expected);
    }
    receiver.check_nothing_rejected();
}
