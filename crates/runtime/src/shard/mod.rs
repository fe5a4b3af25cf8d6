//! The shard: the one owner of some instances, as a state machine that a driver carries.
//!
//! [`Shard::handle`] takes an event and changes memory, which may run ahead of the store; [`Shard::flush`] takes the turns that are wanted
//! and sends the next commit. Effects of a change come out only when it is durable (docs/adr/0010).
//!
//! It owns no clock, no task, no socket, and draws no random number.

mod answers;
mod arrivals;
mod calls;
mod claim;
mod commits;
mod damage;
mod end;
mod entities;
mod feed;
mod forget;
mod given_up;
mod journal;
mod look;
mod memory;
mod operations;
mod outbox;
mod park;
mod reconcile;
mod recover;
mod repeats;
mod requests;
mod room;
mod routed;
mod schedule;
mod serve;
mod slot;
mod start;
mod sweep;
mod timers;
mod turn;
mod view;

use std::collections::{HashMap, VecDeque};

use abide_store::rows::Scan;
use abide_store::tables::heads::CommitId;
use abide_workflow::InstanceId;

use crate::config::Config;
use crate::event::{CallId, Effect, Event, Notice, Stopped};
use crate::lease::{Monotonic, Standing};
use crate::moment::Moment;
use crate::placement::ShardId;
use crate::request::{Refused, Reply, Request, Ticket};
use claim::Phase;
use commits::{After, Commits};
use schedule::{Pace, Schedule};
use slot::Slot;

pub(crate) use feed::Unshown;
pub(crate) use slot::row_status;
pub(crate) use view::view_of_stored;

/// One shard on one node.
#[derive(Debug)]
pub struct Shard {
    id: ShardId,
    config: Config,
    now: Moment,
    phase: Phase,
    commits: Commits,
    commits_made: u64,
    sequence: u64,
    slots: HashMap<InstanceId, Slot>,
    /// Items that wait in slots.
    waiting: usize,
    /// What turns have sent to instances of this shard.
    posted: VecDeque<(InstanceId, slot::Item)>,
    /// Requests that came before recovery was through.
    early: VecDeque<Vec<(Ticket, Request)>>,
    /// Answers kept for clients that may ask again, until they are durable.
    fresh: repeats::Fresh,
    /// Clients that wait for the end of a run.
    awaiting: HashMap<InstanceId, Vec<Ticket>>,
    /// Instances to be served again, and when: the store could not tell of them.
    again: VecDeque<(Monotonic, InstanceId)>,
    /// Deliveries under way from here, and since when.
    calling: HashMap<CallId, timers::Since>,
    /// When those that take long were last looked for.
    looked_after: Option<Monotonic>,
    /// Runs that want a turn and had no room.
    ready: VecDeque<InstanceId>,
    /// Runs that rest in memory, by when they began to.
    resting: VecDeque<memory::Resting>,
    resting_bytes: usize,
    schedule: Schedule,
    pace: Pace,
    paced_until: Option<i64>,
    timers: timers::Window,
    feed: feed::Feed,
    outbox: outbox::Outbox,
    arrivals: arrivals::Arrivals,
    sweep: sweep::Sweep,
    entities: entities::Entities,
    damaged: damage::Damaged,
    reconciliation: reconcile::Reconciliation,
    /// The scan of recovery that is out, and one that is to be repeated.
    scanning: Option<Scan>,
    repeat: Option<recover::Repeat>,
    lazy_since: Option<Monotonic>,
    effects: Vec<Effect>,
}

