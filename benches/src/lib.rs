//! What the benches share: seeded data, a source of encoded series, the memory account, and
//! the record of a run. What a user asks is measured here; what the code claims is tested
//! beside the code.

pub mod data;
pub mod http;
pub mod kernel;
pub mod load;
pub mod machine;
pub mod measure;
pub mod options;
pub mod process;
pub mod server;
pub mod side_by_side;
pub mod source;
pub mod stage_table;
