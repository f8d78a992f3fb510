//! Long loops: split among threads ([`shares`]), one after the other on some threads ([`workers`]), or
//! interrupted for other tasks ([`yielder`]).

pub(crate) mod shares;
pub(crate) mod workers;
pub(crate) mod yielder;
