//! The Rust receiver keeps every rule over every wire.

use crate::fault_injection::ReceiverFault;
use crate::fixture::{options, serve_with_fault};
use abide_conform::{CheckVerdict, WireFormat, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_receiver_keeps_every_rule_over_every_wire() {
    for transport in WireFormat::ALL {
        let url = serve_with_fault(ReceiverFault::None).await;
        let report = run(&options(&url, transport), |_| {}).await.unwrap();
        let broken: Vec<_> =
            report.checks.iter().filter(|report| report.verdict != CheckVerdict::Passed).collect();
        assert!(broken.is_empty(), "{transport:?}: {broken:#?}");
        assert!(report.is_conformant() && report.checks.len() >= 45, "{}", report.checks.len());
    }
}
