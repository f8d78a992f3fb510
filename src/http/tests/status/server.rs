//! Version, flags, configuration and runtime.

use crate::http::tests::{ask, ready};

#[tokio::test]
async fn status_endpoints_describe_the_server() {
    let router = ready(&[
        "--query.timeout=90s",
        "--storage.retention.time=360h",
        "--storage.url=s3://key:secret@bucket/x",
    ]);
    let data =
        |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap()["data"].clone();
    let build = data(&ask(&router, "GET", "/api/v1/status/buildinfo").await.text);
    assert!(build["version"].as_str().unwrap().ends_with(env!("CARGO_PKG_VERSION")));
    assert!(build.get("features").is_none());
    let flags = data(&ask(&router, "GET", "/api/v1/status/flags").await.text);
    assert_eq!(flags["query.timeout"], "1m30s");
    assert_eq!(flags["storage.url"], "s3://bucket/x");
    let config = data(&ask(&router, "GET", "/api/v1/status/config").await.text);
    assert_eq!(config["yaml"], "global:\n  evaluation_interval: 1m\n");
    let runtime = data(&ask(&router, "GET", "/api/v1/status/runtimeinfo").await.text);
    assert_eq!(runtime["storageRetention"], "15d");
    assert_eq!(runtime["reloadConfigSuccess"], true);
    let day = &runtime["startTime"].as_str().unwrap()[..8];
    assert!(runtime["lastConfigTime"].as_str().unwrap().starts_with(day), "{runtime}");
}
