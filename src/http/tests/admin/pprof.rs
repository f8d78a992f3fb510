//! `/debug/pprof/…`: names, parameters, errors.

use axum::body::Body;
use axum::http::Request;
use tower::ServiceExt as _;

use crate::http::tests::{ask, ready};
use crate::profile::heap;
use crate::profile::tests::TIMER;
use testkit::pprof::Profile;

async fn profile(path: &str) -> Profile {
    let request = Request::get(path).header("accept-encoding", "gzip").body(Body::empty());
    let response = ready(&[]).oneshot(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap());
    assert_eq!(header("content-type"), Some("application/octet-stream"));
    // It is compressed once, by the profile itself.
    assert_eq!(header("content-encoding"), None);
    assert!(header("content-disposition").unwrap().starts_with("attachment; filename="));
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    Profile::unpack(&body)
}

#[tokio::test]
async fn heap_and_allocs_differ_in_what_is_shown_first() {
    heap::start();
    for (path, shown) in [("heap?gc=1", "inuse_space"), ("allocs?debug=0", "alloc_space")] {
        let read = profile(&format!("/debug/pprof/{path}")).await;
        let types = [
            "alloc_objects/count",
            "alloc_space/bytes",
            "inuse_objects/count",
            "inuse_space/bytes",
        ];
        assert_eq!(read.types(), types);
        assert_eq!(read.text(read.default_sample_type), shown);
        assert_eq!(read.period, 512 << 10);
    }
}

#[tokio::test]
async fn what_there_is_none_of_is_a_profile_without_samples() {
    for name in ["block", "goroutine", "mutex", "threadcreate"] {
        let read = profile(&format!("/debug/pprof/{name}")).await;
        assert!(read.sample.is_empty());
        assert_eq!(read.comments(), [format!("there is no profile {name:?} of this server")]);
    }
}

#[tokio::test]
async fn refusals_are_shown_by_pprof() {
    let router = ready(&[]);
    for (path, status, message) in [
        ("profile?seconds=301", 400, "\"seconds\" is 301, the maximum is 300"),
        ("heap?seconds=1", 400, "\"seconds\" parameter is not supported for this profile type"),
        ("block?seconds=1", 400, "\"seconds\" parameter is not supported for this profile type"),
        ("heap?debug=1", 400, "\"debug\" parameter is not supported: profiles have no text format"),
        ("trace?seconds=30", 501, "there are no execution traces of this server"),
        ("nothing", 404, "Unknown profile"),
    ] {
        let answer = ask(&router, "GET", &format!("/debug/pprof/{path}")).await;
        assert_eq!((answer.status.as_u16(), answer.text), (status, format!("{message}\n")));
        assert_eq!(answer.headers["x-go-pprof"], "1");
        assert!(answer.headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    }
}

#[tokio::test]
async fn one_cpu_profile_is_taken_at_a_time_and_ends_with_its_client() {
    let _alone = TIMER.lock().await;
    let router = ready(&[]);
    for _ in 0..2 {
        let mut running = Box::pin(ask(&router, "GET", "/debug/pprof/profile?seconds=300"));
        assert!(futures::poll!(&mut running).is_pending());
        let second = ask(&router, "POST", "/debug/pprof/profile?seconds=1").await;
        let message = "Could not enable CPU profiling: cpu profiling already in use\n";
        assert_eq!((second.status.as_u16(), &second.text[..]), (500, message));
        // The client disconnects, and the next one gets the timer.
        drop(running);
    }
    let read = profile("/debug/pprof/profile?seconds=1").await;
    assert_eq!(read.types(), ["samples/count", "cpu/nanoseconds"]);
    assert!(read.duration_nanos >= 1_000_000_000);
}
