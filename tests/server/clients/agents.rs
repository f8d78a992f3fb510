//! Agents: vmagent, which scrapes an endpoint of the test, and Telegraf, which reads a file of it.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Receiver, orders};
use testkit::Child;

/// Scrapes that are answered with samples. Later ones are refused.
const SCRAPES: usize = 5;

/// Answers [`SCRAPES`] requests with the metrics that `page` returns for their numbers, from 1 on,
/// and all later ones with 503. Returns the address.
fn serve_metrics(page: impl Fn(usize) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for number in 1.. {
            let Ok((stream, _)) = listener.accept() else { return };
            let (status, body) = match number {
                ..=SCRAPES => ("200 OK", page(number)),
                _ => ("503 Service Unavailable", String::new()),
            };
            // A client that disconnects retries.
            let _ = answer(stream, status, &body);
        }
    });
    address
}

fn answer(stream: TcpStream, status: &str, body: &str) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    reader.get_mut().write_all(&[head.as_bytes(), body.as_bytes()].concat())
}

/// Series with their labels in all orders, which no two of them share.
fn series() -> Vec<String> {
    let labels = [("zone", "z"), ("app", "a"), ("Method", "GET"), ("_x", "1"), ("empty", "")];
    let series = orders(&labels).into_iter().enumerate().map(|(number, labels)| {
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        format!("orders{{{},number=\"{number}\"}}", labels.join(","))
    });
    series.collect()
}

#[test]
fn vmagent_with_default_flags_loses_nothing() {
    let Some((receiver, vmagent)) = Receiver::start("vmagent", "VMAGENT_BINARY") else { return };
    let address = serve_metrics(|number| {
        let mut page = String::new();
        for series in series() {
            writeln!(page, "{series} {number}").unwrap();
        }
        page
    });
    let config = receiver.path("scrape.yml");
    let scrape = format!(
        "scrape_configs:\n- job_name: shop\n  scrape_interval: 1s\n  static_configs:\n  \
         - targets: [\"{address}\"]\n    labels: {{zzz: last, AAA: first}}\n"
    );
    std::fs::write(&config, scrape).unwrap();
    let child = Command::new(vmagent)
        .arg(format!("-promscrape.config={}", config.display()))
        .arg(format!("-remoteWrite.url={}", receiver.url("/api/v1/write")))
        .arg(format!("-remoteWrite.tmpDataPath={}", receiver.path("queue").display()))
        .arg("-httpListenAddr=127.0.0.1:0")
        .stdin(Stdio::null())
        .spawn();
    let mut vmagent = Child(child.unwrap());
    let labels =
        r#"job="shop",zzz="last",AAA="first",app="a",zone="z",Method="GET",_x="1",empty="""#;
    let count = series().len() as f64;
    // Each series has a sample of each scrape, which is its number.
    for (function, expected) in
        [("count", SCRAPES), ("sum", SCRAPES * (SCRAPES + 1) / 2), ("max", SCRAPES)]
    {
        let query = format!("count({function}_over_time(orders{{{labels}}}[1h]) == {expected})");
        receiver.wait_for(&query, count);
    }
    // The agent's series about its scrapes have unsorted labels, too.
    receiver.wait_for(
        &format!("sum_over_time(scrape_samples_scraped{{job=\"shop\"}}[1h]) >= bool {SCRAPES}"),
        1.0,
    );
    let killed = Command::new("kill").arg(vmagent.0.id().to_string()).status().unwrap();
    assert!(killed.success() && vmagent.0.wait().unwrap().success());
    receiver.check_nothing_rejected();
}

#[test]
fn telegraf_loses_nothing() {
    let Some((receiver, telegraf)) = Receiver::start("telegraf", "TELEGRAF_BINARY") else { return };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let labels = [("zone", "z"), ("app", "a"), ("Method", "GET"), ("_x", "1")];
    let orders = orders(&labels);
    let mut lines = String::new();
    for (number, labels) in orders.iter().enumerate() {
        let tags: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let time = (now - 60 + number as u64) * 1_000_000_000;
        writeln!(lines, "shop,{},number={number} orders=1,items=2i {time}", tags.join(","))
            .unwrap();
    }
    let (input, config) = (receiver.path("metrics.influx"), receiver.path("telegraf.conf"));
    std::fs::write(&input, lines).unwrap();
    let url = receiver.url("/api/v1/write");
    // The headers are those that Telegraf's documentation gives for this format.
    let text = format!(
        "[[inputs.file]]\nfiles = [{input:?}]\ndata_format = \"influx\"\n\
         [[outputs.http]]\nurl = \"{url}\"\ndata_format = \"prometheusremotewrite\"\n\
         [outputs.http.headers]\nContent-Type = \"application/x-protobuf\"\n\
         Content-Encoding = \"snappy\"\nX-Prometheus-Remote-Write-Version = \"0.1.0\"\n"
    );
    std::fs::write(&config, text).unwrap();
    let output =
        Command::new(telegraf).arg("--config").arg(&config).arg("--once").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let count = orders.len() as f64;
    for (metric, value) in [("shop_orders", 1), ("shop_items", 2)] {
        let labels = r#"{zone="z",app="a",Method="GET",_x="1",host!=""}"#;
        let query = format!("count(sum_over_time({metric}{labels}[1h]) == {value})");
        receiver.wait_for(&query, count);
    }
    receiver.check_nothing_rejected();
}
