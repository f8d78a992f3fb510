//! Labels, values and series.

use crate::http::tests::{check, error, ready};

#[tokio::test]
async fn lookups_answer_with_sorted_lists() {
    let ok = |data: &str| format!(r#"{{"status":"success","data":{data}}}"#);
    let cut = |data: &str| {
        format!(
            r#"{{"status":"success","data":{data},"warnings":["results truncated due to limit"]}}"#
        )
    };
    let up = r#"{"__name__":"up","job":"a"},{"__name__":"up","job":"b"}"#;
    let empty = r#"match[] must contain at least one non-empty matcher"#;
    let cases: &[(&str, u16, &str)] = &[
        ("/api/v1/labels", 200, &ok(r#"["__name__","a.b","job"]"#)),
        ("/api/v1/labels?match[]=late", 200, &ok(r#"["__name__","a.b"]"#)),
        ("/api/v1/labels?start=0&end=2", 200, &ok(r#"["__name__","job"]"#)),
        ("/api/v1/labels?limit=1", 200, &cut(r#"["__name__"]"#)),
        ("/api/v1/labels?limit=3", 200, &ok(r#"["__name__","a.b","job"]"#)),
        ("/api/v1/labels?match[]={}", 400, &error("bad_data", empty)),
        ("/api/v1/label/job/values", 200, &ok(r#"["a","a\u003cb","b"]"#)),
        ("/api/v1/label/job/values?match[]=up&match[]=late", 200, &ok(r#"["a","b"]"#)),
        ("/api/v1/label/U__a_2e_b/values", 200, &ok(r#"["x"]"#)),
        ("/api/v1/label/none/values", 200, &ok("[]")),
        ("/api/v1/label/a%ff/values", 400, &error("bad_data", r#"invalid label name: \"a\\xff\""#)),
        ("/api/v1/series?match[]=up", 200, &ok(&format!("[{up}]"))),
        ("/api/v1/series?match[]=down", 200, &ok(r#"[{"__name__":"down","job":"a<b"}]"#)),
        ("/api/v1/series?match[]=up&limit=1", 200, &cut(r#"[{"__name__":"up","job":"a"}]"#)),
        ("/api/v1/series?match[]=none", 200, &ok("[]")),
        ("/api/v1/series", 400, &error("bad_data", "no match[] parameter provided")),
        (
            "/api/v1/series?match[]={}",
            400,
            &error("bad_data", &format!(r#"invalid parameter \"match[]\": {empty}"#)),
        ),
        (
            "/api/v1/series?match[]=%zz",
            400,
            &error("bad_data", r#"error parsing form values: invalid URL escape \"%zz\""#),
        ),
        ("/api/v1/metadata", 200, &ok("{}")),
        ("/api/v1/metadata?limit=x", 400, &error("bad_data", "limit must be a number")),
    ];
    // Clients escape braces and quotes.
    let cases: Vec<(String, u16, &str)> = cases
        .iter()
        .map(|(path, status, body)| (path.replace("{}", "%7B%7D"), *status, *body))
        .collect();
    let cases: Vec<_> =
        cases.iter().map(|(path, status, body)| (&path[..], *status, *body)).collect();
    check(&ready(&[]), &cases).await;
}
