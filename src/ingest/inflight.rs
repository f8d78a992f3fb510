//! Limit on the bytes that all requests hold at once.

use std::sync::Arc;

use prometheus::IntGauge;

use wire::InflightFull;

use crate::flags::names::INFLIGHT;

/// Bytes held by all requests, and their limit.
#[derive(Debug)]
pub(super) struct Inflight {
    bytes_max: usize,
    held: std::sync::atomic::AtomicUsize,
    gauge: IntGauge,
}

impl Inflight {
    pub(super) fn new(bytes_max: usize, gauge: IntGauge) -> Inflight {
        Inflight { bytes_max, held: Default::default(), gauge }
    }

    fn add(&self, bytes: usize) -> usize {
        self.gauge.add(bytes as i64);
        self.held.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed) + bytes
    }

    fn remove(&self, bytes: usize) {
        self.gauge.sub(bytes as i64);
        self.held.fetch_sub(bytes, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Bytes held by one request, released when it is dropped.
#[derive(Debug)]
pub(super) struct InflightReservation {
    inflight: Arc<Inflight>,
    bytes: usize,
}

impl InflightReservation {
    pub(super) fn new(inflight: &Arc<Inflight>) -> InflightReservation {
        InflightReservation { inflight: Arc::clone(inflight), bytes: 0 }
    }

    /// Reserves more bytes.
    ///
    /// Errors: the limit is reached; earlier bytes stay reserved.
    pub(super) fn add(&mut self, bytes: usize) -> Result<(), InflightFull> {
        let reached = self.inflight.add(bytes);
        if reached > self.inflight.bytes_max {
            self.inflight.remove(bytes);
            let limit = self.inflight.bytes_max;
            return Err(InflightFull { reached, limit, name: INFLIGHT });
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Sets the bytes to those really held, whatever the limit.
    pub(super) fn set(&mut self, bytes: usize) {
        self.inflight.add(bytes);
        self.inflight.remove(self.bytes);
        self.bytes = bytes;
    }
}

impl Drop for InflightReservation {
    fn drop(&mut self) {
        self.inflight.remove(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_end_at_the_limit_and_with_their_request() {
        let gauge = IntGauge::new("held", "held").unwrap();
        let inflight = Arc::new(Inflight::new(100, gauge.clone()));
        let mut first = InflightReservation::new(&inflight);
        let mut second = InflightReservation::new(&inflight);
        assert_eq!(first.add(60), Ok(()));
        let full = InflightFull { reached: 120, limit: 100, name: INFLIGHT };
        assert_eq!(second.add(60), Err(full));
        assert_eq!(second.add(40), Ok(()));
        first.set(10);
        assert_eq!((gauge.get(), second.add(50)), (50, Ok(())));
        drop(second);
        assert_eq!(gauge.get(), 10);
        drop(first);
        assert_eq!(gauge.get(), 0);
    }
}