impl Shard {
    /// A shard that this node would like to own. It begins with the first [`Event::Tick`].
    pub fn new(id: ShardId, config: Config, now: Moment) -> Self {
        Self {
            id,
            now,
            phase: Phase::new(config.lease),
            commits: Commits::new(config.store),
            commits_made: 0,
            sequence: 0,
            slots: HashMap::new(),
            waiting: 0,
            posted: VecDeque::new(),
            early: VecDeque::new(),
            fresh: repeats::Fresh::default(),
            awaiting: HashMap::new(),
            again: VecDeque::new(),
            calling: HashMap::new(),
            looked_after: None,
            ready: VecDeque::new(),
            resting: VecDeque::new(),
            resting_bytes: 0,
            schedule: Schedule::default(),
            pace: Pace::new(config.overdue_per_second),
            paced_until: None,
            timers: timers::Window::default(),
            feed: feed::Feed::default(),
            outbox: outbox::Outbox::default(),
            arrivals: arrivals::Arrivals::default(),
            sweep: sweep::Sweep::default(),
            entities: entities::Entities::default(),
            damaged: damage::Damaged::default(),
            reconciliation: reconcile::Reconciliation::default(),
            scanning: None,
            repeat: None,
            lazy_since: None,
            effects: Vec::new(),
            config,
        }
    }

    /// Which shard this is.
    pub fn id(&self) -> ShardId {
        self.id
    }

    /// Whether the shard is owned by this node, as far as it knows.
    pub fn is_owned(&self) -> bool {
        matches!(self.phase, Phase::Recovering(_) | Phase::Working(_) | Phase::Draining(_))
    }

    /// Whether it takes requests.
    pub fn is_working(&self) -> bool {
        matches!(self.phase, Phase::Working(_))
    }

    /// Instances in memory.
    pub fn instances_in_memory(&self) -> usize {
        self.slots.len()
    }

    /// Work that waits for its turn.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Takes an event. Follow it, or several, with [`Shard::flush`].
    pub fn handle(&mut self, event: Event, now: Moment) {
        self.now = now;
        if matches!(self.phase, Phase::Stopped) {
            return;
        }
        match event {
            Event::Tick => {}
            Event::Asked(ticket, request) => self.on_asked(vec![(ticket, request)]),
            Event::AskedTogether(requests) => self.on_asked(requests),
            Event::HeadRead(result) => self.on_head_read(result),
            Event::CommitAnswered(id, outcome) => self.on_commit_answered(id, outcome),
            Event::Scanned(purpose, result) => self.on_scanned(purpose, result),
            Event::LookedUp(id, looked_up) => self.on_looked_up(&id, *looked_up),
            Event::EntityLookedUp(entity, number, found) => {
                self.on_entity_looked_up(&entity, number, *found);
            }
            Event::PlanFound(id, result) => self.on_plan_found(&id, result),
            Event::Answered(call, answer) => self.on_answered(call, answer),
            Event::Withdrawn(call) => self.on_withdrawn(call),
            Event::Fed(result) => self.on_fed(&result),
            Event::Posted(target, outcome) => self.on_posted(target, &outcome),
            Event::ArrivalsDropped(outcome) => self.on_arrivals_dropped(&outcome),
            Event::ArrivalsHinted => self.arrivals.hinted = true,
            Event::Gone(tickets) => self.on_gone(&tickets),
            Event::Drain => self.drain(),
        }
    }

    /// Does what is due, takes the turns that are wanted, sends the next commit, and gives out what is to be done.
    pub fn flush(&mut self, now: Moment) -> Vec<Effect> {
        self.now = now;
        self.keep_time();
        if self.is_owned() {
            self.serve_ready_entities();
            self.take_ready_turns();
            self.feed_public();
            self.send_outbox();
            self.commit_next();
            self.drop_resting();
            self.drop_idle_entities();
        }
        std::mem::take(&mut self.effects)
    }

    /// After how many milliseconds there is something to do even if nothing happens. The time of day may jump, so not for ever.
    pub fn next_wake_ms(&self) -> u64 {
        const WAKE_MS_MAX: u64 = 5_000;
        // What is due in the time of day is only looked at by a shard at work.
        let wakes = [self.schedule.next_at(), self.timers.next_at()];
        let wall = wakes.into_iter().flatten().min().filter(|_| self.is_working());
        let paced = self.paced_until.filter(|_| wall.is_some_and(|at| at <= self.now.wall.0));
        let wall = paced.or(wall);
        let wall_ms = wall.map(|at| u64::try_from(at.saturating_sub(self.now.wall.0)).unwrap_or(0));
        let mono = self.mono_wakes().into_iter().flatten().min();
        let mono_ms = mono.map(|at| {
            u64::try_from(at.0.saturating_sub(self.now.mono.0).as_millis()).unwrap_or(u64::MAX) + 1
        });
        wall_ms.into_iter().chain(mono_ms).min().unwrap_or(WAKE_MS_MAX).min(WAKE_MS_MAX)
    }

