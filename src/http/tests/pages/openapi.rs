//! The description of the API matches the router.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use serde_json::Value;
use storage::{Store, StoreOptions};

use crate::http::pages::ui::PAGES;
use crate::http::tests::{ask, router, shared_with};

async fn ready() -> Router {
    let options = StoreOptions { background: false, ..StoreOptions::default() };
    let store = Store::open("memory:///", options).await.unwrap();
    let shared = shared_with(&[]);
    shared.set_store(&Arc::new(store));
    router(shared)
}

/// Endpoints of the table in `docs/http-api.md`, with their choices in braces.
fn documented() -> Vec<String> {
    let page = include_str!("../../../../docs/http-api.md");
    let rows = page.lines().filter(|line| line.starts_with("| `/"));
    let first_cells = rows.filter_map(|row| row.split('|').nth(1));
    let texts = first_cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let texts = texts.filter(|text| !PAGES.contains(text) && !text.starts_with("/docs"));
    texts.flat_map(choices).map(|path| path.replace('<', "{").replace('>', "}")).collect()
}

/// `a{b,c}` is `ab` and `ac`.
fn choices(text: &str) -> Vec<String> {
    let Some((before, rest)) = text.split_once('{') else { return vec![text.to_owned()] };
    let (inner, after) = rest.split_once('}').unwrap();
    inner.split(',').map(|choice| format!("{before}{choice}{after}")).collect()
}

fn description() -> Value {
    serde_saphyr::from_str(include_str!("../../pages/openapi.yaml")).unwrap()
}

#[test]
fn every_endpoint_is_described() {
    let paths = description()["paths"].clone();
    let documented = documented();
    assert!(documented.len() > 40, "{documented:?}");
    for path in documented {
        assert!(paths.get(&path).is_some(), "{path} is not described");
    }
}

#[tokio::test]
async fn what_is_described_is_there() {
    let router = ready().await;
    let paths: BTreeMap<String, Value> =
        serde_json::from_value(description()["paths"].clone()).unwrap();
    for (path, methods) in paths {
        let asked = path.replace("{name}", "job").replace("{id}", "1");
        for method in methods.as_object().unwrap().keys().filter(|key| *key != "parameters") {
            let answer = ask(&router, &method.to_uppercase(), &asked).await;
            assert_ne!(answer.status, 405, "{method} {path}");
            assert!(!answer.text.contains("404 page not found"), "{method} {path}");
        }
    }
}

#[test]
fn references_lead_somewhere() {
    let description = description();
    let mut left = vec![&description];
    let mut count = 0;
    while let Some(value) = left.pop() {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(reference)) = fields.get("$ref") {
                    let pointer_path = reference.strip_prefix('#').unwrap();
                    assert!(description.pointer(pointer_path).is_some(), "{reference}");
                    count += 1;
                }
                left.extend(fields.values());
            }
            Value::Array(items) => left.extend(items),
            _ => {}
        }
    }
    assert!(count > 50, "{count}");
}

#[tokio::test]
async fn the_version_is_chosen() {
    let router = ready().await;
    for (query, version) in [("", "3.1.0"), ("?openapi_version=3.2", "3.2.0")] {
        let answer = ask(&router, "GET", &format!("/api/v1/openapi.yaml{query}")).await;
        assert!(answer.text.starts_with(&format!("openapi: {version}\ninfo:")), "{}", answer.text);
    }
}
