//! Output of a plan: text, or JSON for programs.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use super::ReshardPlanArgs;
use super::layout::Change;
use super::plan::{Plan, PlannedTarget, Total, share};
use crate::time::format_rfc3339;
use crate::tools::inspect::aligned;
use crate::units::{format_duration, millis, quoted};

/// Returns the plan for programs, with all targets.
pub(super) fn to_json(args: &ReshardPlanArgs, change: &Change, plan: &Plan) -> Value {
    let total = |total: &Total| {
        json!({
            "targets": total.targets,
            "series": total.amount.series,
            "samples": total.amount.samples,
        })
    };
    let flow = |(&(from, to), sum): (&(usize, usize), &Total)| {
        let mut flow = total(sum);
        (flow["from"], flow["to"]) = (json!(from), json!(to));
        flow
    };
    let target = |target: &PlannedTarget| {
        let pairs = args.labels.iter().cloned().zip(target.values.iter().map(|value| json!(value)));
        json!({
            "labels": pairs.collect::<serde_json::Map<_, _>>(),
            "series": target.amount.series,
            "samples": target.amount.samples,
            "from": target.from,
            "to": target.to,
        })
    };
    let slots = change.after.slots().map(|slots| {
        let shard = |shard| json!({"ranges": slots.text(shard), "regex": slots.regex(shard)});
        (0..slots.shard_count()).map(shard).collect::<Vec<_>>()
    });
    json!({
        "timeMs": args.time_ms(),
        "rangeMs": millis(args.range),
        "from": args.from,
        "to": args.to,
        "total": total(&plan.total),
        "moved": total(&plan.moved),
        "movedShare": plan.moved_share(),
        "flows": plan.flows.iter().map(flow).collect::<Vec<_>>(),
        "shards": plan.shards.iter().map(total).collect::<Vec<_>>(),
        "imbalance": plan.imbalance(),
        "misplaced": plan.misplaced,
        "seriesWithoutLabels": plan.series_without_labels,
        "slots": slots,
        "targets": plan.targets.iter().map(target).collect::<Vec<_>>(),
    })
}

/// Returns the plan as text.
pub(super) fn text(args: &ReshardPlanArgs, change: &Change, plan: &Plan) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_text(&mut out, args, change, plan);
    out
}

fn write_text(
    out: &mut String,
    args: &ReshardPlanArgs,
    change: &Change,
    plan: &Plan,
) -> std::fmt::Result {
    let time_ms = u64::try_from(args.time_ms()).unwrap_or(0);
    let (total, moved) = (&plan.total, &plan.moved);
    writeln!(
        out,
        "{} targets with {} series, and {} samples in {} up to {}",
        total.targets,
        total.amount.series,
        total.amount.samples,
        format_duration(args.range),
        format_rfc3339(UNIX_EPOCH + Duration::from_millis(time_ms)),
    )?;
    writeln!(
        out,
        "{} targets with {} series move ({:.1} %)",
        moved.targets,
        moved.amount.series,
        100.0 * plan.moved_share()
    )?;
    if plan.series_without_labels > 0 {
        writeln!(
            out,
            "series without these labels: {} ({})",
            plan.series_without_labels,
            args.labels.join(", ")
        )?;
    }
    if let Some(count) = plan.misplaced.filter(|count| *count > 0) {
        writeln!(
            out,
            "{count} targets are on another shard than --algorithm and --label say: the sender \
             may use other labels, or targets have moved within --range"
        )?;
    }
    writeln!(out, "\n{}", aligned(&flow_rows(plan)))?;
    out.push_str(&aligned(&shard_rows(plan)));
    if args.top > 0 {
        writeln!(out, "\n{}", aligned(&target_rows(args, plan)).trim_end())?;
    }
    if let Some(slots) = change.after.slots() {
        writeln!(out, "\nregex of each new shard, for the action keep:")?;
        for shard in 0..slots.shard_count() {
            writeln!(out, "{shard}  {}", slots.regex(shard))?;
        }
        writeln!(out, "\nlayout, for the next change:")?;
        for shard in 0..slots.shard_count() {
            writeln!(out, "--slots={}", slots.text(shard))?;
        }
    }
    Ok(())
}

fn flow_rows(plan: &Plan) -> Vec<[String; 6]> {
    let header = ["from", "to", "targets", "series", "samples", ""].map(str::to_owned);
    let row = |(&(from, to), sum): (&(usize, usize), &Total)| {
        [
            from.to_string(),
            to.to_string(),
            sum.targets.to_string(),
            sum.amount.series.to_string(),
            sum.amount.samples.to_string(),
            if from == to { "stay" } else { "move" }.to_owned(),
        ]
    };
    std::iter::once(header).chain(plan.flows.iter().map(row)).collect()
}

fn shard_rows(plan: &Plan) -> Vec<[String; 5]> {
    let header = ["new shard", "targets", "series", "samples", "of the mean"].map(str::to_owned);
    let row = |(shard, sum): (usize, &Total)| {
        [
            shard.to_string(),
            sum.targets.to_string(),
            sum.amount.series.to_string(),
            sum.amount.samples.to_string(),
            format!("{:.2}", plan.of_mean(shard)),
        ]
    };
    std::iter::once(header).chain(plan.shards.iter().enumerate().map(row)).collect()
}

fn target_rows(args: &ReshardPlanArgs, plan: &Plan) -> Vec<[String; 6]> {
    let header = ["largest target", "series", "share", "from", "to", ""].map(str::to_owned);
    let row = |target: &PlannedTarget| {
        let pairs = args.labels.iter().zip(&target.values);
        let labels: Vec<String> =
            pairs.map(|(name, value)| format!("{name}={}", quoted(value))).collect();
        let series = target.amount.series;
        [
            labels.join(", "),
            series.to_string(),
            format!("{:.1} %", 100.0 * share(series, plan.total.amount.series)),
            target.from.to_string(),
            target.to.to_string(),
            if target.from == target.to { "stays" } else { "moves" }.to_owned(),
        ]
    };
    std::iter::once(header).chain(plan.targets.iter().take(args.top).map(row)).collect()
}
