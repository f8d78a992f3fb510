//! The twin: knowledge of each sample from requests and answers.
//!
//! A cell is a series at a time. Its events are listed in the order of sending, each sure, open, or
//! known not to have happened. Any unsure event after the last sure one may have been the last: so
//! these are the values that may be read.

use std::collections::{BTreeMap, BTreeSet};

/// Number of a series, and a time.
pub(super) type Cell = (u8, i64);

/// Value of a sample, unique to its write; `None` where there is no sample.
pub(super) type Content = Option<u64>;

/// Knowledge of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Certainty {
    /// It is under way.
    Open,
    /// It was acknowledged.
    Yes,
    /// The answer was an error that leaves it unknown.
    Maybe,
    /// The answer was that nothing is stored.
    No,
}

/// A sent request.
#[derive(Debug)]
struct Request {
    certainty: Certainty,
    /// Process that received it.
    life: u32,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Write,
    /// Deletes these series in a range of time.
    Delete {
        series: BTreeSet<u8>,
        start_ms: i64,
        end_ms: i64,
    },
}

#[derive(Debug, Clone, Copy)]
struct Event {
    what: What,
    request: usize,
    /// True if a write may have refused this sample alone, without an answer.
    may_be_refused: bool,
}

impl Event {
    fn new(what: What, request: usize) -> Event {
        Event { what, request, may_be_refused: false }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Write(u64),
    Delete,
    /// A delete that may have preceded the event before it.
    RacingDelete,
    /// An expiry at this look: the sample may have been deleted.
    Expired(u32),
}

/// Knowledge of all samples.
#[derive(Debug)]
pub(super) struct Known {
    cells: BTreeMap<Cell, Vec<Event>>,
    requests: Vec<Request>,
    looks: u32,
    refused_before_ms: i64,
    /// Latest sent time.
    newest_ms: Option<i64>,
    /// History of events, which every failure report shows.
    pub(super) story: Vec<String>,
}

/// Values that may be read by a look that began at some time.
#[derive(Debug)]
pub(super) struct Before {
    allowed: BTreeMap<Cell, Vec<Content>>,
    events: BTreeMap<Cell, usize>,
}

impl Known {
    pub(super) fn new() -> Known {
        Known {
            cells: BTreeMap::new(),
            requests: Vec::new(),
            looks: 0,
            refused_before_ms: i64::MIN,
            newest_ms: None,
            story: Vec::new(),
        }
    }

    pub(super) fn tell(&mut self, what: String) {
        self.story.push(what);
    }

    pub(super) fn violated(&self, what: &str) -> ! {
        let from = self.story.len().saturating_sub(60);
        let story = self.story[from..].join("\n  ");
        panic!("{what}\nafter:\n  {story}");
    }

    /// Returns the latest sent time: no acknowledged sample is later.
    pub(super) fn newest_ms(&self) -> Option<i64> {
        self.newest_ms
    }

    fn request(&mut self, life: u32, kind: Kind) -> usize {
        self.requests.push(Request { certainty: Certainty::Open, life, kind });
        self.requests.len() - 1
    }

    /// Notes that a write of some values is sent.
    pub(super) fn send(&mut self, life: u32, samples: &[(Cell, u64)]) -> usize {
        let request = self.request(life, Kind::Write);
        // Unfinished deletes may be applied after it.
        let mut open = Vec::new();
        for (number, other) in self.requests.iter().enumerate() {
            let may_come = match other.certainty {
                Certainty::Open => true,
                Certainty::Maybe => other.life == life,
                Certainty::Yes | Certainty::No => false,
            };
            if let Kind::Delete { series, start_ms, end_ms } = &other.kind
                && may_come
            {
                open.push((number, series.clone(), *start_ms..=*end_ms));
            }
        }
        self.newest_ms = samples.iter().map(|(cell, _)| cell.1).max().max(self.newest_ms);
        for (cell, value) in samples {
            let events = self.cells.entry(*cell).or_default();
            events.push(Event::new(What::Write(*value), request));
            for (number, series, times) in &open {
                if series.contains(&cell.0) && times.contains(&cell.1) {
                    events.push(Event::new(What::RacingDelete, *number));
                }
            }
        }
        request
    }

    /// Notes that a delete is sent.
    pub(super) fn delete(
        &mut self,
        life: u32,
        series: BTreeSet<u8>,
        (start_ms, end_ms): (i64, i64),
    ) -> usize {
        let kind = Kind::Delete { series: series.clone(), start_ms, end_ms };
        let request = self.request(life, kind);
        for number in series {
            for (_, events) in self.cells.range_mut((number, start_ms)..=(number, end_ms)) {
                let is_racing = events.iter().any(|event| {
                    let sent = &self.requests[event.request];
                    matches!(event.what, What::Write(_)) && sent.certainty == Certainty::Open
                });
                let what = if is_racing { What::RacingDelete } else { What::Delete };
                events.push(Event::new(what, request));
            }
        }
        request
    }

