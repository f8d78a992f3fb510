//! From promql-parser's tree to ours.

use std::time::{Duration, SystemTime};

use model::{MatchOp, Matcher};
use promql_parser::label as their_label;
use promql_parser::parser as their;

use super::ast::{
    Aggregate, At, Binary, Call, Cardinality, DurationExpr, DurationKind, Expr, ExprKind, Matching,
    MatrixSelector, RangeMode, Span, Subquery, VectorSelector,
};
use super::names::{aggregate_op, binary_op};
use crate::error::QueryError;
use crate::functions;

/// Our tree of theirs; every span is that of the whole query.
pub(super) fn convert(tree: &their::Expr, span: Span) -> Result<Expr, QueryError> {
    Converter { span }.expr(tree)
}

struct Converter {
    span: Span,
}

impl Converter {
    fn expr(&self, tree: &their::Expr) -> Result<Expr, QueryError> {
        let kind = match tree {
            their::Expr::NumberLiteral(n) => ExprKind::Number { value: n.val, is_duration: false },
            their::Expr::StringLiteral(s) => ExprKind::String(s.val.clone()),
            their::Expr::VectorSelector(s) => ExprKind::Selector(self.selector(s)?),
            their::Expr::MatrixSelector(m) => ExprKind::Matrix(MatrixSelector {
                selector: self.selector(&m.vs)?,
                selector_span: self.span,
                range: self.duration(m.range),
            }),
            their::Expr::Subquery(s) => ExprKind::Subquery(Subquery {
                expr: Box::new(self.expr(&s.expr)?),
                range: self.duration(s.range),
                step: s.step.map(|step| self.duration(step)),
                offset: self.offset(s.offset.as_ref()),
                at: at(s.at.as_ref()),
            }),
            their::Expr::Unary(u) => {
                ExprKind::Unary { is_minus: true, operand: Box::new(self.expr(&u.expr)?) }
            }
            their::Expr::Binary(b) => ExprKind::Binary(self.binary(b)?),
            their::Expr::Aggregate(a) => ExprKind::Aggregate(self.aggregate(a)?),
            their::Expr::Call(c) => ExprKind::Call(self.call(c)?),
            their::Expr::Paren(p) => ExprKind::Paren(Box::new(self.expr(&p.expr)?)),
            their::Expr::Extension(_) => return Err(unknown("extension")),
        };
        Ok(Expr { kind, span: self.span })
    }

    fn selector(&self, s: &their::VectorSelector) -> Result<VectorSelector, QueryError> {
        let mut matchers = Vec::with_capacity(s.matchers.matchers.len() + 1);
        for m in &s.matchers.matchers {
            let op = match m.op {
                their_label::MatchOp::Equal => MatchOp::Equal,
                their_label::MatchOp::NotEqual => MatchOp::NotEqual,
                their_label::MatchOp::Re(_) => MatchOp::Regex,
                their_label::MatchOp::NotRe(_) => MatchOp::NotRegex,
            };
            matchers.push(
                Matcher::new(op, m.name.as_str(), m.value.as_str())
                    .map_err(|e| QueryError::Parse(format!("1:1: parse error: {e}")))?,
            );
        }
        if let Some(name) = &s.name {
            matchers.push(Matcher::equal(model::METRIC_NAME, name.as_str()));
        }
        Ok(VectorSelector {
            name: s.name.clone(),
            matchers,
            offset: self.offset(s.offset.as_ref()),
            at: at(s.at.as_ref()),
            mode: RangeMode::Plain,
        })
    }

    fn duration(&self, duration: Duration) -> DurationExpr {
        self.seconds(duration.as_secs_f64())
    }

    fn seconds(&self, seconds: f64) -> DurationExpr {
        let kind = DurationKind::Literal { seconds, is_duration: true };
        DurationExpr { kind, span: self.span, is_wrapped: false }
    }

    fn offset(&self, offset: Option<&their::Offset>) -> Option<DurationExpr> {
        Some(match offset? {
            their::Offset::Pos(d) => self.duration(*d),
            their::Offset::Neg(d) => self.seconds(-d.as_secs_f64()),
        })
    }

    fn binary(&self, b: &their::BinaryExpr) -> Result<Binary, QueryError> {
        let op = binary_op(&b.op.to_string()).ok_or_else(|| unknown("operator"))?;
        let (lhs, rhs) = (self.expr(&b.lhs)?, self.expr(&b.rhs)?);
        let is_vector = |e: &Expr| e.value_type() == super::ast::ValueType::Vector;
        let matching = (is_vector(&lhs) && is_vector(&rhs)).then(|| {
            let modifier = b.modifier.clone().unwrap_or_default();
            let cardinality = match &modifier.card {
                _ if op.is_set() => Cardinality::ManyToMany,
                their::VectorMatchCardinality::ManyToOne(_) => Cardinality::ManyToOne,
                their::VectorMatchCardinality::OneToMany(_) => Cardinality::OneToMany,
                _ => Cardinality::OneToOne,
            };
            Matching {
                cardinality,
                is_on: modifier.is_matching_on(),
                labels: modifier.matching.map(|m| m.labels().labels.clone()).unwrap_or_default(),
                include: modifier.card.labels().map(|l| l.labels.clone()).unwrap_or_default(),
                fill_left: modifier.fill_values.lhs,
                fill_right: modifier.fill_values.rhs,
            }
        });
        let is_bool = b.return_bool();
        Ok(Binary { op, lhs: Box::new(lhs), rhs: Box::new(rhs), is_bool, matching })
    }

    fn aggregate(&self, a: &their::AggregateExpr) -> Result<Aggregate, QueryError> {
        let op = aggregate_op(&a.op.to_string()).ok_or_else(|| unknown("aggregation"))?;
        let param = match &a.param {
            Some(param) => Some(Box::new(self.expr(param)?)),
            None => None,
        };
        let (is_without, grouping) = match &a.modifier {
            Some(their::LabelModifier::Exclude(l)) => (true, l.labels.clone()),
            Some(their::LabelModifier::Include(l)) => (false, l.labels.clone()),
            None => (false, Vec::new()),
        };
        Ok(Aggregate { op, expr: Box::new(self.expr(&a.expr)?), param, is_without, grouping })
    }

    fn call(&self, c: &their::Call) -> Result<Call, QueryError> {
        let function = functions::lookup(c.func.name).ok_or_else(|| unknown(c.func.name))?;
        let args = c.args.args.iter().map(|a| self.expr(a)).collect::<Result<_, _>>()?;
        Ok(Call { function, args })
    }
}

fn at(at: Option<&their::AtModifier>) -> Option<At> {
    Some(match at? {
        their::AtModifier::Start => At::Start,
        their::AtModifier::End => At::End,
        their::AtModifier::At(time) => {
            At::Time(match time.duration_since(SystemTime::UNIX_EPOCH) {
                Ok(after) => after.as_millis() as i64,
                Err(before) => -(before.duration().as_millis() as i64),
            })
        }
    })
}

fn unknown(what: &str) -> QueryError {
    QueryError::Parse(format!("1:1: parse error: unknown {what}"))
}
