//! Matching compared with a naive twin that evaluates step by step.

use std::collections::{BTreeMap, BTreeSet};

use model::{Budget, BudgetLimits, Labels};
use proptest::prelude::*;

use super::*;
use crate::exec::matrix::{Matrix, materialize};
use crate::exec::operator::{SeriesMeta, without_schema};
use crate::parse::ast::{Cardinality, Expr, ExprKind};
use crate::tile::{TileShape, is_present, set_present};

/// A series: labels, whether its name is dropped, and an optional value per step.
type Series = (Labels, bool, Vec<Option<f64>>);

/// Result of a step: value by labels.
type Step = BTreeMap<Labels, f64>;

fn context(shape: (usize, usize), delayed: bool) -> Context {
    let shape = TileShape { series: shape.0, steps: shape.1 };
    Context::new(Budget::unlimited(), shape, delayed)
}

fn operator(ctx: &Context, steps: Steps, series: &[Series]) -> Box<dyn VectorOperator> {
    let metas = series
        .iter()
        .map(|(labels, drop_name, _)| SeriesMeta { labels: labels.clone(), drop_name: *drop_name })
        .collect();
    let mut matrix = Matrix::new(ctx, metas, steps).unwrap();
    for (index, (_, _, samples)) in series.iter().enumerate() {
        let (values, presence) = matrix.row_mut(index);
        for (step, sample) in samples.iter().enumerate() {
            if let Some(value) = sample {
                values[step] = *value;
                set_present(presence, step);
            }
        }
    }
    Box::new(matrix)
}

fn binary(op: BinaryOp, is_bool: bool, matching: Matching) -> Binary {
    let operand =
        || Box::new(Expr { kind: ExprKind::String(String::new()), span: Span::default() });
    Binary { op, lhs: operand(), rhs: operand(), is_bool, matching: Some(matching) }
}

/// Evaluates with the engine; returns the result of each step.
fn answer(
    ctx: &Context,
    steps: Steps,
    binary: &Binary,
    lhs: &[Series],
    rhs: &[Series],
) -> Result<Vec<Step>, String> {
    let operand = |series| Operand::Vector(operator(ctx, steps, series));
    let result = evaluate(ctx, steps, binary, Span::default(), operand(lhs), operand(rhs))
        .map_err(|error| error.to_string())?;
    let Operand::Vector(result) = result else { panic!("two vectors give a vector") };
    let matrix = materialize(ctx, &*result).map_err(|error| error.to_string())?;
    let mut answer = vec![Step::new(); steps.count];
    for (index, meta) in matrix.series().iter().enumerate() {
        let (values, presence) = matrix.row(index);
        for (step, answer) in answer.iter_mut().enumerate() {
            if is_present(presence, step) {
                assert_eq!(answer.insert(meta.labels.clone(), values[step]), None);
            }
        }
    }
    Ok(answer)
}

/// Naive twin, after Prometheus' documentation and its loops.
struct Twin<'a> {
    binary: &'a Binary,
    matching: &'a Matching,
    delayed: bool,
}

