//! Statistics of a query, and its explained plan.

use std::time::Duration;

use engine::plan::{Explained, Load, NodeCost, WindowCounts};
use engine::result::{QueryStats, StepStats};
use engine::steps::Steps;

use crate::number::{push_integer, push_number, push_timestamp, push_timestamp_short};
use crate::text::{push_text, push_texts};

/// Cost of a query, as in the API.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueryCost {
    /// Statistics of the engine.
    pub stats: QueryStats,
    /// Seconds in the queue.
    pub queue_seconds: f64,
    /// True to write sample counts per step in addition to their totals.
    pub is_per_step: bool,
}

/// Writes the statistics under Prometheus' names.
///
/// Only some of its phases exist here: evaluation is loading and computing, the inner part is
/// computing, and results need no sorting. Prometheus holds 16 bytes per sample, so the peak in
/// samples is the memory peak divided by 16. A sample counts at each step that sees it; if that is
/// unknown, decoded samples are counted. Only `stats=all` lists the steps. Reads of the object store
/// have no counterpart in Prometheus.
pub(crate) fn push_cost(out: &mut Vec<u8>, cost: &QueryCost, step_stats: Option<&StepStats>) {
    let stats = &cost.stats;
    let evaluate_seconds = stats.load_seconds + stats.execute_seconds;
    let timings = [
        ("evalTotalTime", evaluate_seconds),
        ("resultSortTime", 0.0),
        ("queryPreparationTime", stats.prepare_seconds),
        ("innerEvalTime", stats.execute_seconds),
        ("execQueueTime", cost.queue_seconds),
        ("execTotalTime", cost.queue_seconds + stats.prepare_seconds + evaluate_seconds),
    ];
    out.extend_from_slice(b",\"stats\":{\"timings\":{");
    for (position, (name, seconds)) in timings.into_iter().enumerate() {
        push_name(out, position, name);
        push_number(out, seconds);
    }
    out.extend_from_slice(b"},\"samples\":{");
    let totals = [
        ("totalQueryableSamples", step_stats.map(|steps| &steps.counts)),
        ("samplesRead", step_stats.map(|steps| &steps.read_counts)),
    ];
    for (position, (name, counts)) in totals.into_iter().enumerate() {
        let mut position = position;
        if cost.is_per_step
            && let Some((per_step, counts)) = step_stats.zip(counts)
        {
            push_name(out, position, &format!("{name}PerStep"));
            push_steps(out, &per_step.steps, counts);
            position = 1;
        }
        let total = counts.map_or(stats.sample_count, |counts| counts.iter().sum());
        push_name(out, position, name);
        push_integer(out, total);
    }
    push_name(out, 1, "peakSamples");
    push_integer(out, stats.memory_bytes_peak / 16);
    out.extend_from_slice(b"},\"storage\":{");
    let storage = [
        ("reads", stats.object_store.reads),
        ("readBytes", stats.object_store.read_bytes),
        ("cachedBytes", stats.object_store.cached_bytes),
    ];
    for (position, (name, count)) in storage.into_iter().enumerate() {
        push_name(out, position, name);
        push_integer(out, count);
    }
    out.extend_from_slice(b"}}");
}

/// Writes a count for each step.
fn push_steps(out: &mut Vec<u8>, steps: &Steps, counts: &[u64]) {
    out.push(b'[');
    for (step_index, count) in counts.iter().enumerate() {
        out.extend_from_slice(if step_index == 0 { &b"["[..] } else { &b",["[..] });
        push_timestamp_short(out, steps.time(step_index));
        out.push(b',');
        push_integer(out, *count);
        out.push(b']');
    }
    out.push(b']');
}

/// Writes a node of the plan with its children: the number of its series, and its seconds with and
/// without children. A node that loads series has its matchers, time range in seconds, and volume.
pub(crate) fn push_explained(out: &mut Vec<u8>, explained: &Explained) {
    out.extend_from_slice(b"{\"node\":");
    push_text(out, explained.node);
    if let Some(load) = &explained.load {
        push_load(out, load);
    } else if !explained.detail.is_empty() {
        out.extend_from_slice(b",\"detail\":");
        push_text(out, &explained.detail);
    }
    if let Some(cost) = &explained.cost {
        push_node_cost(out, cost, explained.whole());
    }
    for (position, child) in explained.children.iter().enumerate() {
        let opening: &[u8] = if position == 0 { b",\"children\":[" } else { b"," };
        out.extend_from_slice(opening);
        push_explained(out, child);
    }
    if !explained.children.is_empty() {
        out.push(b']');
    }
    out.push(b'}');
}

fn push_load(out: &mut Vec<u8>, load: &Load) {
    out.extend_from_slice(b",\"selector\":");
    push_integer(out, load.selector as u64);
    out.extend_from_slice(b",\"matchers\":");
    push_texts(out, &load.matchers);
    out.extend_from_slice(b",\"start\":");
    push_timestamp(out, load.start_ms);
    out.extend_from_slice(b",\"end\":");
    push_timestamp(out, load.end_ms);
    let Some(figures) = load.figures else { return };
    let read = figures.cost.object_store;
    let named = [
        ("samples", figures.samples),
        ("samplesDecoded", figures.decoded),
        ("bytes", figures.bytes),
        ("reads", read.reads),
        ("readBytes", read.read_bytes),
        ("cachedBytes", read.cached_bytes),
    ];
    for (name, figure) in named {
        // Each of them follows another field.
        push_name(out, 1, name);
        push_integer(out, figure);
    }
    if let Some(WindowCounts { all, summarized }) = figures.windows {
        for (name, figure) in [("windows", all), ("windowsSummarized", summarized)] {
            push_name(out, 1, name);
            push_integer(out, figure);
        }
    }
}

fn push_node_cost(out: &mut Vec<u8>, cost: &NodeCost, whole: Duration) {
    if let Some(series) = cost.series {
        push_name(out, 1, "series");
        push_integer(out, series);
    }
    for (name, time) in [("seconds", whole), ("ownSeconds", cost.own)] {
        push_name(out, 1, name);
        push_number(out, time.as_secs_f64());
    }
}

fn push_name(out: &mut Vec<u8>, position: usize, name: &str) {
    if position > 0 {
        out.push(b',');
    }
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}
