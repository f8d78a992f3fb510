//! Warnings and infos of range functions.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::annotations::Cause;
use crate::exec::operator::{Context, DerivedOfSeries};
use crate::exec::rollup::Origin;
use crate::exec::rollup::kernels::RollupKernel;
use crate::number_text::general;
use crate::parse::ast::Span;
use crate::plan::Rollup;
use crate::tile::is_present;

/// Annotation of an operator's output, reported if there is any output.
pub(super) enum OutputAnnotation {
    None,
    /// Names of metrics that do not look like counters.
    ///
    /// Source: `NewPossibleNonCounterInfo` of Prometheus.
    NonCounter {
        /// Index in `names`, by series.
        name_of: Vec<Option<u32>>,
        names: Vec<(String, AtomicBool)>,
        cause: Cause,
    },
    /// A φ outside 0 to 1 at a step with output.
    ///
    /// Source: `NewInvalidQuantileWarning` of Prometheus.
    InvalidPhi {
        phi: Arc<[f64]>,
        said: Mutex<HashSet<u64>>,
        cause: Cause,
    },
}

/// Key of the mark that no name of a metric needs the info, among the values derived from the
/// series.
const ARE_COUNTERS: &[u8] = b"counters";

impl OutputAnnotation {
    pub(super) fn new(
        ctx: &Context,
        rollup: &Rollup,
        kernel: &RollupKernel,
        origin: &Origin,
    ) -> OutputAnnotation {
        match kernel {
            RollupKernel::Rate { is_counter: true, .. }
            | RollupKernel::ExtendedRate { is_counter: true, .. } => {
                non_counter(ctx, cause(rollup, kernel, origin), origin)
            }
            RollupKernel::Quantile { phi } if phi.iter().any(|phi| is_invalid(*phi)) => {
                let cause = cause(rollup, kernel, origin);
                OutputAnnotation::InvalidPhi { phi: phi.clone(), said: Mutex::default(), cause }
            }
            _ => OutputAnnotation::None,
        }
    }

    /// Records the annotation if a row has output; its first step is `first_step`.
    #[inline]
    pub(super) fn take(&self, ctx: &Context, series: u32, first_step: usize, presence: &[u64]) {
        match self {
            OutputAnnotation::None => {}
            OutputAnnotation::NonCounter { name_of, names, cause } => {
                let Some(name) = name_of[series as usize] else { return };
                let (name, is_said) = &names[name as usize];
                if presence.iter().any(|word| *word != 0) && !is_said.swap(true, Ordering::Relaxed)
                {
                    ctx.info(
                        format!(
                            "metric might not be a counter, name does not end in \
                             _total/_sum/_count/_bucket: {name:?}"
                        ),
                        *cause,
                    );
                }
            }
            OutputAnnotation::InvalidPhi { phi, said, cause } => {
                let steps = (0..presence.len() * 64).filter(|i| is_present(presence, *i));
                for phi in steps.map(|index| phi[first_step + index]).filter(|phi| is_invalid(*phi))
                {
                    let is_new = said.lock().is_ok_and(|mut said| said.insert(phi.to_bits()));
                    if is_new {
                        ctx.warn(invalid_quantile(phi), *cause);
                    }
                }
            }
        }
    }
}

fn is_invalid(phi: f64) -> bool {
    !(0.0..=1.0).contains(&phi)
}

/// Returns the warning of an invalid quantile.
///
/// Source: `NewInvalidQuantileWarning` of Prometheus.
pub(crate) fn invalid_quantile(phi: f64) -> String {
    format!("quantile value should be between 0 and 1, got {}", general(phi))
}

/// Returns the position for annotations of a call: the first argument, as in Prometheus.
pub(super) fn cause(rollup: &Rollup, kernel: &RollupKernel, origin: &Origin) -> Cause {
    let at = match (kernel, origin) {
        (RollupKernel::Quantile { .. }, _) => {
            rollup.call.args.first().map_or(rollup.input.span, |arg| arg.span)
        }
        (_, Origin::Set(_)) => rollup.input.span,
        // In Prometheus, the range vector of a subquery has no position in the query.
        (_, Origin::Operator(_)) => Span::default(),
    };
    Cause { at, operands: rollup.call.arguments_span() }
}

fn non_counter(ctx: &Context, cause: Cause, origin: &Origin) -> OutputAnnotation {
    let derived = match origin {
        Origin::Set(set) => DerivedOfSeries::of_set(ctx, &**set, false),
        Origin::Operator(_) => None,
    };
    if derived.is_some_and(|derived| derived.find::<()>(ARE_COUNTERS).is_some()) {
        return OutputAnnotation::None;
    }
    let mut places: HashMap<String, u32> = HashMap::new();
    let mut names = Vec::new();
    let mut place = |name: &str| {
        let is_counter = ["_total", "_sum", "_count", "_bucket"].iter().any(|s| name.ends_with(s));
        if name.is_empty() || is_counter {
            return None;
        }
        if let Some(place) = places.get(name) {
            return Some(*place);
        }
        names.push((name.to_owned(), AtomicBool::new(false)));
        places.insert(name.to_owned(), names.len() as u32 - 1);
        Some(names.len() as u32 - 1)
    };
    let name_of: Vec<Option<u32>> = match origin {
        Origin::Set(set) => {
            (0..set.len()).map(|index| place(set.labels(index).metric_name())).collect()
        }
        Origin::Operator(operator) => {
            operator.series().iter().map(|meta| place(meta.labels.metric_name())).collect()
        }
    };
    if names.is_empty() {
        if let Some(derived) = derived {
            derived.keep(ARE_COUNTERS, &Arc::new(()), 0);
        }
        return OutputAnnotation::None;
    }
    OutputAnnotation::NonCounter { name_of, names, cause }
}
