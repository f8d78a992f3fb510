//! From syntax tree to typed plan.
