//! Queries for native histograms.

use crate::generate::Generator;
use crate::generate::generator::{FRACTIONS, NUMBERS};
use crate::generate::native_rules::NATIVE_ROLLUPS;

impl Generator {
    /// Generates an expression specific to histograms.
    pub(super) fn native(&mut self, depth: u32) -> String {
        match self.random.below(12) {
            0 | 1 => {
                let of = self.pick(&["count", "sum", "avg", "stddev", "stdvar"]);
                format!("histogram_{of}({})", self.vector(depth))
            }
            2 => format!("histogram_quantile({}, {})", self.pick(&FRACTIONS), self.vector(depth)),
            3 => {
                let (lower, upper) = (self.pick(&NUMBERS), self.pick(&NUMBERS));
                format!("histogram_fraction({lower}, {upper}, {})", self.vector(depth))
            }
            4 => {
                let fraction = self.pick(&FRACTIONS);
                format!("histogram_quantiles({}, \"q\", {fraction}, 0.75)", self.vector(depth))
            }
            5 => {
                let operator = self.pick(&["</", ">/"]);
                let (vector, bound) = (self.vector(depth), self.scalar(depth));
                format!("({vector} {operator} {bound})")
            }
            6 | 7 => self.native_rollup(depth),
            8 => {
                let operator = self.pick(&["sum", "avg", "count", "group"]);
                format!("{operator}{} ({})", self.grouping(), self.native_rollup(depth))
            }
            9 => {
                let metric = self.metric();
                // Labels contain all digits, so samples are used without computation.
                format!(
                    "count_values{} (\"job\", {})",
                    self.grouping(),
                    self.plain_selector(metric)
                )
            }
            10 => {
                let (metric, other) = (self.metric(), self.metric());
                let (left, right) = (self.plain_selector(metric), self.plain_selector(metric));
                let (operator, modifiers) =
                    (self.pick(&["+", "-", "==", "!=", "/", "*"]), self.modifiers());
                match self.random.below(3) {
                    0 => format!("({left} {operator} {right}{modifiers})"),
                    1 => format!("({left}{modifiers} {operator} on (job) group_left {other})"),
                    _ => format!("({left} {operator} on (job, instance) {other}{modifiers})"),
                }
            }
            _ => self.vector(depth),
        }
    }

    fn native_rollup(&mut self, depth: u32) -> String {
        format!("{}({})", self.pick(&NATIVE_ROLLUPS), self.range(depth))
    }
}
