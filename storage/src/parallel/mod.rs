//! Work that takes a while: dealt to threads ([`shares`]), or in turns with other tasks
//! ([`breather`]).

pub(crate) mod breather;
pub(crate) mod shares;
