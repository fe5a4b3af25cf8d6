//! Compares the fleet's ledger with the server, device by device, and counts lost and duplicated events.
//!
//! A device sends the next event only when the server has acknowledged the last one. So at any time the server has as
//! many of its events as were acknowledged, or one more, whose response is in transit or was cut off.

/// The totals of all compared devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct FleetComparison {
    acknowledged: u64,
    recorded: u64,
    lost: u64,
    duplicated: u64,
}

/// The numbers of events of one device. The device may send events meanwhile, so the acknowledged events are read both
/// before and after the recorded ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceCounts {
    pub(super) acknowledged_before: u64,
    pub(super) recorded: u64,
    pub(super) acknowledged_after: u64,
}

impl FleetComparison {
    pub(super) fn add(&mut self, device: DeviceCounts) {
        let DeviceCounts { acknowledged_before, recorded, acknowledged_after } = device;
        self.acknowledged += acknowledged_before;
        self.recorded += recorded;
        self.lost += acknowledged_before.saturating_sub(recorded);
        self.duplicated += recorded.saturating_sub(acknowledged_after + 1);
    }

    /// True if nothing is lost and nothing is duplicated.
    pub(super) fn is_consistent(&self) -> bool {
        self.lost == 0 && self.duplicated == 0
    }

    pub(super) fn summary(&self) -> String {
        let Self { acknowledged, recorded, lost, duplicated } = self;
        format!(
            "{acknowledged} events were acknowledged to the fleet, {recorded} ({duplicated} duplicated) are recorded, {lost} are lost"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(devices: &[(u64, u64, u64)]) -> FleetComparison {
        let mut comparison = FleetComparison::default();
        for &(acknowledged_before, recorded, acknowledged_after) in devices {
            comparison.add(DeviceCounts { acknowledged_before, recorded, acknowledged_after });
        }
        comparison
    }

    #[test]
    fn one_recorded_event_per_device_may_be_unacknowledged() {
        let consistent = compared(&[(5, 5, 5), (5, 6, 5), (0, 1, 0)]);
        assert!(consistent.is_consistent());
        assert_eq!(
            consistent.summary(),
            "10 events were acknowledged to the fleet, 12 (0 duplicated) are recorded, 0 are lost"
        );
    }

    #[test]
    fn lost_events_of_one_device_do_not_offset_duplicates_of_another() {
        let wrong = compared(&[(5, 3, 5), (5, 8, 5)]);
        assert!(!wrong.is_consistent());
        assert_eq!(
            wrong.summary(),
            "10 events were acknowledged to the fleet, 11 (2 duplicated) are recorded, 2 are lost"
        );
        assert!(!compared(&[(5, 7, 5)]).is_consistent(), "duplicated alone");
        assert!(!compared(&[(5, 4, 5)]).is_consistent(), "lost alone");
    }

    #[test]
    fn events_that_a_device_sends_during_the_comparison_are_not_duplicates() {
        assert!(compared(&[(5, 9, 8), (5, 7, 9)]).is_consistent());
    }
}
