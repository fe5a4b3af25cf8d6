//! The fleet's memory beside the server's, device by device: what is lost, and what is there twice.
//!
//! A device sends one event at a time, and the next one when it was told that the server has it. So at any moment the server has as many of its
//! events as it was told of, or one more, whose answer is under way or was cut off.

/// What came of the comparison so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Comparison {
    acknowledged: u64,
    recorded: u64,
    lost: u64,
    doubled: u64,
}

/// One device. It may be at work meanwhile: so what it was told is read before and after the server was asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) told_before: u64,
    pub(super) recorded: u64,
    pub(super) told_after: u64,
}

impl Comparison {
    pub(super) fn add(&mut self, device: Counted) {
        let Counted { told_before, recorded, told_after } = device;
        self.acknowledged += told_before;
        self.recorded += recorded;
        self.lost += told_before.saturating_sub(recorded);
        self.doubled += recorded.saturating_sub(told_after + 1);
    }

    /// Whether nothing is lost and nothing is there twice.
    pub(super) fn is_whole(&self) -> bool {
        self.lost == 0 && self.doubled == 0
    }

    pub(super) fn sentence(&self) -> String {
        let Self { acknowledged, recorded, lost, doubled } = self;
        format!(
            "{acknowledged} events were acknowledged to the fleet, {recorded} ({doubled} doubled) are recorded, {lost} are lost"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(devices: &[(u64, u64, u64)]) -> Comparison {
        let mut comparison = Comparison::default();
        for &(told_before, recorded, told_after) in devices {
            comparison.add(Counted { told_before, recorded, told_after });
        }
        comparison
    }

    #[test]
    fn one_event_may_be_recorded_whose_answer_was_cut_off() {
        let fine = compared(&[(5, 5, 5), (5, 6, 5), (0, 1, 0)]);
        assert!(fine.is_whole());
        assert_eq!(
            fine.sentence(),
            "10 events were acknowledged to the fleet, 12 (0 doubled) are recorded, 0 are lost"
        );
    }

    #[test]
    fn what_is_lost_of_one_device_does_not_make_up_for_what_another_has_twice() {
        let wrong = compared(&[(5, 3, 5), (5, 8, 5)]);
        assert!(!wrong.is_whole());
        assert_eq!(
            wrong.sentence(),
            "10 events were acknowledged to the fleet, 11 (2 doubled) are recorded, 2 are lost"
        );
        assert!(!compared(&[(5, 7, 5)]).is_whole(), "doubled alone");
        assert!(!compared(&[(5, 4, 5)]).is_whole(), "lost alone");
    }

    #[test]
    fn a_device_that_goes_on_meanwhile_has_nothing_twice() {
        assert!(compared(&[(5, 9, 8), (5, 7, 9)]).is_whole());
    }
}
