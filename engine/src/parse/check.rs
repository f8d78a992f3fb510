//! Type checks, with the error messages of Prometheus.
//!
//! Source: `checkAST` of Prometheus. A type error is kept in its node, because a later syntax error
//! has priority.

use model::{METRIC_NAME, Matcher};

use super::Fault;
use super::ast::{AggregateOp, BinaryOp, Cardinality, ValueType};
use super::prepass::{BinaryModifiers, Node, Shape, Sign};
use super::quote::quoted;
use crate::catalog::{Function, FunctionId};

type Complaint = Option<Box<Fault>>;

fn complain(position: usize, message: impl Into<String>) -> Complaint {
    Some(Box::new(Fault { position, message: message.into() }))
}

/// A binary operation before it is checked.
pub(super) struct BinaryOperands {
    pub op: BinaryOp,
    pub lhs: Node,
    pub rhs: Node,
    pub modifiers: BinaryModifiers,
}

const EMPTY_SELECTOR: &str = "vector selector must contain at least one non-empty matcher";

/// Checks a selector.
pub(super) fn selector(name: Option<&str>, matchers: &[Matcher], position: usize) -> Complaint {
    let Some(name) = name else {
        let is_empty = matchers.iter().all(Matcher::matches_empty);
        return if is_empty { complain(position, EMPTY_SELECTOR) } else { None };
    };
    let other = matchers.iter().find(|matcher| matcher.name() == METRIC_NAME)?;
    let (name, other) = (quoted(name), quoted(other.value()));
    complain(position, format!("metric name must not be set twice: {name} or {other}"))
}

/// Applies a sign to an operand.
pub(super) fn unary(sign: Sign, operand: Node) -> Node {
    let value_type = operand.value_type;
    let complaint = operand.complaint.or_else(|| {
        if matches!(value_type, ValueType::Scalar | ValueType::Vector) {
            return None;
        }
        complain(
            sign.start,
            format!(
                "unary expression only allowed on expressions of type scalar or \
                 instant vector, got \"{value_type}\""
            ),
        )
    });
    let (shape, start, depth) = (Shape::Other, sign.start, operand.depth + 1);
    Node { shape, value_type, start, end: operand.end, depth, complaint }
}

/// Builds a subquery over an operand.
pub(super) fn subquery(operand: Node, end: usize) -> Node {
    let complaint = operand.complaint.or_else(|| {
        // Only this message uses the type names of the API.
        let found = match operand.value_type {
            ValueType::Vector => return None,
            ValueType::Matrix => "matrix",
            ValueType::Scalar => "scalar",
            ValueType::String => "string",
        };
        let message = format!("subquery is only allowed on instant vector, got {found} instead");
        complain(operand.start, message)
    });
    Node {
        shape: Shape::Subquery,
        value_type: ValueType::Matrix,
        start: operand.start,
        end,
        depth: operand.depth + 1,
        complaint,
    }
}

/// Builds a binary operation.
pub(super) fn binary(query: &str, operands: BinaryOperands) -> Node {
    let is_scalar = |node: &Node| node.value_type == ValueType::Scalar;
    let both_scalar = is_scalar(&operands.lhs) && is_scalar(&operands.rhs);
    let value_type = if both_scalar { ValueType::Scalar } else { ValueType::Vector };
    let own = binary_complaint(query, &operands);
    let BinaryOperands { lhs, rhs, .. } = operands;
    Node {
        shape: Shape::Other,
        value_type,
        start: lhs.start,
        end: rhs.end,
        depth: lhs.depth.max(rhs.depth) + 1,
        complaint: lhs.complaint.or(rhs.complaint).or(own),
    }
}

