//! What happened in a simulation, counted: how much of everything was tried.

/// What happened how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Commits that were applied.
    pub commits: u64,
    /// Crashes, pauses, lost answers, refusals.
    pub faults: u64,
    /// Of those, while work was in flight.
    pub faults_in_flight: u64,
    /// Calls delivered.
    pub deliveries: u64,
    /// Calls that were taken back by a node that went down.
    pub withdrawn: u64,
    /// Times a shard was taken.
    pub claims: u64,
    /// Times a node went down in order.
    pub drains: u64,
    /// Starts that were refused because the instance was live.
    pub races: u64,
    /// Runs that were called stuck.
    pub stuck: u64,
    /// Orders that were acknowledged: terminate, rewind, restart, purge.
    pub orders: [u64; 4],
    /// Instances that were forgotten.
    pub forgotten: u64,
    /// Simulated milliseconds.
    pub simulated_ms: u64,
}

impl Counts {
    /// Both together.
    pub fn add(&mut self, other: &Self) {
        self.commits += other.commits;
        self.faults += other.faults;
        self.faults_in_flight += other.faults_in_flight;
        self.deliveries += other.deliveries;
        self.withdrawn += other.withdrawn;
        self.claims += other.claims;
        self.drains += other.drains;
        self.races += other.races;
        self.stuck += other.stuck;
        self.orders.iter_mut().zip(other.orders).for_each(|(sum, more)| *sum += more);
        self.forgotten += other.forgotten;
        self.simulated_ms += other.simulated_ms;
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { commits, faults, faults_in_flight, deliveries, claims, drains, .. } = self;
        let (races, stuck, forgotten, withdrawn) = (self.races, self.stuck, self.forgotten, self.withdrawn);
        let [terminated, rewound, restarted, purged] = self.orders;
        let days = self.simulated_ms / 86_400_000;
        write!(
            f,
            "{days} simulated days, {commits} commits, {faults} faults, {faults_in_flight} of them with work in flight, "
        )?;
        write!(
            f,
            "{deliveries} deliveries, {withdrawn} taken back, {claims} claims, {drains} drains, {races} lost races, {stuck} stuck, "
        )?;
        write!(
            f,
            "{terminated} terminated, {rewound} rewound, {restarted} restarted, {purged} purged, {forgotten} forgotten"
        )
    }
}
