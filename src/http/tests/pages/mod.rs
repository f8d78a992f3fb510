//! The page, and the description of the API.

mod openapi;
mod ui;
