//! Expiry: deletion of samples beyond the retention, by whole days ([`partitions`]) and by rules
//! ([`rules`]). The limits themselves are in [`crate::retention`].

mod dead_log;
mod partitions;
mod rules;

pub(crate) use dead_log::drop_dead_log;
pub(crate) use partitions::{delete_expired, delete_partition, has_deleted_records, hide_by_size};
pub(crate) use rules::{expire, is_cleaning_due};
