//! Operators that change the series, the values or the steps of another operator.

pub mod broadcast;
pub mod elementwise;
pub mod rearranged;
pub mod unique;
