//! Counts what happened in a simulation, to show how much of everything was tried. It judges nothing.

/// How often each thing happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimCounts {
    pub commits: u64,
    /// Crashes, pauses, lost results and refusals.
    pub faults: u64,
    /// Faults while work was in flight.
    pub faults_in_flight: u64,
    /// Attempts that reached an activity.
    pub attempts: u64,
    /// Calls that a draining node withdrew.
    pub withdrawn_calls: u64,
    /// How often a node took ownership of a shard.
    pub ownership_changes: u64,
    /// How often that was after so many unclean ends that recovery was careful.
    pub careful_recoveries: u64,
    /// Processes that ended of the work of the poisoned instance.
    pub deaths: u64,
    /// Runs that were parked because their owner ended while the head named them.
    pub blamed: u64,
    /// How often a node was asked to drain.
    pub drains: u64,
    /// Starts that were refused because the instance was live.
    pub races: u64,
    /// Runs that were reported as stuck.
    pub stuck: u64,
    /// Control operations that were acknowledged: terminate, rewind, restart, purge.
    pub controls: [u64; 4],
    /// Instances whose row was deleted.
    pub deleted_instances: u64,
    pub simulated_ms: u64,
}

impl SimCounts {
    /// Adds the counts of another simulation.
    pub fn add(&mut self, other: &Self) {
        self.commits += other.commits;
        self.faults += other.faults;
        self.faults_in_flight += other.faults_in_flight;
        self.attempts += other.attempts;
        self.withdrawn_calls += other.withdrawn_calls;
        self.ownership_changes += other.ownership_changes;
        self.careful_recoveries += other.careful_recoveries;
        self.deaths += other.deaths;
        self.blamed += other.blamed;
        self.drains += other.drains;
        self.races += other.races;
        self.stuck += other.stuck;
        self.controls.iter_mut().zip(other.controls).for_each(|(sum, more)| *sum += more);
        self.deleted_instances += other.deleted_instances;
        self.simulated_ms += other.simulated_ms;
    }
}

impl std::fmt::Display for SimCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            commits, faults, faults_in_flight, attempts, ownership_changes, drains, races, stuck, ..
        } = self;
        let deleted = self.deleted_instances;
        let withdrawn = self.withdrawn_calls;
        let (careful, blamed, deaths) = (self.careful_recoveries, self.blamed, self.deaths);
        let [terminated, rewound, restarted, purged] = self.controls;
        let days = self.simulated_ms / 86_400_000;
        write!(
            f,
            "{days} simulated days, {commits} commits, {faults} faults, {faults_in_flight} of them with work in flight, "
        )?;
        write!(
            f,
            "{attempts} attempts, {withdrawn} withdrawn, {ownership_changes} ownership changes, {careful} of them careful with {blamed} runs parked after {deaths} deaths, {drains} drains, {races} lost races, {stuck} stuck, "
        )?;
        write!(
            f,
            "{terminated} terminated, {rewound} rewound, {restarted} restarted, {purged} purged, {deleted} deleted"
        )
    }
}
