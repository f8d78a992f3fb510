//! Operators and aggregations by the words that stand for them.

use super::ast::{AggregateOp, BinaryOp};

/// The binary operator that is written so (in lower case).
pub(super) fn binary_op(text: &str) -> Option<BinaryOp> {
    use BinaryOp::*;
    const ALL: [BinaryOp; 18] = [
        Add, Sub, Mul, Div, Mod, Pow, Atan2, Eq, Ne, Lt, Le, Gt, Ge, And, Or, Unless, TrimUpper,
        TrimLower,
    ];
    ALL.into_iter().find(|op| op.as_str() == text)
}

/// The aggregation that is written so (in lower case).
pub(super) fn aggregate_op(text: &str) -> Option<AggregateOp> {
    use AggregateOp::*;
    const ALL: [AggregateOp; 14] = [
        Sum,
        Avg,
        Min,
        Max,
        Count,
        Group,
        Stddev,
        Stdvar,
        Topk,
        Bottomk,
        Quantile,
        CountValues,
        Limitk,
        LimitRatio,
    ];
    ALL.into_iter().find(|op| op.as_str() == text)
}
