//! S3 servers of others, started as the tests of the binary start them.

#![allow(dead_code, reason = "the tests of the binary use the rest")]

#[path = "../../../tests/support/process.rs"]
mod process;
#[path = "../../../tests/support/s3.rs"]
pub(super) mod s3;

use process::{
    Child, TemporaryDirectory, free_port, request, spawn_listening, temporary_directory,
};
