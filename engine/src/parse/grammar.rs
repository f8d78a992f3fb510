//! The grammar of promql-parser, extended by functions of the catalog.

use std::sync::Once;

use promql_parser::parser::value::ValueType as GrammarType;
use promql_parser::parser::{Expr, Function, register_extra_functions};

use crate::catalog::{self, ValueType};

/// Parses the text of a prepass.
///
/// Errors: the text does not match the grammar.
pub(super) fn parse(text: &str) -> Result<Expr, String> {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(register_functions);
    promql_parser::parser::parse(text)
}

fn register_functions() {
    for function in catalog::all() {
        let args = function.args.iter().map(|value_type| grammar_type(*value_type)).collect();
        let returns = grammar_type(function.returns);
        let extra = Function::new(
            function.name,
            args,
            function.variadic,
            returns,
            function.is_experimental,
        );
        // Fails only if promql-parser already has this function.
        let _ = register_extra_functions(vec![extra]);
    }
}

fn grammar_type(value_type: ValueType) -> GrammarType {
    match value_type {
        ValueType::Scalar => GrammarType::Scalar,
        ValueType::String => GrammarType::String,
        ValueType::Vector => GrammarType::Vector,
        ValueType::Matrix => GrammarType::Matrix,
    }
}
