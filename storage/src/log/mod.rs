//! The log: writes wait in a [`queue`], are decided on sample by sample ([`decide`]), share one
//! [`record`] ([`commit`]), and are applied to the head once the record is durable ([`apply`]). A
//! start and a reader apply the same records again ([`replay`]).

mod apply;
pub(crate) mod commit;
pub(crate) mod counters;
mod decide;
mod drop;
mod failure;
pub(crate) mod queue;
pub(crate) mod record;
pub(crate) mod replay;
mod values;
