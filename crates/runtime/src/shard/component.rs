//! What the root asks of a component that works beside the instances: something to do now and then, scans, and a time
//! to wake up.
//!
//! A component owns its state and sees no other component: it reads what [`ComponentReads`] has and fills a unit of
//! work, and the root applies the unit. It is added with one line in the list of the root; CONTRIBUTING.md says how.
//! The parts that take part in the work on instances, such as the outbox, the public index and the timers, are not
//! components of this kind: the root calls each by its name.

use abide_store::rows::{ScanPage, StoreError};

use crate::event::ScanPurpose;
use crate::lease::Monotonic;
use crate::shard::calls::attempts_in_flight::AttemptsInFlight;
use crate::shard::unit_of_work::UnitOfWork;

/// What a component may read of the others.
#[derive(Debug)]
pub(super) struct ComponentReads<'s> {
    pub(super) attempts: &'s AttemptsInFlight,
}

/// A component; see above.
pub(super) trait Component {
    /// Does what is due. Called at every flush while the shard works, so it must be cheap if nothing is.
    fn drive(&mut self, work: &mut UnitOfWork<'_>);

    /// When it must be driven even without an event.
    fn wake(&self) -> Option<Monotonic> {
        None
    }

    /// Returns whether the pages of such scans are for this component.
    fn takes_scan(&self, _purpose: ScanPurpose) -> bool {
        false
    }

    /// A page that it asked for, or the error of the scan. It may also come while the shard drains.
    fn on_scanned(
        &mut self,
        _work: &mut UnitOfWork<'_>,
        _reads: &ComponentReads<'_>,
        _purpose: ScanPurpose,
        _result: Result<ScanPage, StoreError>,
    ) {
    }
}

/// Declares the components of a shard, in the order they are driven.
macro_rules! components {
    ($($(#[$meta:meta])* $name:ident: $type:ty,)*) => {
        /// The components that work beside the instances.
        #[derive(Debug, Default)]
        struct Components {
            $($(#[$meta])* $name: $type,)*
        }

        impl Components {
            /// The component at this place of the list; none after the last.
            fn get_mut(&mut self, place: usize) -> Option<&mut dyn Component> {
                let mut at = 0..;
                $($(#[$meta])* if at.next() == Some(place) {
                    return Some(&mut self.$name);
                })*
                None
            }

            /// When the first of them must be driven even without an event.
            fn wake(&self) -> Option<Monotonic> {
                let mut wake: Option<Monotonic> = None;
                $($(#[$meta])* if let Some(at) = self.$name.wake() {
                    wake = Some(wake.map_or(at, |wake| wake.min(at)));
                })*
                wake
            }
        }
    };
}
pub(super) use components;
