//! Layers around the routes: access, tenants, prefix, encoding of responses, request log.

pub(crate) mod access;
pub(super) mod encoders;
pub(super) mod prefix;
pub(super) mod request_log;
pub(super) mod tenants;
