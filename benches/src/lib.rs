//! Parts that the benches share: seeded data, a source of encoded series, the memory account, the
//! scenario runner for servers, and the report. What a user asks is measured here; what the code
//! claims is tested next to the code.

pub mod data;
pub mod http;
pub mod kernel;
pub mod machine;
pub mod measure;
pub mod options;
pub mod report;
pub mod scenario;
pub mod scrapes;
pub mod side_by_side;
pub mod source;
pub mod stage_table;
