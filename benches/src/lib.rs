//! Shared parts of the benches: seeded data, a source of encoded series, an allocator that counts,
//! the scenario runner for servers, and reports. Claims of the code are tested next to the code.

pub mod curves;
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
pub mod svg;
