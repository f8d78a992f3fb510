//! Rows of the catalog against what the functions do.

use futures::executor::block_on;
use model::memory::MemorySource;
use model::{Histogram, Labels};

use super::*;
use crate::catalog::{
    self, Function, FunctionId, Histograms, Names, RangeModes, RollupFunction, ValueType,
};
use crate::result::SampleValue;

/// A float series `floats` and a series of native histograms `histograms`, a sample a minute.
fn source() -> Arc<MemorySource> {
    let mut source = MemorySource::new();
    let histogram = Arc::new(Histogram {
        count: 2.0,
        sum: 3.0,
        zero_threshold: 0.5,
        zero_count: 2.0,
        ..Histogram::default()
    });
    let series = |name| Labels::from_pairs([("__name__", name), ("job", "a")]);
    for minute in 0..=10 {
        source.append(&series("floats"), minute * 60_000, minute as f64);
        let histogram = Arc::clone(&histogram);
        source.append_histogram(&series("histograms"), minute * 60_000, histogram, 0);
    }
    Arc::new(source)
}

/// A call on a metric, with as few other arguments as possible.
fn call(function: &Function, metric: &str, modifier: &str) -> String {
    let is_optional = function.variadic != 0 && function.args.len() > 1;
    let count = function.args.len() - usize::from(is_optional);
    let argument = |value_type: &ValueType| match value_type {
        ValueType::Scalar => "0.5".to_owned(),
        ValueType::String => "\"new\"".to_owned(),
        ValueType::Vector => metric.to_owned(),
        ValueType::Matrix => format!("{metric}[5m]{modifier}"),
    };
    let args: Vec<String> = function.args[..count].iter().map(argument).collect();
    format!("{}({})", function.name, args.join(", "))
}

fn answer(query: &str) -> Result<Vec<(Labels, SampleValue)>, QueryError> {
    let engine = Engine::new(EngineOptions { threads: 1, ..EngineOptions::default() });
    let output = block_on(engine.instant(source(), query, 600_000, &QueryOptions::default()))?;
    match output.value {
        Value::Vector { samples, .. } => Ok(samples),
        other => panic!("{query}: {other:?}"),
    }
}

/// Functions that give a vector for series.
fn functions_of_series() -> impl Iterator<Item = &'static Function> {
    let is_series = |arg: &ValueType| matches!(arg, ValueType::Vector | ValueType::Matrix);
    catalog::all()
        .iter()
        .filter(move |f| f.returns == ValueType::Vector && f.args.iter().any(is_series))
}

#[test]
fn names_become_what_the_catalog_says() {
    let mut count = 0;
    for function in functions_of_series() {
        let query = call(function, "floats", "");
        for (labels, _) in answer(&query).unwrap() {
            let is_kept = labels.metric_name() == "floats";
            assert_eq!(is_kept, function.names == Names::Kept, "{query}: {labels}");
            count += 1;
        }
    }
    assert!(count > 60, "{count}");
}

#[test]
fn histograms_become_what_the_catalog_says() {
    for function in functions_of_series() {
        let query = call(function, "histograms", "");
        let samples = answer(&query).unwrap();
        let are_histograms =
            |(_, value): &(_, SampleValue)| matches!(value, SampleValue::Histogram(_));
        match function.histograms {
            Histograms::Dropped => assert!(samples.is_empty(), "{query}: {samples:?}"),
            Histograms::Kept => {
                assert!(!samples.is_empty() && samples.iter().all(are_histograms), "{query}");
            }
            Histograms::Compared
            | Histograms::Counted
            | Histograms::Summarized
            | Histograms::Answered
            | Histograms::Buckets => {
                let is_absent = matches!(
                    function.id,
                    FunctionId::Absent | FunctionId::Rollup(RollupFunction::Absent)
                );
                assert_eq!(samples.is_empty(), is_absent, "{query}");
                assert!(!samples.iter().any(are_histograms), "{query}");
            }
        }
    }
}

#[test]
fn ranges_take_the_modifiers_that_the_catalog_says() {
    for function in catalog::all().iter().filter(|f| f.args.contains(&ValueType::Matrix)) {
        for (modifier, least) in
            [(" anchored", RangeModes::Anchored), (" smoothed", RangeModes::AnchoredOrSmoothed)]
        {
            let query = call(function, "floats", modifier);
            assert_eq!(answer(&query).is_ok(), function.modes >= least, "{query}");
        }
    }
}
