//! Endpoints under `--web.route-prefix`, and redirects.

use super::{ask, check, ready, router, shared_with};

const NOT_FOUND: &str = "404 page not found\n";

#[tokio::test]
async fn every_endpoint_is_under_the_prefix() {
    let router = ready(&["--web.route-prefix=/deep/er/"]);
    let cases = [
        ("/deep/er/-/healthy", 200, "Tessella is Healthy.\n"),
        ("/deep/er/-/ready", 200, "Tessella is Ready.\n"),
        (
            "/deep/er/api/v1/label/job/values",
            200,
            r#"{"status":"success","data":["a","a\u003cb","b"]}"#,
        ),
        ("OPTIONS /deep/er/api/v1/query", 204, ""),
        ("/-/healthy", 404, NOT_FOUND),
        ("/api/v1/labels", 404, NOT_FOUND),
        ("/deep/-/healthy", 404, NOT_FOUND),
        ("/deep/error/-/healthy", 404, NOT_FOUND),
        ("/deep/er/nothing", 404, NOT_FOUND),
        ("POST /", 405, "Method Not Allowed\n"),
    ];
    check(&router, &cases).await;
    for path in ["/deep/er/", "/deep/er/query?g0.expr=up", "/deep/er/status"] {
        let page = ask(&router, "GET", path).await;
        assert!(page.text.starts_with("<!doctype html>"), "{path}: {}", page.text);
        // Relative, so that it works on all pages.
        assert!(page.text.contains("src=\"ui/main.js\""), "{}", page.text);
    }
    for path in ["/deep/er/ui/main.js", "/deep/er/favicon.svg"] {
        assert_eq!(ask(&router, "GET", path).await.status, 200, "{path}");
    }
    let metrics = ask(&router, "GET", "/deep/er/metrics").await.text;
    assert!(metrics.contains("handler=\"/-/healthy\""), "{metrics}");
}

#[tokio::test]
async fn browsers_are_led_to_the_page() {
    let external = "--web.external-url=https://example.com/metrics/";
    let cases: &[(&[&str], &str, u16, &str)] = &[
        (&["--web.route-prefix=a"], "/", 302, "/a"),
        (&["--web.route-prefix=a"], "/a", 301, "/a/"),
        (&[external], "/", 302, "/metrics"),
        (&[external], "/metrics", 301, "/metrics/"),
        (&[external], "/metrics/", 302, "/metrics/query"),
        // A proxy that strips the path.
        (&[external, "--web.route-prefix=/"], "/", 302, "/metrics/query"),
        (&[external, "--web.route-prefix=/b"], "/b/", 302, "/metrics/query"),
    ];
    for (args, path, status, location) in cases {
        let answer = ask(&ready(args), "GET", path).await;
        assert_eq!(answer.status, *status, "{args:?} {path}");
        assert_eq!(answer.headers["location"], *location, "{args:?} {path}");
    }
    let stripped = ready(&[external, "--web.route-prefix=/"]);
    assert_eq!(ask(&stripped, "GET", "/-/ready").await.status, 200);
    assert_eq!(ask(&stripped, "GET", "/query").await.status, 200);
}

#[tokio::test]
async fn the_prefix_holds_before_the_store_is_open() {
    let starting = router(shared_with(&["--web.route-prefix=/a"]));
    let cases = [
        ("/a/-/ready", 503, "Service Unavailable"),
        ("/a/-/healthy", 200, "Tessella is Healthy.\n"),
    ];
    check(&starting, &cases).await;
}

#[tokio::test]
async fn the_description_names_the_address() {
    for (args, servers) in [
        (&[][..], None),
        (&["--web.route-prefix=/a"][..], Some("/a")),
        (
            &["--web.external-url=https://example.com/m/", "--web.route-prefix=/"][..],
            Some("https://example.com/m"),
        ),
    ] {
        let router = ready(args);
        let prefix = if args.len() == 1 { "/a" } else { "" };
        let answer = ask(&router, "GET", &format!("{prefix}/api/v1/openapi.yaml")).await;
        let description: serde_json::Value = serde_saphyr::from_str(&answer.text).unwrap();
        assert_eq!(description["servers"][0]["url"].as_str(), servers, "{args:?}");
    }
}

#[tokio::test]
async fn the_page_has_the_title_of_the_server() {
    let page = ask(&ready(&["--web.page-title=R&D"]), "GET", "/query").await;
    assert!(page.text.contains("<title>R&amp;D</title>"), "{}", page.text);
    let default = ask(&ready(&[]), "GET", "/query").await;
    assert!(default.text.contains("<title>Tessella</title>"), "{}", default.text);
    assert_ne!(page.headers["etag"], default.headers["etag"]);
}
