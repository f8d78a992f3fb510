//! Rules whose alternatives are functions of the catalog.

use engine::catalog::{Function, FunctionId, MathFunction, RollupFunction, ValueType, all};

/// Names of the rules.
pub(super) const FUNCTION_RULES: [&str; 4] = ["plain", "large", "date", "rollup"];

/// Returns each rule with its alternatives.
pub(super) fn function_rules() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    let functions = |rule| {
        let is_named = |function: &&Function| rule_of(function) == Some(rule);
        all().iter().filter(is_named).map(|function| function.name).collect()
    };
    FUNCTION_RULES.into_iter().map(move |rule| (rule, functions(rule)))
}

fn rule_of(function: &Function) -> Option<&'static str> {
    use MathFunction::{Cos, Cosh, Exp, Sin, Sinh, Tan};
    match function.id {
        // Large arguments magnify differences in the last digits.
        FunctionId::Math(Exp | Sin | Cos | Tan | Sinh | Cosh) => Some("large"),
        FunctionId::Math(_) | FunctionId::Timestamp => Some("plain"),
        FunctionId::Sort(_) | FunctionId::Bound(_) if has_one_argument(function) => Some("plain"),
        FunctionId::Date(_) => Some("date"),
        FunctionId::Rollup(RollupFunction::Absent) => None,
        FunctionId::Rollup(_) if function.args == [ValueType::Matrix] => Some("rollup"),
        _ => None,
    }
}

/// Returns whether a call with one vector is valid.
fn has_one_argument(function: &Function) -> bool {
    let args_min = function.args.len() - usize::from(function.variadic != 0);
    args_min == 1 && function.args[0] == ValueType::Vector
}
