//! Endpoints of the API.

mod exemplars;
mod federate;
mod labels;
mod query;
mod read;
mod reuse;
mod search;
mod stubs;
