//! Asks whether a fault is planted, for the few faults that must stand inside a decision.
//!
//! Always false without the feature `faults`, and then it costs nothing.

/// Evaluates to true if this fault is planted in the shard of this context.
macro_rules! fault_injected {
    ($context:expr, $fault:ident) => {{
        #[cfg(feature = "faults")]
        {
            $context.has_fault($crate::fault_injection::Fault::$fault)
        }
        #[cfg(not(feature = "faults"))]
        {
            false
        }
    }};
}
pub(crate) use fault_injected;
