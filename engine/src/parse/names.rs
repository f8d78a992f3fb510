//! Names of operators and aggregations.

use super::ast::{AggregateOp, BinaryOp};

/// Returns the binary operator of a lower-case name.
pub(super) fn binary_op(text: &str) -> Option<BinaryOp> {
    use BinaryOp::*;
    const ALL: [BinaryOp; 18] = [
        Add, Sub, Mul, Div, Mod, Pow, Atan2, Eq, Ne, Lt, Le, Gt, Ge, And, Or, Unless, TrimUpper,
        TrimLower,
    ];
    ALL.into_iter().find(|op| op.as_str() == text)
}

/// Returns the aggregation of a lower-case name.
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

#[cfg(test)]
mod tests {
    use super::super::token::TokenKind;
    use crate::catalog::{AGGREGATIONS, KEYWORDS};

    #[test]
    fn words_of_the_catalog_are_words_of_the_language() {
        for word in AGGREGATIONS {
            let kind = TokenKind::of_word(word.name);
            assert!(matches!(kind, TokenKind::Aggregate(_)), "{}", word.name);
        }
        for word in KEYWORDS {
            let kind = TokenKind::of_word(word.name);
            let is_keyword = matches!(kind, TokenKind::Keyword(_) | TokenKind::Operator(_));
            assert!(is_keyword, "{}", word.name);
        }
        assert_eq!((AGGREGATIONS.len(), KEYWORDS.len()), (14, 17));
    }
}
