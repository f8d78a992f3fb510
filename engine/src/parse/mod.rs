//! From query text to a checked syntax tree. The only module that names promql-parser.

pub mod ast;
