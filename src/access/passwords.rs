//! Users and the bcrypt hashes of their passwords.
//!
//! Such a hash is slow on purpose: 70 ms of a core at the usual cost of 10. So it is computed once
//! for each password, not for each request; one at a time, so that whoever tries passwords takes
//! one core at most; and on a thread that may block. What is remembered of a password is a digest
//! under a key of this process, which is in memory alone.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::str::FromStr as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use bcrypt::HashParts;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Refusal, User};

/// The highest cost of a bcrypt hash: each step doubles the work, and 15 takes a core for seconds,
/// during which other users wait for their first request.
const COST_MAX: u32 = 15;
/// How many hashes are computed at once.
const RUNNING_MAX: usize = 1;
/// How many passwords may wait to be checked.
const WAITING_MAX: usize = 100;
/// How many wrong passwords are remembered, the newest.
const WRONG_MAX: usize = 1_000;

/// What is remembered of a name and a password that were shown.
type Shown = [u8; 32];

/// Bounds the work of all checks of passwords, whatever configuration is in force.
#[derive(Debug)]
pub(crate) struct PasswordChecks {
    running: Arc<Semaphore>,
    waiting: Semaphore,
}

impl Default for PasswordChecks {
    fn default() -> PasswordChecks {
        PasswordChecks {
            running: Arc::new(Semaphore::new(RUNNING_MAX)),
            waiting: Semaphore::new(WAITING_MAX),
        }
    }
}

impl PasswordChecks {
    /// Waits for the turn of a password; `None` where too many wait already.
    pub(super) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        let _waiting = self.waiting.try_acquire().ok()?;
        let running = Arc::clone(&self.running).acquire_owned().await;
        Some(running.expect("the semaphore is never closed"))
    }
}

/// The users.
pub(super) struct Passwords {
    users: BTreeMap<String, Known>,
    key: hmac::Key,
    wrong: Mutex<Recent>,
}

/// A user, and the password once it was shown.
struct Known {
    user: User,
    hash: String,
    right: Mutex<Option<Shown>>,
}

/// The newest of what was wrong.
#[derive(Default)]
struct Recent {
    all: HashSet<Shown>,
    order: VecDeque<Shown>,
}

impl std::fmt::Debug for Passwords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Passwords").field("users", &self.users.keys()).finish_non_exhaustive()
    }
}

impl Passwords {
    /// No users.
    pub(super) fn new() -> Passwords {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .expect("the system has random numbers, as TLS needs them too");
        Passwords { users: BTreeMap::new(), key, wrong: Mutex::default() }
    }

    pub(super) fn add(&mut self, user: User, hash: &str) -> Result<(), String> {
        if user.name.contains(':') {
            return Err("a name with a colon cannot be sent by basic authentication".to_owned());
        }
        let parts = HashParts::from_str(hash).map_err(|_| "not a bcrypt hash".to_owned())?;
        let cost = parts.get_cost();
        if cost > COST_MAX {
            return Err(format!(
                "cost {cost} of the bcrypt hash exceeds the limit of {COST_MAX}: make the hash \
                 again with a lower cost, as by htpasswd -nBC 10"
            ));
        }
        if cost < 4 {
            return Err(format!("cost {cost} of the bcrypt hash is below 4"));
        }
        let known = Known { hash: hash.to_owned(), right: Mutex::new(None), user };
        self.users.insert(known.user.name.to_string(), known);
        Ok(())
    }

    /// Goes on with what is remembered of passwords whose hashes are the same as before.
    pub(super) fn inherit(&mut self, before: &Passwords) {
        self.key = before.key.clone();
        for (name, known) in &mut self.users {
            let earlier = before.users.get(name);
            if let Some(earlier) = earlier.filter(|earlier| earlier.hash == known.hash) {
                known.right = Mutex::new(*earlier.right());
            }
        }
        // Of what was wrong nobody knows whose it was.
        if self.hashes() == before.hashes() {
            self.wrong = Mutex::new(std::mem::take(&mut before.wrong()));
        }
    }

    /// The users' names and hashes, in the order of the names.
    pub(super) fn hashes(&self) -> Vec<(String, String)> {
        let pair = |(name, known): (&String, &Known)| (name.clone(), known.hash.clone());
        self.users.iter().map(pair).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// The user of a name, if the password is right.
    pub(super) async fn check(
        &self,
        name: &[u8],
        password: Vec<u8>,
        checks: &PasswordChecks,
    ) -> Result<User, Refusal> {
        let Some(stand_in) = self.stand_in(name) else { return Err(Refusal::Unauthenticated) };
        let known = std::str::from_utf8(name).ok().and_then(|name| self.users.get(name));
        let shown = self.shown(name, &password);
        if let Some(outcome) = self.remembered(known, &shown) {
            return outcome;
        }
        let turn = checks.turn().await.ok_or(Refusal::Busy)?;
        // Another request may have shown the same meanwhile.
        if let Some(outcome) = self.remembered(known, &shown) {
            return outcome;
        }
        let hash = known.unwrap_or(stand_in).hash.clone();
        let is_right = tokio::task::spawn_blocking(move || {
            let is_right = bcrypt::verify(password, &hash).unwrap_or(false);
            // Kept where nobody waits any more, too.
            drop(turn);
            is_right
        });
        match (known, is_right.await.unwrap_or(false)) {
            (Some(known), true) => {
                *known.right() = Some(shown);
                Ok(known.user.clone())
            }
            _ => {
                self.wrong().note(shown);
                Err(Refusal::Unauthenticated)
            }
        }
    }

    /// Whose hash is computed where nobody has this name: always the same one, so that the time
    /// does not tell who is a user, whatever the costs of their hashes.
    fn stand_in(&self, name: &[u8]) -> Option<&Known> {
        let tag = hmac::sign(&self.key, name);
        let number = tag.as_ref().iter().fold(0_u64, |n, byte| n << 8 | u64::from(*byte));
        let count = self.users.len() as u64;
        let place = number.checked_rem(count).and_then(|place| usize::try_from(place).ok())?;
        self.users.values().nth(place)
    }

    fn shown(&self, name: &[u8], password: &[u8]) -> Shown {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&(name.len() as u64).to_le_bytes());
        context.update(name);
        context.update(password);
        let mut shown = [0; 32];
        shown.copy_from_slice(context.sign().as_ref());
        shown
    }

    fn remembered(&self, known: Option<&Known>, shown: &Shown) -> Option<Result<User, Refusal>> {
        if let Some(known) = known {
            let right = *known.right();
            if right.is_some_and(|right| verify_slices_are_equal(&right, shown).is_ok()) {
                return Some(Ok(known.user.clone()));
            }
        }
        self.wrong().all.contains(shown).then_some(Err(Refusal::Unauthenticated))
    }

    fn wrong(&self) -> MutexGuard<'_, Recent> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn right(&self) -> MutexGuard<'_, Option<Shown>> {
        self.right.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recent {
    fn note(&mut self, shown: Shown) {
        if !self.all.insert(shown) {
            return;
        }
        self.order.push_back(shown);
        if self.order.len() > WRONG_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.all.remove(&oldest);
        }
    }
}
