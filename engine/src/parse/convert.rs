//! Conversion of promql-parser's tree to [`ast`](super::ast): its structure, with the leaves and
//! positions of the prepass.
//!
//! Walks the tree in the order of the text, which is also the order of the prepass's lists.

use promql_parser::parser as their;

use super::ast::{
    Aggregate, Binary, BinaryOp, Call, Cardinality, Expr, ExprKind, Matching, Span, ValueType,
};
use super::names::aggregate_op;
use super::prepass::{Prepass, Sign, SubqueryMark};
use crate::catalog::Function;

/// Difference between the prepass and the tree of promql-parser; contains the name of the list that
/// differs.
#[derive(Debug)]
pub(super) struct Mismatch(pub &'static str);

/// Converts a tree.
///
/// Errors: the tree does not match the prepass, which is a bug in the prepass.
pub(super) fn convert(tree: &their::Expr, prepass: Prepass) -> Result<Expr, Mismatch> {
    let mut converter = Converter {
        leaves: prepass.leaves.into_iter(),
        signs: prepass.signs.into_iter(),
        operators: prepass.operators.into_iter(),
        parens: prepass.parens.into_iter(),
        calls: prepass.calls.into_iter(),
        aggregates: prepass.aggregates.into_iter(),
        subqueries: prepass.subqueries.into_iter(),
    };
    let expr = converter.expr(tree)?;
    if converter.leaves.next().is_some() { Err(Mismatch("leaves left over")) } else { Ok(expr) }
}

struct Converter {
    leaves: std::vec::IntoIter<Expr>,
    signs: std::vec::IntoIter<Sign>,
    operators: std::vec::IntoIter<BinaryOp>,
    parens: std::vec::IntoIter<Span>,
    calls: std::vec::IntoIter<(&'static Function, Span)>,
    aggregates: std::vec::IntoIter<Span>,
    subqueries: std::vec::IntoIter<SubqueryMark>,
}

impl Converter {
    fn expr(&mut self, tree: &their::Expr) -> Result<Expr, Mismatch> {
        match tree {
            their::Expr::NumberLiteral(_)
            | their::Expr::StringLiteral(_)
            | their::Expr::VectorSelector(_)
            | their::Expr::MatrixSelector(_) => self.leaf(tree),
            their::Expr::Unary(unary) => self.unary(unary),
            their::Expr::Binary(binary) => self.binary(binary),
            their::Expr::Paren(paren) => {
                let span = self.parens.next().ok_or(Mismatch("parentheses"))?;
                let inner = Box::new(self.expr(&paren.expr)?);
                Ok(Expr { kind: ExprKind::Paren(inner), span })
            }
            their::Expr::Subquery(subquery) => {
                let inner = self.expr(&subquery.expr)?;
                let mark = self.subqueries.next().ok_or(Mismatch("subqueries"))?;
                let span = Span { start: inner.span.start, end: mark.end as u32 };
                Ok(Expr { kind: ExprKind::Subquery(mark.around(inner)), span })
            }
            their::Expr::Call(call) => self.call(call),
            their::Expr::Aggregate(aggregate) => self.aggregate(aggregate),
            their::Expr::Extension(_) => Err(Mismatch("extension")),
        }
    }

    fn leaf(&mut self, tree: &their::Expr) -> Result<Expr, Mismatch> {
        let leaf = self.leaves.next().ok_or(Mismatch("leaves"))?;
        let fits = matches!(
            (tree, &leaf.kind),
            (their::Expr::NumberLiteral(_), ExprKind::Number { .. })
                | (their::Expr::StringLiteral(_), ExprKind::String(_))
                | (their::Expr::VectorSelector(_), ExprKind::Selector(_))
                | (their::Expr::MatrixSelector(_), ExprKind::Matrix(_))
        );
        if fits { Ok(leaf) } else { Err(Mismatch("kind of leaf")) }
    }

    fn unary(&mut self, unary: &their::UnaryExpr) -> Result<Expr, Mismatch> {
        let sign = self.signs.next().ok_or(Mismatch("signs"))?;
        let operand = Box::new(self.expr(&unary.expr)?);
        let span = Span { start: sign.start as u32, end: operand.span.end };
        Ok(Expr { kind: ExprKind::Unary { is_minus: sign.is_minus, operand }, span })
    }

    fn binary(&mut self, binary: &their::BinaryExpr) -> Result<Expr, Mismatch> {
        let lhs = self.expr(&binary.lhs)?;
        let op = self.operators.next().ok_or(Mismatch("operators"))?;
        let rhs = self.expr(&binary.rhs)?;
        let is_vector = |operand: &Expr| operand.value_type() == ValueType::Vector;
        let matching = (is_vector(&lhs) && is_vector(&rhs))
            .then(|| matching(op, binary.modifier.clone().unwrap_or_default()));
        let span = Span { start: lhs.span.start, end: rhs.span.end };
        // Trim operators were passed to promql-parser as comparisons with `bool`.
        let is_bool = binary.return_bool() && op.is_comparison();
        let (lhs, rhs) = (Box::new(lhs), Box::new(rhs));
        Ok(Expr { kind: ExprKind::Binary(Binary { op, lhs, rhs, is_bool, matching }), span })
    }

    fn call(&mut self, call: &their::Call) -> Result<Expr, Mismatch> {
        let (function, span) = self.calls.next().ok_or(Mismatch("calls"))?;
        if function.name != call.func.name {
            return Err(Mismatch("name of function"));
        }
        let args = call.args.args.iter().map(|arg| self.expr(arg)).collect::<Result<_, _>>()?;
        Ok(Expr { kind: ExprKind::Call(Call { function, args }), span })
    }

    fn aggregate(&mut self, aggregate: &their::AggregateExpr) -> Result<Expr, Mismatch> {
        let span = self.aggregates.next().ok_or(Mismatch("aggregations"))?;
        let op = aggregate_op(&aggregate.op.to_string()).ok_or(Mismatch("name of aggregation"))?;
        let param = match &aggregate.param {
            Some(param) => Some(Box::new(self.expr(param)?)),
            None => None,
        };
        let expr = Box::new(self.expr(&aggregate.expr)?);
        let (is_without, grouping) = match &aggregate.modifier {
            Some(their::LabelModifier::Exclude(labels)) => (true, labels.labels.clone()),
            Some(their::LabelModifier::Include(labels)) => (false, labels.labels.clone()),
            None => (false, Vec::new()),
        };
        let aggregate = Aggregate { op, expr, param, is_without, grouping };
        Ok(Expr { kind: ExprKind::Aggregate(aggregate), span })
    }
}

fn matching(op: BinaryOp, modifier: their::BinModifier) -> Matching {
    let cardinality = match &modifier.card {
        _ if op.is_set() => Cardinality::ManyToMany,
        their::VectorMatchCardinality::ManyToOne(_) => Cardinality::ManyToOne,
        their::VectorMatchCardinality::OneToMany(_) => Cardinality::OneToMany,
        _ => Cardinality::OneToOne,
    };
    Matching {
        cardinality,
        is_on: modifier.is_matching_on(),
        include: modifier.card.labels().map(|list| list.labels.clone()).unwrap_or_default(),
        labels: modifier.matching.map(|list| list.labels().labels.clone()).unwrap_or_default(),
        fill_left: modifier.fill_values.lhs,
        fill_right: modifier.fill_values.rhs,
    }
}