fn binary_complaint(query: &str, operands: &BinaryOperands) -> Complaint {
    let BinaryOperands { op, lhs, rhs, modifiers } = operands;
    let (left, right) = (lhs.value_type, rhs.value_type);
    let both = |value_type| left == value_type && right == value_type;
    // As in Prometheus, the operator's position is the first non-blank after the left operand.
    let operator_start = || {
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        lhs.end + query.as_bytes()[lhs.end..].iter().take_while(|byte| is_blank(byte)).count()
    };
    if modifiers.is_bool && !op.is_comparison() {
        let message = "bool modifier can only be used on comparison operators";
        return complain(operator_start(), message);
    }
    if op.is_comparison() && !modifiers.is_bool && both(ValueType::Scalar) {
        return complain(operator_start(), "comparisons between scalars must use BOOL modifier");
    }
    if modifiers.is_on {
        let twice = modifiers.labels.iter().find(|label| modifiers.include.contains(label));
        if let Some(label) = twice {
            let label = quoted(label);
            let message = format!("label {label} must not occur in ON and GROUP clause at once");
            return complain(operator_start(), message);
        }
    }
    for (value_type, start) in [(left, lhs.start), (right, rhs.start)] {
        if !matches!(value_type, ValueType::Scalar | ValueType::Vector) {
            let message = "binary expression must contain only scalar and instant vector types";
            return complain(start, message);
        }
    }
    let name = quoted(op.as_str());
    if !both(ValueType::Vector) {
        if !modifiers.labels.is_empty() {
            return complain(lhs.start, "vector matching only allowed between instant vectors");
        }
        if modifiers.has_fill() {
            let message = "filling in missing series only allowed between instant vectors";
            return complain(lhs.start, message);
        }
        if op.is_set() {
            let message = format!("set operator {name} not allowed in binary scalar expression");
            return complain(lhs.start, message);
        }
    } else if op.is_set() {
        if modifiers.cardinality != Cardinality::OneToOne {
            return complain(lhs.start, format!("no grouping allowed for {name} operation"));
        }
        if modifiers.has_fill() {
            let message = "filling in missing series not allowed for set operators";
            return complain(lhs.start, message);
        }
    }
    None
}

/// Checks an aggregation that has the right number of arguments.
pub(super) fn aggregate(op: AggregateOp, args: Vec<Node>) -> Complaint {
    let mut args = args.into_iter().rev();
    let check = |node: Node, wanted: ValueType, context: &str| {
        let found = node.value_type;
        node.complaint.or_else(|| {
            if found == wanted {
                return None;
            }
            complain(node.start, format!("expected type {wanted} in {context}, got {found}"))
        })
    };
    let operand = args.next()?;
    let complaint = check(operand, ValueType::Vector, "aggregation expression");
    let Some(parameter) = args.next() else { return complaint };
    let is_text = op == AggregateOp::CountValues;
    let wanted = if is_text { ValueType::String } else { ValueType::Scalar };
    complaint.or_else(|| check(parameter, wanted, "aggregation parameter"))
}

/// Checks a call.
pub(super) fn call(function: &Function, start: usize, args: Vec<Node>) -> Complaint {
    let complaint = argument_count(function, start, args.len());
    let is_info = function.id == FunctionId::Info && args.len() > 1;
    let complaint =
        if is_info { complaint.or_else(|| info_selector(start, &args[1])) } else { complaint };
    if complaint.is_some() {
        return complaint;
    }
    for (position, arg) in args.into_iter().enumerate() {
        // The number of arguments is right, so only variadic ones are beyond the list.
        let wanted = *function.args.get(position).or_else(|| function.args.last())?;
        let is_free = is_info && position == 1 && arg.shape == Shape::Selector;
        let (found, start) = (arg.value_type, arg.start);
        let own = arg.complaint.filter(|fault| !is_free || fault.message != EMPTY_SELECTOR);
        let complaint = own.or_else(|| {
            if found == wanted {
                return None;
            }
            let name = quoted(function.name);
            let context = format!("call to function {name}");
            complain(start, format!("expected type {wanted} in {context}, got {found}"))
        });
        if complaint.is_some() {
            return complaint;
        }
    }
    None
}

fn argument_count(function: &Function, start: usize, count: usize) -> Complaint {
    let name = quoted(function.name);
    let listed = function.args.len();
    if function.variadic == 0 {
        if count == listed {
            return None;
        }
        let message = format!("expected {listed} argument(s) in call to {name}, got {count}");
        return complain(start, message);
    }
    let min = listed.saturating_sub(1);
    if count < min {
        let message = format!("expected at least {min} argument(s) in call to {name}, got {count}");
        return complain(start, message);
    }
    let max = min + usize::try_from(function.variadic).ok()?;
    if count > max {
        let message = format!("expected at most {max} argument(s) in call to {name}, got {count}");
        return complain(start, message);
    }
    None
}

/// Checks the second argument of `info`, which is a list of label matchers instead of a vector.
fn info_selector(start: usize, arg: &Node) -> Complaint {
    let found = arg.value_type;
    if found != ValueType::Vector {
        let message =
            format!("expected type instant vector in call to function \"info\", got {found}");
        return complain(start, message);
    }
    match arg.shape {
        Shape::NamedSelector => {
            complain(arg.start, "expected label selectors only, got vector selector instead")
        }
        Shape::Selector => None,
        _ => complain(arg.start, "expected label selectors only"),
    }
}
