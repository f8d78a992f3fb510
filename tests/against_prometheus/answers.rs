//! Comparison of two responses.

use serde_json::Value;

/// Compares status and JSON, numbers to nine places. Ignores what is undefined in Prometheus: the
/// order of the series of an instant vector and of annotations, and which two of several series an
/// error names.
pub fn same_answer(expected: &(u16, String), found: &(u16, String)) -> Result<(), String> {
    if expected.0 != found.0 {
        return Err(format!("status {} against {}: {}", expected.0, found.0, found.1));
    }
    let parse = |text: &str| serde_json::from_str::<Value>(text).map_err(|e| e.to_string());
    let (mut expected, mut found) = (parse(&expected.1)?, parse(&found.1)?);
    for answer in [&mut expected, &mut found] {
        if answer["data"]["resultType"] == "vector"
            && let Some(result) = answer["data"]["result"].as_array_mut()
        {
            result.sort_by_key(|series| series["metric"].to_string());
        }
        let error = answer["error"].as_str().and_then(|text| text.split_once(": ["));
        if let Some(error) = error.map(|(text, _)| Value::from(text)) {
            answer["error"] = error;
        }
        for kind in ["warnings", "infos"] {
            if let Some(lines) = answer[kind].as_array_mut() {
                lines.sort_by_key(Value::to_string);
            }
        }
    }
    same_value(&expected, &found, "$")
}

fn same_value(expected: &Value, found: &Value, path: &str) -> Result<(), String> {
    let differ = || Err(format!("at {path}: expected {expected}, found {found}"));
    match (expected, found) {
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                same_value(a, b, &format!("{path}[{at}]"))?;
            }
            Ok(())
        }
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            for (key, a) in a {
                same_value(a, &b[key], &format!("{path}.{key}"))?;
            }
            Ok(())
        }
        (Value::String(a), Value::String(b)) => match (a.parse::<f64>(), b.parse::<f64>()) {
            (Ok(x), Ok(y)) if x == y || (x.is_nan() && y.is_nan()) => Ok(()),
            (Ok(x), Ok(y)) if (x - y).abs() <= 1e-9 * x.abs().max(y.abs()) => Ok(()),
            _ if a == b => Ok(()),
            _ => differ(),
        },
        _ if expected == found => Ok(()),
        _ => differ(),
    }
}