impl Twin<'_> {
    fn answer(&self, count: usize, lhs: &[Series], rhs: &[Series]) -> Result<Vec<Step>, String> {
        let at = |series: &[Series], step: usize| -> Vec<(Labels, f64)> {
            series.iter().filter_map(|s| s.2[step].map(|value| (s.0.clone(), value))).collect()
        };
        (0..count).map(|step| self.step(&at(lhs, step), &at(rhs, step))).collect()
    }

    fn step(&self, lhs: &[(Labels, f64)], rhs: &[(Labels, f64)]) -> Result<Step, String> {
        let mut out = Step::new();
        let mut add = |labels: Labels, value: f64| match out.insert(labels, value) {
            None => Ok(()),
            Some(_) => Err("vector cannot contain metrics with the same labelset".to_owned()),
        };
        match self.binary.op {
            BinaryOp::And | BinaryOp::Unless | BinaryOp::Or => {
                let groups = |side: &[(Labels, f64)]| -> BTreeSet<Labels> {
                    side.iter().map(|(labels, _)| self.group(labels)).collect()
                };
                let (left, right) = (groups(lhs), groups(rhs));
                for (labels, value) in lhs {
                    let is_matched = right.contains(&self.group(labels));
                    if self.binary.op == BinaryOp::Or
                        || is_matched == (self.binary.op == BinaryOp::And)
                    {
                        add(labels.clone(), *value)?;
                    }
                }
                for (labels, value) in rhs {
                    if self.binary.op == BinaryOp::Or && !left.contains(&self.group(labels)) {
                        add(labels.clone(), *value)?;
                    }
                }
            }
            _ => {
                for (labels, value) in self.pairs(lhs, rhs)? {
                    add(labels, value)?;
                }
            }
        }
        Ok(out)
    }

    fn group(&self, labels: &Labels) -> Labels {
        labels.filtered(|name| {
            let listed = self.matching.labels.iter().any(|label| label == name);
            if self.matching.is_on { listed } else { !listed && name != "__name__" }
        })
    }

    fn pairs(
        &self,
        lhs: &[(Labels, f64)],
        rhs: &[(Labels, f64)],
    ) -> Result<Vec<(Labels, f64)>, String> {
        let fills = self.matching.fill_left.is_some() || self.matching.fill_right.is_some();
        if (lhs.is_empty() && rhs.is_empty()) || ((lhs.is_empty() || rhs.is_empty()) && !fills) {
            return Ok(Vec::new());
        }
        let swapped = self.matching.cardinality == Cardinality::OneToMany;
        let (many, one) = if swapped { (rhs, lhs) } else { (lhs, rhs) };
        let mut by_group: BTreeMap<Labels, &(Labels, f64)> = BTreeMap::new();
        for sample in one {
            let group = self.group(&sample.0);
            if let Some(earlier) = by_group.insert(group.clone(), sample) {
                return Err(format!(
                    "found duplicate series for the match group {group} on the {} hand-side of \
                     the operation: [{}, {}];many-to-many matching not allowed: matching labels \
                     must be unique on one side",
                    if swapped { "left" } else { "right" },
                    sample.0.clone().min(earlier.0.clone()),
                    sample.0.clone().max(earlier.0.clone()),
                ));
            }
        }
        let mut met: BTreeMap<Labels, BTreeSet<Labels>> = BTreeMap::new();
        let mut out = Vec::new();
        for sample in many {
            let group = self.group(&sample.0);
            let filled = self.matching.fill_right.map(|value| (group.clone(), value));
            if let Some(partner) = by_group.get(&group).copied().or(filled.as_ref()) {
                self.pair(&group, sample, partner, &mut met, &mut out)?;
            }
        }
        if let Some(value) = self.matching.fill_left {
            for sample in one {
                let group = self.group(&sample.0);
                if !met.contains_key(&group) {
                    self.pair(&group, &(group.clone(), value), sample, &mut met, &mut out)?;
                }
            }
        }
        Ok(out)
    }

    fn pair(
        &self,
        group: &Labels,
        many: &(Labels, f64),
        one: &(Labels, f64),
        met: &mut BTreeMap<Labels, BTreeSet<Labels>>,
        out: &mut Vec<(Labels, f64)>,
    ) -> Result<(), String> {
        let swapped = self.matching.cardinality == Cardinality::OneToMany;
        let (left, right) = if swapped { (one.1, many.1) } else { (many.1, one.1) };
        let (value, keeps) = match self.binary.op {
            BinaryOp::Add => (left + right, true),
            BinaryOp::Lt => (left, left < right),
            _ => (left, left == right),
        };
        let labels = self.result(&many.0, &one.0);
        let met = met.entry(group.clone()).or_default();
        if self.matching.cardinality == Cardinality::OneToOne && !met.is_empty() {
            return Err("multiple matches for labels: many-to-one matching must be explicit \
                        (group_left/group_right)"
                .to_owned());
        }
        if !met.insert(labels.clone()) {
            return Err("multiple matches for labels: grouping labels must ensure unique matches"
                .to_owned());
        }
        if self.binary.is_bool {
            out.push((labels, f64::from(u8::from(keeps))));
        } else if keeps {
            out.push((labels, value));
        }
        Ok(())
    }

    fn result(&self, many: &Labels, one: &Labels) -> Labels {
        let drops = self.binary.op == BinaryOp::Add || (self.binary.is_bool && !self.delayed);
        let base = if drops { without_schema(many) } else { many.clone() };
        let mut builder = match (self.matching.cardinality, self.matching.is_on) {
            (Cardinality::OneToOne, true) => {
                base.filtered(|name| self.matching.labels.iter().any(|label| label == name))
            }
            (Cardinality::OneToOne, false) => {
                base.filtered(|name| !self.matching.labels.iter().any(|label| label == name))
            }
            _ => base,
        }
        .to_builder();
        for name in &self.matching.include {
            builder.set(name, one.get(name));
        }
        builder.build()
    }
}

