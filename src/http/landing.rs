//! The page that a browser sees first.

use axum::response::Html;

/// `/`.
pub(super) async fn page() -> Html<&'static str> {
    Html(concat!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
        "<title>Tessella</title>\n<style>",
        ":root{color-scheme:light dark}",
        "body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:3rem auto;padding:0 1rem}",
        "code{font-family:ui-monospace,monospace}li{margin:.3rem 0}",
        "</style>\n</head>\n<body>\n<h1>Tessella ",
        env!("CARGO_PKG_VERSION"),
        "</h1>\n<p>A Prometheus-compatible time series engine on object storage.</p>\n",
        "<h2>Ask it</h2>\n<ul>\n",
        "<li><a href=\"/api/v1/query?query=tessella_build_info\">",
        "<code>tessella_build_info</code></a></li>\n",
        "<li><a href=\"/api/v1/query?query=sum%20by%20(handler)%20(rate(",
        "tessella_http_requests_total%5B5m%5D))\">",
        "<code>sum by (handler) (rate(tessella_http_requests_total[5m]))</code></a></li>\n",
        "<li><a href=\"/api/v1/labels\">Names of labels</a>, ",
        "<a href=\"/api/v1/label/__name__/values\">names of metrics</a></li>\n</ul>\n",
        "<h2>Feed it</h2>\n<p>In the configuration of a Prometheus:</p>\n",
        "<pre><code>remote_write:\n",
        "- url: http://<i>address of this page</i>/api/v1/write</code></pre>\n",
        "<h2>Look after it</h2>\n<ul>\n",
        "<li><a href=\"/metrics\">Its own metrics</a></li>\n",
        "<li><a href=\"/-/ready\">Whether it is ready</a>, ",
        "<a href=\"/-/healthy\">whether it is healthy</a></li>\n",
        "<li><a href=\"/api/v1/status/flags\">Its flags</a>, ",
        "<a href=\"/api/v1/status/config\">its configuration</a>, ",
        "<a href=\"/api/v1/status/buildinfo\">its version</a></li>\n</ul>\n</body>\n</html>\n",
    ))
}
