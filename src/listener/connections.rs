//! Open connections: their phases, and the choice of one that is closed for a new client.
//!
//! A connection that has not sent its first head (after a handshake, with TLS) is greeting. At the
//! maximum of connections, each new one replaces a connection of the first kind that exists, and of
//! the address with most of that kind the oldest:
//!
//! ```text
//! 1. greeting, or in the middle of a head, for longer than GREETING_GRACE
//! 2. idle between two requests
//! 3. for longer than STALL_GRACE leaving a response unread, or sending nothing of a body
//! ```
//!
//! Clients of a reverse proxy share an address, so there is no limit per address.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::query::active::network_of;

/// Minimum time before a connection without a request is replaced.
const GREETING_GRACE: Duration = Duration::from_millis(500);
/// Minimum time of an unread response, or of a pause in a body, before its connection is replaced.
const STALL_GRACE: Duration = Duration::from_secs(1);
/// Interval of checks of all connections.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// All open connections.
pub(super) struct Connections {
    connections_max: usize,
    /// Maximum time for a head, from its first byte or the start of the connection.
    head_timeout: Duration,
    open: Mutex<Open>,
    /// Notified when a connection ends.
    ended: Notify,
}

#[derive(Default)]
struct Open {
    next_id: u64,
    connections: BTreeMap<u64, Arc<ConnectionState>>,
}

/// State of one connection.
struct ConnectionState {
    network: IpAddr,
    activity: Mutex<Activity>,
    close: Arc<Notify>,
}

#[derive(Debug, Clone, Copy)]
struct Activity {
    phase: Phase,
    since: Instant,
    /// Running requests.
    request_count: usize,
    /// True if bytes between requests belong to a head, as in HTTP/1.
    has_heads: bool,
    /// Time since when the client receives no bytes.
    stalled_since: Option<Instant>,
    /// Requests whose body the server waits for, and the start of the last wait.
    body_wait_count: usize,
    body_wait_since: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Greeting,
    Head,
    Answering,
    Idle,
}

/// Reason to replace a connection, in order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Dispensable {
    NoRequest,
    Idle,
    Stalled,
}

impl Activity {
    /// Returns the reason to replace the connection, its start, and the earliest time.
    fn dispensable(&self) -> Option<(Dispensable, Instant, Instant)> {
        match (self.phase, self.stalled_since) {
            (Phase::Greeting | Phase::Head, _) => {
                Some((Dispensable::NoRequest, self.since, self.since + GREETING_GRACE))
            }
            (_, Some(since)) => Some((Dispensable::Stalled, since, since + STALL_GRACE)),
            (Phase::Idle, None) => Some((Dispensable::Idle, self.since, self.since)),
            (Phase::Answering, None) if self.body_wait_count == self.request_count => {
                let since = self.body_wait_since;
                Some((Dispensable::Stalled, since, since + STALL_GRACE))
            }
            (Phase::Answering, None) => None,
        }
    }
}

impl Connections {
    /// Returns an empty set.
    pub(super) fn new(connections_max: usize, head_timeout: Duration) -> Arc<Connections> {
        let open = Mutex::default();
        Arc::new(Connections { connections_max, head_timeout, open, ended: Notify::new() })
    }

    /// Waits for a slot for a connection, and closes another one if possible.
    pub(super) async fn admit(self: &Arc<Self>, address: SocketAddr) -> Tracked {
        loop {
            let look_at = match self.try_admit(address, Instant::now()) {
                Ok(tracked) => return tracked,
                Err(look_at) => look_at,
            };
            tokio::select! {
                () = self.ended.notified() => {}
                () = tokio::time::sleep_until(look_at) => {}
            }
        }
    }

    /// Admits a connection, or returns the time of the next attempt.
    fn try_admit(self: &Arc<Self>, address: SocketAddr, now: Instant) -> Result<Tracked, Instant> {
        let mut open = self.open();
        if open.connections.len() >= self.connections_max {
            let id = dispensable(&open.connections, now)?;
            if let Some(state) = open.connections.remove(&id) {
                state.close.notify_one();
            }
        }
        let id = open.next_id;
        open.next_id += 1;
        let activity = Activity {
            phase: Phase::Greeting,
            since: now,
            request_count: 0,
            has_heads: false,
            stalled_since: None,
            body_wait_count: 0,
            body_wait_since: now,
        };
        let (network, close) = (network_of(address), Arc::new(Notify::new()));
        let state = Arc::new(ConnectionState { network, activity: Mutex::new(activity), close });
        open.connections.insert(id, Arc::clone(&state));
        Ok(Tracked(Arc::new(ConnectionEntry { id, state, all: Arc::clone(self) })))
    }

