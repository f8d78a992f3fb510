//! What the benches share: seeded data, a source of encoded series, the memory account, and
//! the record of a run. What a user asks is measured here; what the code claims is tested
//! beside the code.

pub mod data;
pub mod kernel;
pub mod machine;
pub mod measure;
pub mod source;
