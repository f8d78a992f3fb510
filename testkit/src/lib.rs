//! Shared test helpers: the running binary and other processes, clients of its protocols, and their
//! messages for prost.
//!
//! Only tests and benchmarks depend on this crate, which depends on no other crate of the
//! workspace.

#![allow(missing_docs, reason = "names say it, and messages follow their protocols")]

pub mod emulators;
pub mod grpc;
pub mod otlppb;
pub mod pprof;
mod process;
pub mod prometheus;
pub mod prompb;
pub mod protobuf;
pub mod proxy;
pub mod random;
pub mod remote_read;
pub mod remote_write;
pub mod s3;
mod server;

pub use process::*;
pub use server::{Server, binary, command};
