//! The page, and the description of the API.

pub(super) mod openapi;
pub(super) mod ui;