const COUNT: usize = 70;

fn side() -> impl Strategy<Value = Vec<Series>> {
    let labels = prop::collection::btree_map(
        prop::sample::select(vec!["__name__", "a", "b", "c"]),
        prop::sample::select(vec!["1", "2"]),
        0..4,
    );
    // Long runs of presence, so that some steps are unambiguous and some are empty.
    let samples = prop::collection::vec((prop::bool::weighted(0.4), 0usize..30, 0i8..3), 1..8);
    let samples = samples.prop_map(|runs| {
        let mut samples = Vec::new();
        for (is_present, len, value) in runs {
            let sample = is_present.then_some(f64::from(value));
            samples.resize(samples.len() + len, sample);
        }
        samples.resize(COUNT, None);
        samples
    });
    prop::collection::btree_map(labels, samples, 0..6).prop_map(|series| {
        series
            .into_iter()
            .map(|(labels, samples)| (Labels::from_pairs(labels), false, samples))
            .collect()
    })
}

fn matching(cardinality: Cardinality) -> impl Strategy<Value = Matching> {
    let names = |len| {
        let names = prop::sample::select(vec!["a", "b", "c", "__name__"]);
        prop::collection::btree_set(names, len)
            .prop_map(|names| names.into_iter().map(str::to_owned).collect::<Vec<String>>())
    };
    let fill = || prop::option::weighted(0.2, 0i8..3).prop_map(|value| value.map(f64::from));
    (any::<bool>(), names(0..4), names(0..2), fill(), fill()).prop_map(
        move |(is_on, labels, mut include, fill_left, fill_right)| {
            if matches!(cardinality, Cardinality::OneToOne | Cardinality::ManyToMany) {
                include.clear();
            }
            include.retain(|name| !(is_on && labels.contains(name)));
            let is_set = cardinality == Cardinality::ManyToMany;
            let fill = |value: Option<f64>| value.filter(|_| !is_set);
            let (fill_left, fill_right) = (fill(fill_left), fill(fill_right));
            Matching { cardinality, is_on, labels, include, fill_left, fill_right }
        },
    )
}