    fn mono_wakes(&self) -> [Option<Monotonic>; 13] {
        [
            self.phase.wake(self.config.alone),
            self.commit_wake(),
            self.feed.wake(),
            self.outbox.wake(),
            self.lazy_since.map(|since| later(since, self.config.lazy_linger)),
            self.resting.front().map(|resting| later(resting.since, self.config.resting_max)),
            self.recovery_wake(),
            self.again.front().map(|(at, _)| *at),
            self.timers.retry_at,
            self.arrivals.retry_at,
            self.entities_wake(),
            self.damaged.retry_at,
            self.reconciliation.wake(),
        ]
    }

    /// What only time brings about.
    fn keep_time(&mut self) {
        self.keep_claim();
        self.keep_commit();
        if !self.is_owned() {
            return;
        }
        if let (Phase::Recovering(owned) | Phase::Working(owned) | Phase::Draining(owned), false) =
            (&self.phase, self.config.alone)
        {
            match owned.ownership.standing(self.now.mono) {
                Standing::Over => return self.stop(Stopped::Lost),
                Standing::Renew => self.commits.hurry(),
                Standing::Firm => {}
            }
        }
        self.keep_recovery();
        self.serve_again();
        self.look_up_entities_again();
        if self.is_working() {
            self.fire_due();
            self.keep_timers();
            self.look_after_calls();
            self.keep_arrivals();
            self.keep_sweep();
            self.keep_damage();
            self.keep_reconciliation();
        }
        self.finish_drain();
    }

    fn stop(&mut self, why: Stopped) {
        self.phase = Phase::Stopped;
        self.slots.clear();
        self.clear_entities();
        self.effects.push(Effect::Stopped(why));
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// New in every claim: a node that lost the shard and took it again must not take an old commit for its own.
    fn next_commit_id(&mut self) -> CommitId {
        self.commits_made += 1;
        let claim = u128::from(self.fencing_token() & 0xff_ffff) << 40;
        CommitId(u128::from(self.config.incarnation) << 64 | claim | u128::from(self.commits_made))
    }

    fn reply(&mut self, ticket: Ticket, reply: Reply) {
        self.effects.push(Effect::Reply(ticket, reply));
    }

    fn refuse(&mut self, ticket: Ticket, why: Refused) {
        self.reply(ticket, Reply::Refused(why));
    }

    fn tell(&mut self, notice: Notice) {
        self.effects.push(Effect::Tell(notice));
    }

    /// Does now what was to follow a commit that is durable.
    fn follow(&mut self, after: After) {
        match after {
            After::Effect(effect) => self.effects.push(effect),
            After::Timer(timer, id) => self.arm_timer(timer, id),
            After::Due(due, id) => self.schedule.add(due, id),
            After::Feed(run, item) => self.feed.ready(run, item, self.now.mono),
            After::Forget(id) => self.forget(&id),
            After::Serve(id) => self.serve(&id),
        }
    }

    #[cfg(feature = "faults")]
    fn has_bug(&self, bug: crate::planted::Bug) -> bool {
        self.config.bug == Some(bug)
    }
}

/// Asks a mistake that can only be planted in test builds.
macro_rules! planted {
    ($shard:expr, $bug:ident) => {{
        #[cfg(feature = "faults")]
        {
            $shard.has_bug($crate::planted::Bug::$bug)
        }
        #[cfg(not(feature = "faults"))]
        {
            false
        }
    }};
}
use planted;

fn later(moment: Monotonic, by: std::time::Duration) -> Monotonic {
    Monotonic(moment.0.saturating_add(by))
}

/// How long to wait before trying again what failed so often.
fn back_off(tries: u32) -> std::time::Duration {
    std::time::Duration::from_millis(20 << tries.min(7))
}