    /// Notes the answer to a request; refused samples are not written.
    pub(super) fn answered(&mut self, request: usize, certainty: Certainty, refused: &[Cell]) {
        self.requests[request].certainty = certainty;
        for cell in refused {
            if let Some(events) = self.cells.get_mut(cell) {
                events.retain(|e| e.request != request || !matches!(e.what, What::Write(_)));
            }
        }
    }

    /// Notes the death of a process: its open requests remain unanswered.
    pub(super) fn died(&mut self, life: u32) {
        for request in &mut self.requests {
            if request.life == life && request.certainty == Certainty::Open {
                request.certainty = Certainty::Maybe;
            }
        }
    }

    /// Allows samples before a time to expire, and samples before another one to be refused.
    pub(super) fn expire(&mut self, before_ms: i64, refused_before_ms: i64) {
        self.refused_before_ms = self.refused_before_ms.max(refused_before_ms);
        self.looks += 1;
        for ((_, time_ms), events) in &mut self.cells {
            let has_expired = matches!(events.last(), Some(Event { what: What::Expired(_), .. }));
            if *time_ms < before_ms && !events.is_empty() && !has_expired {
                events.push(Event::new(What::Expired(self.looks), 0));
            }
        }
    }

    fn certainty(&self, event: &Event) -> Certainty {
        match event.what {
            What::Write(_) if event.may_be_refused => Certainty::Maybe,
            What::Write(_) | What::Delete => self.requests[event.request].certainty,
            What::RacingDelete => match self.requests[event.request].certainty {
                Certainty::No => Certainty::No,
                _ => Certainty::Maybe,
            },
            What::Expired(_) => Certainty::Maybe,
        }
    }

    fn allowed(&self, events: &[Event]) -> Vec<Content> {
        let mut allowed = Vec::new();
        for event in events.iter().rev() {
            let certainty = self.certainty(event);
            if certainty == Certainty::No {
                continue;
            }
            allowed.push(match event.what {
                What::Write(value) => Some(value),
                _ => None,
            });
            if certainty == Certainty::Yes {
                return allowed;
            }
        }
        allowed.push(None);
        allowed
    }

    /// Returns the cells that may hold a sample.
    pub(super) fn cells(&self) -> impl Iterator<Item = Cell> {
        self.cells.keys().copied()
    }

    /// Returns writes that may not be stored, for a retry.
    pub(super) fn unsure(&self) -> Option<Vec<(Cell, u64)>> {
        let is_unsure = |r: &&Request| {
            matches!(r.kind, Kind::Write) && matches!(r.certainty, Certainty::Maybe | Certainty::No)
        };
        let request = self.requests.iter().rposition(|r| is_unsure(&r))?;
        let mut samples = Vec::new();
        for (cell, events) in &self.cells {
            for event in events.iter().filter(|event| event.request == request) {
                if let What::Write(value) = event.what {
                    samples.push((*cell, value));
                }
            }
        }
        (!samples.is_empty()).then_some(samples)
    }

    /// Returns the values that may be read from now on.
    pub(super) fn before(&self) -> Before {
        let allowed = |(cell, events): (&Cell, &Vec<Event>)| (*cell, self.allowed(events));
        let count = |(cell, events): (&Cell, &Vec<Event>)| (*cell, events.len());
        Before {
            allowed: self.cells.iter().map(allowed).collect(),
            events: self.cells.iter().map(count).collect(),
        }
    }

    /// Compares with a read that was concurrent with other requests.
    pub(super) fn check_concurrent(&self, found: &BTreeMap<Cell, u64>, before: &Before) {
        self.check_sent(found);
        for (cell, events) in &self.cells {
            let content = found.get(cell).copied();
            let earlier = before.allowed.get(cell).map_or(&[None][..], Vec::as_slice);
            let meanwhile =
                &events[before.events.get(cell).copied().unwrap_or(0).min(events.len())..];
            let is_allowed = earlier.contains(&content)
                || self.allowed(events).contains(&content)
                || meanwhile.iter().any(|event| match event.what {
                    What::Write(value) => content == Some(value),
                    _ => content.is_none(),
                });
            if !is_allowed {
                self.violated(&format!(
                    "{cell:?} is {content:?}, may be {earlier:?}; {}",
                    self.told(events)
                ));
            }
        }
    }