fn operation() -> impl Strategy<Value = Binary> {
    let cardinality = prop::sample::select(vec![
        Cardinality::OneToOne,
        Cardinality::ManyToOne,
        Cardinality::OneToMany,
        Cardinality::ManyToMany,
    ]);
    (cardinality.prop_flat_map(matching), 0usize..3, any::<bool>()).prop_map(
        |(matching, choice, is_bool)| {
            let ops = match matching.cardinality {
                Cardinality::ManyToMany => [BinaryOp::And, BinaryOp::Or, BinaryOp::Unless],
                _ => [BinaryOp::Add, BinaryOp::Lt, BinaryOp::Eq],
            };
            let op = ops[choice];
            binary(op, is_bool && op.is_comparison(), matching)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn matching_agrees_with_the_twin(
        lhs in side(),
        rhs in side(),
        binary in operation(),
        shape in (1usize..4, 1usize..100),
        delayed in any::<bool>(),
    ) {
        let steps = Steps { start_ms: 0, step_ms: 1000, count: COUNT };
        let ctx = context(shape, delayed);
        let matching = binary.matching.as_ref().unwrap();
        let twin = Twin { binary: &binary, matching, delayed };
        let expected = twin.answer(COUNT, &lhs, &rhs);
        prop_assert_eq!(answer(&ctx, steps, &binary, &lhs, &rhs), expected);
    }
}

fn one(labels: &[(&str, &str)], values: &[Option<f64>]) -> Series {
    (Labels::from_pairs(labels.iter().copied()), false, values.to_vec())
}

fn plain(cardinality: Cardinality) -> Matching {
    Matching {
        cardinality,
        is_on: false,
        labels: Vec::new(),
        include: Vec::new(),
        fill_left: None,
        fill_right: None,
    }
}

#[test]
fn the_first_sample_decides_whether_the_name_goes() {
    let steps = Steps { start_ms: 0, step_ms: 1, count: 2 };
    let ctx = context((8, 8), true);
    let labels = [("__name__", "m")];
    for (drops_first, expected) in [(true, true), (false, false)] {
        let (mut lhs, mut rhs) =
            (one(&labels, &[None, Some(1.0)]), one(&labels, &[Some(2.0), Some(2.0)]));
        rhs.1 = drops_first;
        lhs.1 = !drops_first;
        let binary = binary(BinaryOp::Or, false, plain(Cardinality::ManyToMany));
        let operand =
            |series: &Series| Operand::Vector(operator(&ctx, steps, std::slice::from_ref(series)));
        let result =
            evaluate(&ctx, steps, &binary, Span::default(), operand(&lhs), operand(&rhs)).unwrap();
        let Operand::Vector(result) = result else { panic!("a vector") };
        assert_eq!(result.series().len(), 1);
        assert_eq!(result.series()[0].drop_name, expected);
    }
}

#[test]
fn trimming_floats_gives_an_info_and_nothing_else() {
    let steps = Steps { start_ms: 0, step_ms: 1, count: 1 };
    let ctx = context((8, 8), true);
    let series = [one(&[("a", "1")], &[Some(1.0)])];
    let trim = binary(BinaryOp::TrimUpper, false, plain(Cardinality::OneToOne));
    assert_eq!(answer(&ctx, steps, &trim, &series, &series), Ok(vec![Step::new()]));
    let infos: Vec<String> =
        ctx.take_annotations().iter().map(|info| info.message.clone()).collect();
    assert_eq!(
        infos,
        ["incompatible sample types encountered for binary operator \"</\": float </ float"]
    );
}

#[test]
fn memory_of_ambiguous_operands_is_charged_and_given_back() {
    let steps = Steps { start_ms: 0, step_ms: 1, count: 1000 };
    let limits = BudgetLimits { memory_bytes_max: 60_000, ..BudgetLimits::default() };
    let ctx = Context::new(Budget::new(limits), TileShape { series: 4, steps: 64 }, true);
    let samples = vec![Some(1.0); 1000];
    let series: Vec<Series> =
        ["1", "2", "3"].iter().map(|value| one(&[("a", *value)], &samples)).collect();
    let mut matching = plain(Cardinality::OneToOne);
    matching.is_on = true;
    let add = binary(BinaryOp::Add, false, matching);
    let error = answer(&ctx, steps, &add, &series[..1], &series).unwrap_err();
    assert!(error.contains("query.max-memory"), "{error}");
    // All memory was released: the same query fails at the same point again.
    assert_eq!(answer(&ctx, steps, &add, &series[..1], &series).unwrap_err(), error);
}
