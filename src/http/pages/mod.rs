//! The page, the documentation, and the description of the API.

pub(super) mod documents;
pub(super) mod openapi;
pub(super) mod ui;