    /// Closes connections that take too long to send a head, at each interval.
    pub(super) async fn sweep_forever(&self) {
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            self.sweep(Instant::now());
        }
    }

    fn sweep(&self, now: Instant) {
        for state in self.open().connections.values() {
            let Activity { phase, since, .. } = *state.activity();
            let is_late = now.saturating_duration_since(since) >= self.head_timeout;
            if is_late && matches!(phase, Phase::Greeting | Phase::Head) {
                state.close.notify_one();
            }
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the connection to replace, or the time of the next attempt.
fn dispensable(
    connections: &BTreeMap<u64, Arc<ConnectionState>>,
    now: Instant,
) -> Result<u64, Instant> {
    let mut next = now + SWEEP_INTERVAL;
    let mut found = Vec::new();
    for (id, state) in connections {
        let Some((why, since, from)) = state.activity().dispensable() else { continue };
        if from <= now {
            found.push((why, state.network, since, *id));
        } else {
            next = next.min(from);
        }
    }
    let Some(first) = found.iter().map(|(why, ..)| *why).min() else { return Err(next) };
    found.retain(|(why, ..)| *why == first);
    let mut counts = HashMap::new();
    for (_, network, ..) in &found {
        *counts.entry(*network).or_insert(0_usize) += 1;
    }
    let most = counts.values().copied().max().unwrap_or_default();
    let of_most = found.iter().filter(|(_, network, ..)| counts[network] == most);
    of_most.min_by_key(|(_, _, since, id)| (*since, *id)).map(|(.., id)| *id).ok_or(next)
}

impl ConnectionState {
    fn activity(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connection that is open until the last clone is dropped.
#[derive(Clone)]
pub(super) struct Tracked(Arc<ConnectionEntry>);

struct ConnectionEntry {
    id: u64,
    state: Arc<ConnectionState>,
    all: Arc<Connections>,
}

impl Drop for ConnectionEntry {
    fn drop(&mut self) {
        self.all.open().connections.remove(&self.id);
        self.all.ended.notify_one();
    }
}

impl Tracked {
    /// Notified once the connection has to close.
    pub(super) fn close(&self) -> &Arc<Notify> {
        &self.0.state.close
    }

    /// Marks the end of the handshake, which starts the time for the first request.
    pub(super) fn end_handshake(&self) {
        self.activity().since = Instant::now();
    }

    /// Sets that bytes between requests belong to a head, as in HTTP/1.
    pub(super) fn expect_heads(&self) {
        self.activity().has_heads = true;
    }

    /// Records received bytes.
    pub(super) fn note_read(&self) {
        let mut activity = self.activity();
        if activity.phase == Phase::Idle && activity.has_heads {
            activity.phase = Phase::Head;
            activity.since = Instant::now();
        }
    }

    /// Records whether written bytes wait for the client.
    pub(super) fn note_write(&self, is_stalled: bool) {
        let mut activity = self.activity();
        match is_stalled {
            true => _ = activity.stalled_since.get_or_insert_with(Instant::now),
            false => activity.stalled_since = None,
        }
    }

    /// Records a request, which runs until the returned value is dropped.
    pub(super) fn begin_request(&self) -> Answering {
        let mut activity = self.activity();
        activity.request_count += 1;
        activity.phase = Phase::Answering;
        Answering(self.clone())
    }

    /// Records that the server waits for the body of a request, until the returned value is dropped.
    pub(super) fn wait_for_body(&self) -> BodyWait {
        let mut activity = self.activity();
        activity.body_wait_count += 1;
        activity.body_wait_since = Instant::now();
        BodyWait(self.clone())
    }

    fn activity(&self) -> MutexGuard<'_, Activity> {
        self.0.state.activity()
    }
}

/// Wait for the body of a request.
pub(super) struct BodyWait(Tracked);

impl Drop for BodyWait {
    fn drop(&mut self) {
        self.0.activity().body_wait_count -= 1;
    }
}

/// Running request.
pub(super) struct Answering(Tracked);

impl Drop for Answering {
    fn drop(&mut self) {
        let mut activity = self.0.activity();
        activity.request_count -= 1;
        if activity.request_count == 0 {
            activity.phase = Phase::Idle;
            activity.since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 1))
    }

    fn is_closed(tracked: &Tracked) -> bool {
        use futures::FutureExt as _;
        tracked.close().notified().now_or_never().is_some()
    }

    fn admit(all: &Arc<Connections>, last: u8, now: Instant) -> Tracked {
        all.try_admit(address(last), now).unwrap_or_else(|_| panic!("there is no room for it"))
    }

    #[tokio::test(start_paused = true)]
    async fn one_without_a_request_ends_of_the_address_with_most() {
        let all = Connections::new(4, HEAD_TIMEOUT);
        let now = Instant::now();
        let other = admit(&all, 1, now);
        let many: Vec<_> = (0..3).map(|_| admit(&all, 2, now)).collect();
        // Within its grace, none is replaced.
        assert_eq!(all.try_admit(address(3), now).err(), Some(now + GREETING_GRACE));
        tokio::time::advance(GREETING_GRACE).await;
        let new = all.admit(address(3)).await;
        assert!(!is_closed(&other) && !is_closed(&new));
        assert_eq!(many.iter().map(is_closed).collect::<Vec<_>>(), [true, false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_ones_and_unread_ones_come_behind_and_busy_ones_stay() {
        let all = Connections::new(4, HEAD_TIMEOUT);
        let now = Instant::now();
        let [greeting, idle, stalled, busy] = [1, 2, 3, 4].map(|last| admit(&all, last, now));
        drop(idle.begin_request());
        let requests = [stalled.begin_request(), busy.begin_request()];
        stalled.note_write(true);
        tokio::time::advance(STALL_GRACE).await;
        let mut new = Vec::new();
        for closed in [&greeting, &idle, &stalled] {
            let admitted = admit(&all, 5, Instant::now());
            new.push(admitted.begin_request());
            assert!(is_closed(closed));
        }
        assert!(all.try_admit(address(6), Instant::now()).is_err() && !is_closed(&busy));
        // The end of a connection frees a slot.
        drop((requests, busy));
        let _last = all.admit(address(6)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_sends_nothing_of_its_body_makes_room() {
        let all = Connections::new(2, HEAD_TIMEOUT);
        let [slow, sending] = [1, 2].map(|last| admit(&all, last, Instant::now()));
        let _requests = [slow.begin_request(), sending.begin_request(), sending.begin_request()];
        let waits = [slow.wait_for_body(), sending.wait_for_body()];
        // Within its grace, none is replaced. Another request of the second one is computed.
        let now = Instant::now();
        assert_eq!(all.try_admit(address(3), now).err(), Some(now + STALL_GRACE));
        tokio::time::advance(STALL_GRACE).await;
        let new = admit(&all, 3, Instant::now());
        assert!(is_closed(&slow) && !is_closed(&sending));
        let _answering = new.begin_request();
        drop(waits);
        assert!(all.try_admit(address(4), Instant::now()).is_err() && !is_closed(&sending));
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_to_come_in_time_and_an_idle_connection_has_more() {
        let all = Connections::new(9, HEAD_TIMEOUT);
        let [silent, idle, trickling] = [1, 2, 3].map(|last| admit(&all, last, Instant::now()));
        for tracked in [&idle, &trickling] {
            tracked.expect_heads();
            drop(tracked.begin_request());
        }
        trickling.note_read();
        tokio::time::advance(HEAD_TIMEOUT / 2).await;
        trickling.note_read();
        all.sweep(Instant::now());
        assert!(![&silent, &idle, &trickling].into_iter().any(is_closed));
        tokio::time::advance(HEAD_TIMEOUT / 2).await;
        all.sweep(Instant::now());
        assert!(is_closed(&silent) && is_closed(&trickling) && !is_closed(&idle));
    }
}
