//! Lifecycle, and the flags that enable it.

use crate::http::tests::{ask, check, error, ready};

#[tokio::test]
async fn lifecycle_and_admin_endpoints_follow_their_flags() {
    let disabled = "Lifecycle API is not enabled.";
    let cases: &[(&str, u16, &str)] = &[
        ("POST /-/quit", 403, disabled),
        ("POST /-/promote", 403, disabled),
        ("PUT /-/reload", 403, disabled),
        ("GET /-/quit", 405, "Only POST or PUT requests allowed"),
        ("POST /api/v1/admin/tsdb/snapshot", 500, &error("unavailable", "admin APIs disabled")),
    ];
    check(&ready(&[]), cases).await;
    let cases: &[(&str, u16, &str)] = &[
        ("POST /-/reload", 200, ""),
        ("POST /-/promote", 409, "this server is not a standby (--mode=standby)\n"),
        ("POST /-/quit", 200, "Requesting termination... Goodbye!"),
        ("POST /-/quit", 200, "Termination already in progress."),
        // The tests have a source without a store.
        (
            "PUT /api/v1/admin/tsdb/delete_series",
            503,
            &error("unavailable", "the store is not open yet"),
        ),
    ];
    check(&ready(&["--web.enable-lifecycle", "--web.enable-admin-api"]), cases).await;
    let missing = ready(&["--web.enable-lifecycle", "--config.file=/nowhere/tessella.yml"]);
    let answer = ask(&missing, "POST", "/-/reload").await;
    assert_eq!(answer.status, 500);
    assert!(answer.text.starts_with("failed to reload config: cannot read"), "{}", answer.text);
}