    /// Compares with a read without concurrent requests, and resolves unsure events: all of them in
    /// a later life, else only those that are visible.
    pub(super) fn check(&mut self, found: &BTreeMap<Cell, u64>, life: u32) {
        self.check_sent(found);
        for (cell, events) in &self.cells {
            let (content, allowed) = (found.get(cell).copied(), self.allowed(events));
            if !allowed.contains(&content) {
                self.violated(&format!(
                    "{cell:?} is {content:?}, may be {allowed:?}; {}",
                    self.told(events)
                ));
            }
        }
        self.learn(found, life);
        self.check_days(found);
    }

    fn told(&self, events: &[Event]) -> String {
        let told = events.iter().map(|event| {
            let life = self.requests.get(event.request).map_or(0, |request| request.life);
            format!(
                "{:?} {} in life {life}: {:?}",
                event.what,
                event.request,
                self.certainty(event)
            )
        });
        told.collect::<Vec<_>>().join(", ")
    }

    fn check_sent(&self, found: &BTreeMap<Cell, u64>) {
        for (cell, value) in found {
            if !self.cells.contains_key(cell) {
                self.violated(&format!("{cell:?} has {value} and was never sent"));
            }
        }
    }

    /// Resolves requests, each of which is done completely or not at all.
    fn learn(&mut self, found: &BTreeMap<Cell, u64>, life: u32) {
        let mut seen: BTreeMap<usize, [Option<Cell>; 2]> = BTreeMap::new();
        for (cell, events) in &self.cells {
            let content = found.get(cell).copied();
            let mut rest = events.iter().filter(|e| self.certainty(e) != Certainty::No);
            let Some(last) = rest.next_back() else { continue };
            if self.certainty(last) != Certainty::Maybe {
                continue;
            }
            let others: Vec<&Event> = rest.collect();
            let has_happened = match last.what {
                What::Write(value) => {
                    let is_only = !others.iter().any(|e| e.what == What::Write(value));
                    match content == Some(value) {
                        true if is_only => true,
                        // An existing sample may have refused the new one.
                        false if others.is_empty() && cell.1 >= self.refused_before_ms => false,
                        _ => continue,
                    }
                }
                What::Delete => match others.last() {
                    Some(e)
                        if matches!(e.what, What::Write(_))
                            && self.certainty(e) == Certainty::Yes =>
                    {
                        content.is_none()
                    }
                    _ => continue,
                },
                What::RacingDelete | What::Expired(_) => continue,
            };
            seen.entry(last.request).or_default()[usize::from(has_happened)] = Some(*cell);
        }
        for (request, [without, with]) in seen {
            if let (Some(without), Some(with)) = (without, with) {
                self.violated(&format!(
                    "request {request} has been done in part: not at {without:?} ({}), at {with:?} ({})",
                    self.told(&self.cells[&without]),
                    self.told(&self.cells[&with]),
                ));
            }
            let number = request;
            let request = &mut self.requests[number];
            if with.is_some() {
                request.certainty = Certainty::Yes;
                self.may_have_refused(number, found);
            } else if request.life < life {
                request.certainty = Certainty::No;
            }
        }
    }

    /// Marks a write as done whose refusals were not answered.
    fn may_have_refused(&mut self, request: usize, found: &BTreeMap<Cell, u64>) {
        for (cell, events) in &mut self.cells {
            let is_fresh = events.first().is_some_and(|event| event.request == request);
            if is_fresh && cell.1 >= self.refused_before_ms {
                continue;
            }
            for event in events.iter_mut().filter(|event| event.request == request) {
                if let What::Write(value) = event.what {
                    event.may_be_refused = found.get(cell) != Some(&value);
                }
            }
        }
    }

    /// Checks that a day that may expire is there whole or not at all.
    fn check_days(&self, found: &BTreeMap<Cell, u64>) {
        let mut seen: BTreeMap<(i64, u32), [Option<Cell>; 2]> = BTreeMap::new();
        for (cell, events) in &self.cells {
            let [.., written, Event { what: What::Expired(look), .. }] = &events[..] else {
                continue;
            };
            let is_write = matches!(written.what, What::Write(_));
            if is_write && self.certainty(written) == Certainty::Yes {
                let day = cell.1.div_euclid(crate::window::PARTITION_MS);
                let is_found = found.contains_key(cell);
                seen.entry((day, *look)).or_default()[usize::from(is_found)] = Some(*cell);
            }
        }
        for ((day, _), cells) in seen {
            if let [Some(gone), Some(kept)] = cells {
                self.violated(&format!("day {day} is partly there: {kept:?}, not {gone:?}"));
            }
        }
    }
}
