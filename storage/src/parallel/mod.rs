//! Long loops: split among threads ([`shares`]), queued for a bounded number of threads ([`workers`]),
//! or interrupted for other tasks ([`yielder`]).

pub(crate) mod shares;
pub(crate) mod workers;
pub(crate) mod yielder;
