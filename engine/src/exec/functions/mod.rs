//! Bodies of the functions of instant vectors and scalars; range functions are in `exec::rollup`.

mod buckets;
mod call;
mod classic_histogram;
mod date;
mod exp2;
mod info;
mod label;
mod math;
mod native_answers;
mod native_quantile;
mod natural_order;
mod sort;
mod vector_scalar;

pub use call::{call, check_texts};
pub use label::{LABEL_VALUE_BYTES_MAX, LABEL_VALUES_BYTES_MAX};
pub(crate) use math::{atan2, go_max, go_min};
pub(crate) use vector_scalar::absent;
pub use vector_scalar::absent_labels;

#[cfg(test)]
mod call_tests;
